"""``python -m gpu_backend.bench_step``: what a generation step of a replay costs, by build and batch size.

Forced acceptance; two rounds in which the builds take turns. ``device`` is the time of a step's work on the GPU,
``dispatch`` and ``settle`` that of the host for queueing a step and for judging one, without what a settle waits for
the device. Beside it: how much the tag check adds to a step of a model of 32 layers. Prints tables and writes JSON.
``--device cpu`` prints the host's part alone: what a captured graph would do runs on the CPU and is left out, so that
the figures lack the calls of the driver (two copies and a launch a step). Exit codes: 0 fine, 1 a target is missed or
memories differ, 2 usage, 3 nothing was measured: there is no GPU, or requests end before a step counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from gpu_backend.arguments import positive
from gpu_backend.bench import description, write_whole
from gpu_backend.bench_overhead import Overhead, measure_overhead
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.graphs import GenerationSteps, Size, Stage
from gpu_backend.replay.result import ReplayOrder
from gpu_backend.replay.session import replay
from model.plan import StepPlan
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from sim.rulespec import find

BUILDS = ("joint-backoff", "paired-22", "unified-page", "unified")
BATCHES = (1, 4, 8, 16, 44, 64)
ROUNDS = 2
HOST_US = 150.0  # target for a batch of 64 under graphs, of a dispatch and of a settle
OVERHEAD = 1.03  # target: a step with checks over one without
WARM = 6  # steps of a batch that are not counted: its graph is captured in one of them
SCENARIO = """
summary: {batch} requests that generate together, forced acceptance length 3.5
seed: 5
geometry: minimax-m3.1-flash-like
drafter: {{drafts: 7}}
builds: [unified]
limits: {{page_size: 128, max_batch: {batch}, max_num_tokens: 16384, max_seq_len: 8192}}
pools: {{target: {pages}, draft: {pages}}}
policy: all_reusable
workload:
  concurrency: {batch}
  groups: {{requests: {batch}, groups: 1, shared: 1024, private: 128, output: {output}}}
acceptance: {{length: 3.5}}
"""


@dataclass(slots=True)
class Samples:
    """Microseconds of steps whose batch is full: host dispatch and settle, device."""

    dispatch: list[float]
    settle: list[float]
    device: list[float]


@dataclass(frozen=True, slots=True)
class Row:
    """One build at one batch size; medians over ``steps`` steps in microseconds, and by round, with the spread.

    ``spread`` is the difference of the rounds' medians over the median of all, for the device's time. The host's are
    those of the round with the lower median: what else a host does can only add to them.
    """

    build: str
    batch: int
    mode: str
    steps: int
    device_us: float
    device_rounds: tuple[float, ...]
    spread: float
    dispatch_us: float
    dispatch_rounds: tuple[float, ...]
    settle_us: float
    settle_rounds: tuple[float, ...]
    equal: bool
    missed: str


class NothingMeasuredError(Exception):
    """No step of a replay counted."""


class Watch:
    """Times every step of one replay in which ``batch`` rows verify and nothing else runs."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.samples = Samples([], [], [])
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seen = 0
        self._carried = 0.0  # seconds of the CPU in place of a graph

    def put(self, follower: DeviceWorld) -> None:
        """Take the time of ``follower``'s steps from now on."""
        dispatched, settled = follower.dispatched, follower.settled
        on_gpu = follower.memory.device.type == "cuda"

        def timed(run: Callable[..., None], into: list[float], plan: StepPlan, *rest: object) -> None:
            self._carried, begun = 0.0, time.perf_counter()
            run(plan, *rest)
            if self._counts(plan):
                into.append((time.perf_counter() - begun - self._carried) * 1e6)

        def judged(plan: StepPlan, accepted: tuple[int, ...]) -> None:
            if follower._ran:
                follower._ran[0].journal.wait()
            timed(settled, self.samples.settle, plan, accepted)

        def sent(plan: StepPlan) -> None:
            self._seen += self._full(plan)
            if not (on_gpu and self._counts(plan)):
                timed(dispatched, self.samples.dispatch, plan)
                return
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()  # the calls that measure are no part of what the host needs
            timed(dispatched, self.samples.dispatch, plan)
            end.record()
            self._events.append((begin, end))

        follower.dispatched = sent
        follower.settled = judged
        if follower.steps.graphs is not None and not on_gpu:
            self._leave_out(follower.steps.graphs)

    def _leave_out(self, graphs: GenerationSteps) -> None:
        """What stands for a graph on the CPU is no work of the host."""
        carry_out = graphs._carry_out

        def carried(step: Size, stage: Stage) -> torch.Tensor | None:
            begun = time.perf_counter()
            out = carry_out(step, stage)
            self._carried += time.perf_counter() - begun
            return out

        graphs._carry_out = carried

    def done(self) -> Samples:
        """What was timed; waits for the device."""
        if self._events:
            torch.cuda.synchronize()
        self.samples.device = [begin.elapsed_time(end) * 1e3 for begin, end in self._events]
        return self.samples

    def _full(self, plan: StepPlan) -> bool:
        return len(plan.generation) == self.batch and not plan.context

    def _counts(self, plan: StepPlan) -> bool:
        return self._full(plan) and self._seen > WARM


def scenario_of(batch: int, output: int) -> Scenario:
    """``batch`` requests that generate ``output`` tokens each."""
    text = SCENARIO.format(batch=batch, output=output, pages=batch * 40 + 64)
    return parse_scenario(text, f"batch of {batch}", Path())


