"""One scenario on one build, from its first request to the end-of-run laws."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from simpy import Environment

from model.builds import Build
from model.ops import Dispatch, Fail, Op, World
from scenarios.errors import FieldError
from scenarios.expect import Expectation
from scenarios.schema import Scenario
from scenarios.workload import Workload
from sim.acceptance import Acceptance
from sim.clients import Clients
from sim.cost import CostProfile
from sim.disturbances import Disturbances
from sim.feasible import refuse_impossible
from sim.optrace import load_trace
from sim.result import RunResult
from sim.server import Server
from sim.settings import acceptance_model, cost_profile
from sim.ticket import RequestTiming, Ticket

RECORDED = "recorded"  # acceptance mode of a replay: the counts came with the ops
Progress = Callable[[int, int], None]  # requests (or ops) done, in all


@dataclass(slots=True)
class Course:
    """How a run went, apart from what the world itself keeps."""

    acceptance: str
    acceptance_mode: str
    timings: list[RequestTiming] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    duration_ns: int = 0
    device_busy_ns: int = 0
    interrupted: bool = False


def run_scenario(
    scenario: Scenario,
    build: Build,
    *,
    check: str = "incremental",
    keep_events: bool = False,
    record_ops: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Run ``scenario`` on ``build`` and check its expectations.

    A workload runs under the simulated clock, a scenario of ops is applied as it stands. ``check`` is ``off``,
    ``incremental`` or ``exhaustive``; ``keep_events`` and ``record_ops`` keep the event log and the ops in the result;
    ``progress`` is told each request (op) that is done. Ctrl-C ends the run early: the result says so and holds what
    was found. Raises InputError, before anything runs, for settings or a trace that cannot be used and for a request
    that can never be served.
    """
    config = scenario.engine_config(build)
    source = _source(scenario)
    world = World(config, build, check=check, keep_events=keep_events, record_ops=record_ops)
    if not isinstance(source, Workload):
        return finish(world, scenario, build.name, check, apply_ops(world, source, progress))
    try:
        acceptance = acceptance_model(scenario.acceptance, scenario.seed, config.drafter.drafts)
        cost = cost_profile(scenario.cost, scenario.folder)
        if check == "off" and acceptance.reads_coverage:
            problem = "expected a model that does not read the drafter's window, since check off keeps no memory of it"
            raise FieldError(("acceptance", "coverage"), problem)
        refuse_impossible(world.engine, source)
    except FieldError as error:
        raise scenario.located(error) from error
    return finish(world, scenario, build.name, check, _serve(scenario, world, source, acceptance, cost, progress))


def _source(scenario: Scenario) -> Workload | Sequence[Op]:
    """What the scenario puts in: a workload, or ops from its own list or from a trace."""
    ops = scenario.ops()
    if ops is not None:
        return ops
    path = scenario.trace_path()
    return scenario.workload() if path is None else load_trace(path).ops


