"""What the tag check adds to a generation step of a model: every layer's store and attention, with and without.

The layers are those of a target with 32 query heads on 8 KV heads of 128, in 32 layers of random K/V; projections and
MLPs are left out, so a step is shorter than a model's and the share of the check larger.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch

from gpu_backend.calls import AttentionCall, CheckCall, StoreCall, Verdict
from gpu_backend.cells import ONLY_FINAL, CellState
from gpu_backend.layout import PoolLayout
from gpu_backend.pool import DevicePool
from gpu_backend.timing import capture, event_us
from gpu_backend.triton_backend import TritonKernels

LAYERS, HEADS, KV_HEADS, DIM = 32, 32, 8, 128
PAGE, WIDTH = 128, 8
REPLAYS = 15


@dataclass(frozen=True, slots=True)
class Overhead:
    """Medians in microseconds of a step without and with checks, taken in turns; ``spread`` of the ratio by round."""

    layers: int
    batch: int
    context: int
    plain_us: float
    checked_us: float
    ratio: float
    spread: float


class Step:
    """One generation step of ``batch`` rows behind ``context`` tokens each."""

    def __init__(self, batch: int, context: int, layers: int = LAYERS) -> None:
        device = torch.device("cuda")
        self.layers, self.kernels = layers, TritonKernels()
        columns = -(-(context + WIDTH) // PAGE)
        pages = batch * columns
        self.pool = DevicePool("target", PoolLayout(layers, KV_HEADS, DIM, PAGE), pages, device)
        self.pool.kv.normal_()
        self.table = (torch.randperm(pages, device=device) + 1).int().view(batch, columns)
        self.base = torch.zeros(batch, dtype=torch.int32, device=device)
        self.length = torch.full_like(self.base, context + WIDTH)
        self.past = torch.full_like(self.base, context)
        self.bounds = torch.arange(0, (batch + 1) * WIDTH, WIDTH, dtype=torch.int32, device=device)
        self.row = torch.arange(batch, dtype=torch.int32, device=device).repeat_interleave(WIDTH)
        self.position = context + torch.arange(WIDTH, dtype=torch.int32, device=device).repeat(batch)
        self.q = torch.randn(batch * WIDTH, HEADS, DIM, device=device).bfloat16()
        self.out = torch.empty_like(self.q)
        self.k = torch.randn(batch * WIDTH, KV_HEADS, DIM, device=device).bfloat16()
        self.widths = (WIDTH,) * batch
        self._tags(batch, columns, device)

    def _tags(self, batch: int, columns: int, device: torch.device) -> None:
        """Every row's cells hold what is expected of them."""
        self.expected = torch.randint(-(1 << 62), 1 << 62, (batch, columns * PAGE), device=device)
        cells = self.pool.cells
        cells.tags[self.table.long()] = self.expected.view(batch, columns, PAGE)
        cells.states.fill_(int(CellState.FINAL))
        self.generation = self.pool.generation[self.table.long()].contiguous()
        self.verdict = Verdict.clean(device)
        self.tag = self.expected[self.row.long(), self.position.long()]
        self.state = torch.full((len(self.tag),), int(CellState.FINAL), dtype=torch.int8, device=device)

    def run(self, *, checked: bool) -> None:
        """Queue the step; ``checked``: tags are checked before it and written by its last layer."""
        if checked:
            self.kernels.check(
                CheckCall(
                    self.pool.cells, self.pool.generation, self.expected, self.generation, self.table, self.base,
                    self.base, self.past, self.verdict, ONLY_FINAL, from_origin=True,
                ),
                self.table.shape[1] * PAGE,
            )  # fmt: skip
        for layer in range(self.layers):
            k, v = self.pool.k(layer), self.pool.v(layer)
            tagged = checked and layer == self.layers - 1
            cells = (self.pool.cells, self.tag, self.state) if tagged else (None, None, None)
            self.kernels.store(StoreCall(self.k, self.k, k, v, self.row, self.position, self.table, self.base, *cells))
            self.kernels.attend(
                AttentionCall(
                    self.q, self.out, k, v, self.table, self.bounds, self.length, self.base, self.base,
                    from_origin=True,
                ),
                widths=self.widths,
            )  # fmt: skip


def measure_overhead(context: int, batch: int = 64, rounds: int = 2) -> Overhead:
    """Time both steps as graphs, in turns; ``RuntimeError`` if the check finds anything in a sound memory."""
    step = Step(batch, context)
    graphs = []
    for checked in (False, True):
        step.run(checked=checked)
        torch.cuda.synchronize()
        graphs.append(capture(lambda checked=checked: step.run(checked=checked)))
    times: list[list[list[float]]] = [[], []]
    for _ in range(rounds):
        for place, graph in enumerate(graphs):
            graph.replay()
            times[place].append(event_us(graph.replay, REPLAYS))
    if step.verdict.found() is not None:
        raise RuntimeError(f"the check refuses a sound memory at {step.verdict.found()}")
    ratios = [statistics.median(checked) / statistics.median(plain) for plain, checked in zip(*times, strict=True)]
    plain, checked = (statistics.median(value for part in parts for value in part) for parts in times)
    return Overhead(step.layers, batch, context, plain, checked, checked / plain, max(ratios) - min(ratios))