def measure(build: str, batch: int, output: int, *, eager: bool, device: str = "cuda") -> tuple[Samples, bool]:
    """Replay one batch on one build; also whether both memories are equal. It may be that no step counts."""
    watch = Watch(batch)
    order = ReplayOrder(device, launch="dispatch", graphs=not eager)
    replayed = replay(scenario_of(batch, output), find(build), order, prepare=watch.put)
    return watch.done(), replayed.equal and not replayed.findings


def counted(build: str, batch: int, output: int, *, eager: bool, device: str = "cuda") -> tuple[Samples, bool]:
    """As :func:`measure`; ``NothingMeasuredError`` if no step counts."""
    samples, equal = measure(build, batch, output, eager=eager, device=device)
    if not (samples.dispatch and samples.settle and (samples.device or device == "cpu")):
        problem = f"no step of {batch} rows counts on {build}: the first {WARM} do not, and --output is {output}"
        raise NothingMeasuredError(f"{problem}; nothing was measured")
    return samples, equal


def row_of(build: str, batch: int, mode: str, rounds: Sequence[Samples], equal: bool) -> Row:
    """Medians of all rounds, and what misses its target."""
    medians = tuple(statistics.median(samples.device) for samples in rounds)
    device = statistics.median(value for samples in rounds for value in samples.device)
    dispatches = tuple(statistics.median(samples.dispatch) for samples in rounds)
    settles = tuple(statistics.median(samples.settle) for samples in rounds)
    dispatch, settle = min(dispatches), min(settles)
    missed = [] if equal else ["memories differ"]
    if mode == "graphs" and batch == 64:
        host = {"dispatch": dispatch, "settle": settle}
        missed += [f"{what} <= {HOST_US:.0f} us" for what, us in host.items() if us > HOST_US]
    return Row(
        build, batch, mode, sum(len(samples.device) for samples in rounds), device, medians,
        (max(medians) - min(medians)) / device, dispatch, dispatches, settle, settles, equal, "; ".join(missed),
    )  # fmt: skip


def steps_table(batches: Sequence[int], builds: Sequence[str], output: int) -> list[Row]:
    """All builds and batches under graphs, in rounds in which builds take turns; the last build eagerly as well."""
    rows = []
    print(
        f"{'build':18} {'B':>3} {'mode':7} {'steps':>5} {'device us':>10} {'spread':>7} {'dispatch':>9} {'settle':>8}"
    )
    for batch in batches:
        cases = [(build, False) for build in builds] + ([(builds[-1], True)] if batch == max(batches) else [])
        found: dict[tuple[str, bool], list[tuple[Samples, bool]]] = {case: [] for case in cases}
        measure(builds[0], batch, WARM, eager=False)  # kernels of this batch are compiled
        for _ in range(ROUNDS):
            for build, eager in cases:
                found[build, eager].append(counted(build, batch, output, eager=eager))
        for (build, eager), rounds in found.items():
            equal = all(same for _, same in rounds)
            row = row_of(build, batch, "eager" if eager else "graphs", [samples for samples, _ in rounds], equal)
            rows.append(row)
            print(
                f"{row.build:18} {row.batch:3} {row.mode:7} {row.steps:5} {row.device_us:10.1f} {row.spread:7.3f} "
                f"{row.dispatch_us:9.1f} {row.settle_us:8.1f}  {row.missed and 'MISSED ' + row.missed}",
                flush=True,
            )
    return rows


def host_table(batches: Sequence[int], builds: Sequence[str], output: int) -> bool:
    """The host's part of steps, printed, without a GPU; whether all memories are equal."""
    every = True
    print(f"{'build':18} {'B':>3} {'steps':>5} {'dispatch':>9} {'settle':>8}  (host us, medians)")
    for batch in batches:
        for build in builds:
            samples, equal = counted(build, batch, output, eager=False, device="cpu")
            every &= equal
            dispatch, settle = statistics.median(samples.dispatch), statistics.median(samples.settle)
            words = "" if equal else "  memories differ"
            print(f"{build:18} {batch:3} {len(samples.settle):5} {dispatch:9.1f} {settle:8.1f}{words}", flush=True)
    return every


def show_overhead(found: Overhead) -> str:
    """One line of the overhead."""
    verdict = "ok" if found.ratio <= OVERHEAD else f"MISSED <= {OVERHEAD}"
    return (
        f"tag check at {found.layers} layers of 8 KV heads x 128, B {found.batch}, context {found.context}: "
        f"{found.plain_us:.0f} us without, {found.checked_us:.0f} us with, {found.ratio:.4f} x "
        f"(spread {found.spread:.4f})  {verdict}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.bench_step", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/bench-step.json"), help="where the JSON goes")
    parser.add_argument("--batches", type=positive, nargs="+", default=list(BATCHES), metavar="B")
    parser.add_argument("--builds", nargs="+", default=list(BUILDS), metavar="BUILD")
    parser.add_argument("--output", type=positive, default=240, help="tokens that each request generates")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the host's part alone")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: nothing was measured", file=sys.stderr)
        return 3
    try:
        if options.device == "cpu":
            return 0 if host_table(options.batches, options.builds, options.output) else 1
        return _on_gpu(options)
    except (InputError, NothingMeasuredError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 3


def _on_gpu(options: argparse.Namespace) -> int:
    rows = steps_table(options.batches, options.builds, options.output)
    overheads = [measure_overhead(context) for context in (1024, 4096)]
    for found in overheads:
        print(show_overhead(found))
    result = {**description(), "steps": [asdict(row) for row in rows], "overhead": [asdict(one) for one in overheads]}
    write_whole(options.out, json.dumps(result, indent=2) + "\n")
    missed = [row for row in rows if row.missed] + [found for found in overheads if found.ratio > OVERHEAD]
    print(f"{len(rows)} steps, {len(missed)} with a missed target; {options.out}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