def _serve(
    scenario: Scenario,
    world: World,
    workload: Workload,
    acceptance: Acceptance,
    cost: CostProfile,
    progress: Progress | None,
) -> Course:
    """Serve ``workload`` under the clock until nothing can happen any more."""
    env = Environment(initial_time=0)
    disturbances = Disturbances(scenario.disturbances)
    course = Course(acceptance.describe(), acceptance.mode)
    done, total = 0, workload.requests

    def ended(ticket: Ticket) -> None:
        nonlocal done
        done += 1
        course.duration_ns = ticket.finish_ns
        course.device_busy_ns = server.busy_ns()
        if ticket.refused:
            course.notes.append(f"request {ticket.request_id}: refused, {ticket.refused}")
        if progress is not None:
            progress(done, total)

    server = Server(env, world, cost, acceptance, disturbances.before, ended)
    if world.engine.twin.unpaired_note:
        course.notes.append(world.engine.twin.unpaired_note)
    disturbances.attach(env, server)
    Clients(env, server, workload, scenario.seed)
    env.process(server.run())
    try:
        with _rare_collections():
            env.run()
    except KeyboardInterrupt:
        course.interrupted = True
        course.duration_ns = int(env.now)
        course.device_busy_ns = server.busy_ns()
    else:
        disturbances.close(server.iteration)
    course.notes.extend(disturbances.notes)
    course.timings = [server.tickets[request_id].timing() for request_id in sorted(server.tickets)]
    return course


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the garbage collector look less often: a run keeps very many tree nodes alive (7 % of a long trace)."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def apply_ops(world: World, ops: Sequence[Op], progress: Progress | None = None) -> Course:
    """Apply ``ops`` as they stand; those that are illegal are skipped and noted in one line.

    A dispatch that finds nothing to schedule is legal: a served run has them too.
    """
    course = Course("counts as recorded in the ops", RECORDED)
    skipped: list[str] = []
    try:
        for place, op in enumerate(ops):
            outcome = world.apply(op)
            if not outcome.applied and not _idle_pass(world, op):
                skipped.append(f"op {place} ({type(op).__name__.lower()}): {outcome.why}")
            if progress is not None:
                progress(place + 1, len(ops))
    except KeyboardInterrupt:
        course.interrupted = True
    if skipped:
        count = "1 op was" if len(skipped) == 1 else f"{len(skipped)} ops were"
        course.notes.append(f"{count} not applied, the first: {skipped[0]}")
    return course


def _idle_pass(world: World, op: Op) -> bool:
    """Whether ``op``, which did nothing, was a pass that could be made and found nothing to schedule."""
    engine = world.engine
    room = engine.in_flight <= world.config.limits.run_ahead
    return isinstance(op, Dispatch | Fail) and room and engine.has_work()


def finish(world: World, scenario: Scenario, build: str, check: str, course: Course) -> RunResult:
    """End a run of ``scenario``: its expectations on ``build``, then as :func:`gather`."""
    return gather(world, scenario.name, scenario.seed, course, scenario.expect.for_build(build))


def gather(world: World, name: str, seed: int, course: Course, expected: Expectation) -> RunResult:
    """Evaluate the end-of-run laws and what was ``expected``, and gather the result."""
    engine = world.engine
    missed: list[str] = []
    decisions = memory = "not computed (interrupted)"
    if not course.interrupted:
        world.drain()
        decisions, memory = world.decision_digest(), world.memory_digest()
        codes = {violation.code for violation in world.violations}
        peaks = {pool.name: pool.peak for pool in engine.occupancy()}
        missed = expected.missed(engine.records, engine.totals, codes, peaks, world.build.must_fire)
        missed += _unfinished(world, course, codes)
    return RunResult(
        scenario=name,
        build=world.build.name,
        seed=seed,
        check=world.check,
        config=world.config,
        acceptance=course.acceptance,
        acceptance_mode=course.acceptance_mode,
        records=[engine.records[request_id] for request_id in sorted(engine.records)],
        timings=course.timings,
        totals=engine.totals,
        occupancy=engine.occupancy(),
        violations=list(world.violations),
        checked=dict(sorted(world.docket.evaluations.items())),
        decision_digest=decisions,
        memory_digest=memory,
        missed=missed,
        notes=course.notes,
        duration_ns=course.duration_ns,
        device_busy_ns=course.device_busy_ns,
        interrupted=course.interrupted,
        ops=list(world.ops or ()),
        log=world.log,
    )


def _unfinished(world: World, course: Course, codes: set[str]) -> list[str]:
    """A line if a served run ended with work left and no law said so."""
    left = sorted(world.engine.live)
    if not left or course.acceptance_mode == RECORDED or "PROGRESS" in codes:
        return []
    state = world.engine.live[left[0]].state.value
    return [f"{len(left)} requests: expected to finish, but nothing can run; the first is {left[0]} in state {state}"]
