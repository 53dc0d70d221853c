"""The end of a run: the end-of-run laws, what was expected, and the result of one worker or of several."""

from __future__ import annotations

from dataclasses import dataclass, field

from model.cluster import Cluster
from model.ops import World
from scenarios.expect import Expectation
from scenarios.schema import Scenario
from scenarios.user_rules import is_own
from sim.clock import Clock
from sim.crashes import ENDS, Hang, crashed
from sim.result import RunResult
from sim.ticket import RequestTiming

RECORDED = "recorded"  # acceptance mode of a replay: the counts came with the ops
MEASURED = "measured"  # a device's target and drafter agreed on them


@dataclass(slots=True)
class Course:
    """How a run went, apart from what the world itself keeps."""

    acceptance: str
    acceptance_mode: str
    timings: list[RequestTiming] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    duration_ns: int = 0
    device_busy_ns: int = 0
    interrupted: bool = False
    crashed: bool = False


def note_crash(world: World | Cluster, course: Course, error: Exception | SystemExit | Hang) -> None:
    """Tell of an ``error`` as a broken law, CRASH, where rules of the user's are under test; raise it where none are.

    The run ends with it. Such a rule may have raised it, or have answered what the model cannot take. Of a run that
    took too long the law is HANG, whosever rules it has.
    """
    if not (is_own(world.build.name) or isinstance(error, Hang)):
        raise error
    world.violations.append(crashed(error, world.workers[0].engine.iteration))
    course.crashed = True


def finish(world: World | Cluster, scenario: Scenario, build: str, course: Course) -> RunResult:
    """End a run of ``scenario``: its expectations on ``build``, then as :func:`gather`."""
    return gather(world, scenario.name, scenario.seed, course, scenario.expect.for_build(build))


def gather(world: World | Cluster, name: str, seed: int, course: Course, expected: Expectation) -> RunResult:
    """Evaluate the end-of-run laws and what was ``expected``, and gather the result."""
    missed: list[str] = []
    decisions = memory = "not computed (interrupted)"
    if not (course.interrupted or course.crashed):
        try:
            world.drain()
        except ENDS as error:
            note_crash(world, course, error)
    if course.crashed:
        decisions = memory = "not computed (crashed)"
        missed = [f"{world.violations[-1].code}: expected the run to come to its end"]
    elif not course.interrupted:
        decisions, memory = world.decision_digest(), world.memory_digest()
        codes = {violation.code for violation in world.violations}
        missed = expected.missed(world.records(), world.totals(), codes, _peaks(world), world.build.must_fire)
        missed += _unfinished(world, course, codes)
    records = world.records()
    return RunResult(
        scenario=name,
        build=world.build.name,
        seed=seed,
        check=world.check,
        config=world.config,
        acceptance=course.acceptance,
        acceptance_mode=course.acceptance_mode,
        records=[records[request_id] for request_id in sorted(records)],
        timings=course.timings,
        totals=world.totals(),
        occupancy=world.occupancy(),
        violations=list(world.violations),
        checked=dict(sorted(world.evaluations().items())),
        decision_digest=decisions,
        memory_digest=memory,
        missed=missed,
        notes=course.notes,
        duration_ns=course.duration_ns,
        device_busy_ns=course.device_busy_ns,
        interrupted=course.interrupted,
        ops=list(world.ops or ()),
        logs=[worker.log for worker in world.workers],
        clocks=course.clocks,
    )


def _peaks(world: World | Cluster) -> dict[str, int]:
    """Most pages in use at once by pool; of several workers under ``POOL@WORKER``, and the most under ``POOL``."""
    peaks: dict[str, int] = {}
    for use in world.occupancy():
        peaks[use.name] = use.peak
        pool = use.name.partition("@")[0]
        peaks[pool] = max(peaks.get(pool, 0), use.peak)
    return peaks


def _unfinished(world: World | Cluster, course: Course, codes: set[str]) -> list[str]:
    """A line if a served run ended with work left and no law said so."""
    left = world.unfinished()
    if not left or course.acceptance_mode == RECORDED or codes & {"PROGRESS", "RANK"}:
        return []
    first = min(left)
    return [
        f"{len(left)} requests: expected to finish, but nothing can run; the first is {first} in state {left[first]}"
    ]
