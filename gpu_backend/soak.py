"""``python -m gpu_backend.soak``: replays in rotation until the time is up, and whether the last one is as the first.

Agent conversations, long prompts in chunks and floods of short requests (with cancellations, suspensions and failed
forwards) take turns on several builds and seeds, launched ahead and under CUDA graphs. In every round all tags are
compared, digests must be equal, also with an earlier round of the same kind, build and seed, and pools must end empty.
From the second rotation on a round may leave no more than the first ones did (device memory, live tensors, pinned and
host memory), and at the end generation steps may be no slower than at the start; the bounds are in soak_judge. Prints
a line a round and a table, and writes JSON. A round starts if it is likely to end in time. Exit codes: 0 fine,
1 something broke, 2 usage, 3 no GPU, 130 Ctrl-C and nothing broke until then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.answers import NotCarriedOut
from gpu_backend.bench import description, write_whole
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import NOTHING_CHECKED, Replayed, ReplayOrder
from gpu_backend.replay.session import Prepare, replay
from gpu_backend.replay.supported import require_replayable
from gpu_backend.soak_judge import Drift, Left, Round, drift_of, leaks, left_behind, unmet
from gpu_backend.soak_rounds import FULL, KINDS, TINY, scenario_of
from model.plan import StepPlan
from scenarios.errors import InputError
from sim.rulespec import find

BUILDS = ("paired-22", "unified", "vllm-lookahead", "sglang-fused")  # paired, unified, shared and fused pools
SEEDS = 2  # of each build and kind, before the first comes again
FINE, BROKEN, USAGE, NO_GPU, INTERRUPTED = 0, 1, 2, 3, 130
TOLD = 8  # of what is wrong with a round


@dataclass(frozen=True, slots=True)
class SoakOrder:
    """``rounds``: so many at most; ``size``: of the scenarios, ``full`` or ``tiny``."""

    minutes: float
    device: str
    rounds: int | None = None
    kinds: tuple[str, ...] = KINDS
    builds: tuple[str, ...] = BUILDS
    seed: int = 0
    size: str = FULL

    def round_of(self, number: int) -> tuple[str, str, int]:
        """Kind, build and seed of a round."""
        turn = number // len(self.kinds)
        seed = self.seed + turn // len(self.builds) % SEEDS
        return self.kinds[number % len(self.kinds)], self.builds[turn % len(self.builds)], seed


@dataclass(slots=True)
class Soaked:
    """All rounds, and what is wrong with them together."""

    order: SoakOrder
    rounds: list[Round] = field(default_factory=list)
    interrupted: bool = False

    @property
    def drifts(self) -> list[Drift]:
        """By kind."""
        return [drift_of(kind, self.rounds) for kind in self.order.kinds]

    @property
    def wrong(self) -> list[str]:
        """Everything, a line each."""
        each = [
            f"round {one.number}, {one.kind} on {one.build}, seed {one.seed}: {text}"
            for one in self.rounds
            for text in one.wrong
        ]
        whole = [] if self.interrupted else unmet(self.rounds)
        return [*each, *filter(None, (drift.wrong for drift in self.drifts)), *whole]

    @property
    def exit_code(self) -> int:
        """What broke outweighs Ctrl-C."""
        return BROKEN if self.wrong else INTERRUPTED if self.interrupted else FINE


class StepClock:
    """Takes the time of steps on the host: dispatch and settle, of those in which nothing but verify rows runs."""

    def __init__(self, device: str) -> None:
        # A CPU does all the work itself, and what else runs there is no part of it; a GPU is waited for.
        self._now = time.perf_counter if device == "cuda" else time.process_time
        self.alone: list[float] = []
        self.mixed: list[float] = []
        self._sent: dict[int, float] = {}  # iteration -> seconds of its dispatch

    def put(self, follower: DeviceWorld) -> None:
        """Look on from now on."""
        dispatched, settled = follower.dispatched, follower.settled

        def sent(plan: StepPlan) -> None:
            begun = self._now()
            dispatched(plan)
            self._sent[plan.iteration] = self._now() - begun

        def judged(plan: StepPlan, accepted: tuple[int, ...]) -> None:
            begun = self._now()
            settled(plan, accepted)
            seconds = self._sent.pop(plan.iteration, 0.0) + self._now() - begun
            (self.alone if plan.generation and not plan.context else self.mixed).append(seconds)

        follower.dispatched, follower.settled = sent, judged

    @property
    def step_us(self) -> float:
        """Median in microseconds; 0.0 without steps."""
        return statistics.median(self.alone or self.mixed or [0.0]) * 1e6


def soak(
    order: SoakOrder, tell: Callable[[str], None] = print, prepare: Callable[[int, DeviceWorld], None] | None = None
) -> Soaked:
    """Run rounds until the time is up; ``prepare`` sees each round's number and device before its first step.

    Raises InputError for a build that is not known or cannot be replayed.
    """
    found, begun = Soaked(order), time.monotonic()
    device = torch.device(order.device)
    baseline, digests, took = Left(), dict[tuple[str, str, int], str](), dict[str, float]()
    for build in order.builds:
        _require(build)
    number = 0
    try:
        while order.rounds is None or number < order.rounds:
            kind, build, seed = order.round_of(number)
            if number and time.monotonic() - begun + took.get(kind, 0.0) > order.minutes * 60:
                break
            one = _round(order, number, prepare)
            if one.cut:
                found.interrupted = True
                found.rounds += [one] if one.wrong else []
                break
            took[kind] = one.seconds
            if digests.setdefault((kind, build, seed), one.digest) != one.digest:
                one = one.told("other decisions or another memory than an earlier round of the same build and seed")
            left = left_behind(device)
            if number < len(order.kinds):
                one, baseline = replace(one, left=left), baseline.most(left)
            else:
                one = replace(one, left=left).told(*leaks(left, baseline))
            found.rounds.append(one)
            tell(_line(one, time.monotonic() - begun))
            number += 1
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _round(order: SoakOrder, number: int, prepare: Callable[[int, DeviceWorld], None] | None) -> Round:
    kind, build, seed = order.round_of(number)
    clock = StepClock(order.device)

    def prepared(follower: DeviceWorld) -> None:
        if prepare is not None:
            prepare(number, follower)
        clock.put(follower)

    begun = time.monotonic()
    try:
        replayed = _replay(order, kind, build, seed, prepared)
    except Exception as error:  # a round that crashes is a finding; what was found before it is kept
        if number == 0 and isinstance(error, InputError):
            raise
        text = " ".join(f"crash: {type(error).__name__}: {error}".split())
        return Round(number, kind, build, seed, time.monotonic() - begun, wrong=(text,))
    worker, totals = replayed.workers[0], replayed.result.totals
    return Round(
        number,
        kind,
        build,
        seed,
        time.monotonic() - begun,
        steps=worker.steps,
        in_graphs=worker.in_graphs,
        events=worker.events,
        cells=worker.cells,
        step_us=clock.step_us,
        suspended=totals.suspensions + totals.preemptions,
        cancelled=totals.cancelled,
        failed=worker.failed_forwards,
        digest=f"{replayed.result.decision_digest} {worker.device_digest}",
        wrong=_wrong(replayed),
        cut=replayed.result.interrupted,
    )


def _require(build: str) -> None:
    """InputError for a build that is not known or not carried out."""
    try:
        require_replayable(find(build))
    except NotCarriedOut as error:
        raise InputError("build", 0, "", str(error)) from error


def _replay(order: SoakOrder, kind: str, build: str, seed: int, prepared: Prepare) -> Replayed:
    asked = ReplayOrder(order.device, launch="dispatch", graphs=True)
    return replay(scenario_of(kind, order.size, seed), find(build), asked, prepare=prepared)


def _wrong(replayed: Replayed) -> tuple[str, ...]:
    """What a replay found, in words."""
    broken = (*replayed.findings, *replayed.result.violations)
    told = [f"{one.code} {one.message} (request {one.request}, step {one.step})" for one in broken]
    told += replayed.result.missed
    worker = replayed.workers[0]
    if not replayed.equal:
        told.insert(0, f"memories differ: the device's is {worker.device_digest}, the model's {worker.memory_digest}")
    if not replayed.result.interrupted:
        told += ["nothing was compared"] if replayed.exit_code == NOTHING_CHECKED else []
        told += [] if worker.in_graphs else ["no step ran as a graph runs it"]
        told += [] if worker.cells else ["no cell was compared at the end"]
    return (*told[:TOLD], *([f"and {len(told) - TOLD} more"] if len(told) > TOLD else []))


def _line(one: Round, elapsed: float) -> str:
    left, (minutes, seconds) = one.left, divmod(int(elapsed), 60)
    return (
        f"{minutes:3}:{seconds:02} round {one.number}, {one.kind} on {one.build}, seed {one.seed}: "
        f"{one.steps} steps, {one.events:,} events, {one.seconds:.1f} s, a step {one.step_us:.0f} us; left "
        f"{left.device_bytes / 2**20:.1f} MiB, {left.tensors} tensors, pinned {left.pinned_bytes / 2**20:.1f} MiB, "
        f"host {left.host_bytes / 2**20:.0f} MiB; {'WRONG ' + '; '.join(one.wrong) if one.wrong else 'fine'}"
    )


def table(soaked: Soaked) -> list[str]:
    """Rounds by kind, a line each, and behind them what is wrong."""
    lines = [
        f"{'kind':8} {'rounds':>6} {'builds':>6} {'steps':>8} {'events':>10} {'suspended':>9} {'cancelled':>9} "
        f"{'failed':>6} {'step us':>8}  slower by"
    ]
    for drift in soaked.drifts:
        mine = [one for one in soaked.rounds if one.kind == drift.kind]
        step = statistics.median([one.step_us for one in mine] or [0.0])
        slower = "too few rounds to say" if drift.ratio is None else f"x {drift.ratio:.2f}"
        lines.append(
            f"{drift.kind:8} {len(mine):6} {len({one.build for one in mine}):6} {sum(one.steps for one in mine):8,} "
            f"{sum(one.events for one in mine):10,} {sum(one.suspended for one in mine):9,} "
            f"{sum(one.cancelled for one in mine):9,} {sum(one.failed for one in mine):6,} {step:8.0f}  {slower}"
        )
    ending = "interrupted, " if soaked.interrupted else ""
    rounds = "1 round" if len(soaked.rounds) == 1 else f"{len(soaked.rounds)} rounds"
    lines.append(f"{ending}{rounds}, {len(soaked.wrong) or 'nothing'} wrong")
    return [*lines, *soaked.wrong]


def document(soaked: Soaked) -> dict[str, Any]:
    """Everything as plain values."""
    on_gpu = soaked.order.device == "cuda"
    return {
        **(description() if on_gpu else {"device": "cpu", "torch": torch.__version__}),
        "order": asdict(soaked.order),
        "interrupted": soaked.interrupted,
        "exit_code": soaked.exit_code,
        "wrong": soaked.wrong,
        "slower": {drift.kind: drift.ratio for drift in soaked.drifts},
        "rounds": [asdict(one) for one in soaked.rounds],
    }


def main(arguments: list[str] | None = None) -> int:
    """Soak, print, write."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=None, metavar="N", help="so many at most")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=(FULL, TINY), default=None, help="of the scenarios; tiny on a CPU")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--builds", nargs="+", default=list(BUILDS), metavar="B")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"), metavar="FILE", help="where the JSON goes")
    options = parser.parse_args(arguments)
    if (
        not 0 < options.minutes < float("inf")
        or (options.rounds is not None and options.rounds < 1)
        or options.seed < 0
    ):
        parser.error("expected --minutes above 0, --rounds of at least 1 and --seed of at least 0")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU: nothing was replayed (--device cpu takes tiny rounds)", file=sys.stderr)
        return NO_GPU
    size = options.size or (FULL if options.device == "cuda" else TINY)
    order = SoakOrder(
        options.minutes, options.device, options.rounds, tuple(options.kinds), tuple(options.builds), options.seed, size
    )
    try:
        soaked = soak(order, lambda line: print(line, flush=True))
        print("\n".join(table(soaked)))
        write_whole(options.out, json.dumps(document(soaked), indent=2) + "\n")
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return USAGE
    return soaked.exit_code


if __name__ == "__main__":
    sys.exit(main())
