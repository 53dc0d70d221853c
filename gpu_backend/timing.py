"""How the bench times: medians of CUDA-graph replays over rotated inputs, and the ceilings of the device."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_backend.device import uncollected
from gpu_backend.kernels.ceiling import copy_launch, empty_launch, read_launch

METHOD = (
    "median of CUDA-graph replays timed with events, all input sets of a shape in one graph (several sets where one "
    "fits the L2 cache), bf16 random data, pages in random order; floors from ceilings measured in the same run: a "
    "Triton read of 4.3 GB right before and after each shape, the faster of an eager copy and a Triton copy of 8.6 GB, "
    "a bf16 matrix product of 8192"
)
REPLAYS = 15
GRAPH_US = 5000.0  # work in one graph, so that its own launch (10 to 20 us) does not count
MOST_ROUNDS = 500


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates of the device: bytes a second read, bytes a second moved by a copy, operations a second; µs of a node."""

    read: float
    copy: float
    flops: float
    node_us: float


def event_us(run: Callable[[], object], repeats: int) -> list[float]:
    """Microseconds of ``run`` on the device, one figure a call."""
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return times


def capture(run: Callable[[], object], rounds: int = 1) -> torch.cuda.CUDAGraph:
    """``rounds`` calls of ``run``, already warm, as one graph."""
    graph = torch.cuda.CUDAGraph()
    with uncollected(), torch.cuda.graph(graph):
        for _ in range(rounds):
            run()
    return graph


def capture_warm(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """One call of ``run`` as a graph, after one to compile it."""
    run()
    torch.cuda.synchronize()
    return capture(run)


@dataclass(frozen=True, slots=True)
class Timing:
    """Median time of one call, and the middle half of the samples as a spread, in microseconds."""

    median_us: float
    spread_us: float


def time_graph(run: Callable[[], object], calls: int = 1, replays: int = REPLAYS) -> Timing:
    """Time ``run``, which makes ``calls`` calls, by replays of a graph."""
    run()
    torch.cuda.synchronize()
    graph = capture(run)
    graph.replay()
    once = min(event_us(graph.replay, 3))
    rounds = max(1, min(MOST_ROUNDS, round(GRAPH_US / once)))
    if rounds > 1:
        graph = capture(run, rounds)
    for _ in range(2):
        graph.replay()
    samples = [time / (rounds * calls) for time in event_us(graph.replay, replays)]
    low, _, high = statistics.quantiles(samples, n=4)
    return Timing(statistics.median(samples), high - low)


class Reader:
    """The read ceiling, measured again beside each shape: memory that has been busy for a while is up to 5 % slower."""

    def __init__(self, elements: int = 1 << 30) -> None:
        self.source = torch.randint(-(1 << 31), (1 << 31) - 1, (elements,), dtype=torch.int32, device="cuda")
        self.out = torch.empty(1 << 20, dtype=torch.int32, device="cuda")
        self.graph = capture_warm(read_launch(self.source, self.out, 4096, 16, 8))

    def rate(self) -> float:
        """Bytes a second, median of nine reads."""
        return self.source.nbytes / statistics.median(event_us(self.graph.replay, 9)) * 1e6


def measure_ceilings(elements: int = 1 << 31) -> Ceilings:
    """Ceilings of the current device, with buffers of ``elements`` int32."""
    source = torch.randint(-(1 << 31), (1 << 31) - 1, (elements,), dtype=torch.int32, device="cuda")
    target, out = torch.empty_like(source), torch.empty(1 << 20, dtype=torch.int32, device="cuda")
    size = elements * source.itemsize
    reads = [read_launch(source, out, *config) for config in ((2048, 64, 4), (4096, 64, 8), (4096, 16, 8))]
    read_us = min(time_graph(read, replays=7).median_us for read in reads)
    target.copy_(source)  # eager: captured, it becomes a slower memcpy node
    copy_us = min(
        statistics.median(event_us(lambda: target.copy_(source), 7)),
        time_graph(copy_launch(source, target), replays=7).median_us,
    )
    node_us = time_graph(empty_launch(out)).median_us
    left, right = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    product = capture_warm(lambda: left @ right)
    product_us = min(event_us(product.replay, 30))  # the best, not the median: under load the card lowers its clock
    return Ceilings(size / read_us * 1e6, 2 * size / copy_us * 1e6, 2 * 8192**3 / product_us * 1e6, node_us)
