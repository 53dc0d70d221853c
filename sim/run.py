"""One scenario on one build, from its first request to the end-of-run laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simpy import Environment

from model.builds import Build
from model.cluster import Cluster
from model.ops import At, Dispatch, Fail, Op, Settle, Submit, World
from scenarios.errors import FieldError
from scenarios.schema import Scenario
from scenarios.workers_schema import Disaggregated
from scenarios.workload import Workload
from sim.acceptance import Acceptance
from sim.clients import Clients
from sim.cost import CostProfile
from sim.crashes import ENDS
from sim.disturbances import Disturbances
from sim.feasible import refuse_impossible
from sim.garbage import rare_collections
from sim.gathering import MEASURED, RECORDED, Course, finish, note_crash
from sim.link import HostLink
from sim.optrace import load_trace
from sim.pair import PairServer
from sim.result import RunResult
from sim.server import Measured
from sim.servers import server_of
from sim.settings import acceptance_model, cost_profile, link_profile
from sim.ticket import Ticket

Progress = Callable[[int, int], None]  # requests (or ops) done, in all
Opened = Callable[[World | Cluster], None]  # sees the world before its first op


def run_scenario(
    scenario: Scenario,
    build: Build,
    *,
    check: str = "incremental",
    keep_events: bool = False,
    record_ops: bool = False,
    progress: Progress | None = None,
    opened: Opened | None = None,
    measured: Measured | None = None,
    world: World | Cluster | None = None,
) -> RunResult:
    """Run ``scenario`` on ``build`` and check its expectations.

    A workload runs under the simulated clock, a scenario of ops is applied as it stands. ``check`` is ``off``,
    ``incremental`` or ``exhaustive``; ``keep_events`` and ``record_ops`` keep the event log and the ops in the result;
    ``progress`` is told each request (op) that is done, ``opened`` sees the world before anything runs. With
    ``measured`` a device's counts replace the scenario's. ``world``, before its first op and on ``build``, runs the
    scenario instead of one of its own. Ctrl-C ends the run early: the result says so and holds what was found. Raises
    InputError, before anything runs, for settings or a trace that cannot be used and for a request that can never be
    served.
    """
    config = scenario.engine_config(build)
    source = _source(scenario)
    topology = scenario.topology(build) if world is None else None
    if topology is not None:
        world = topology.open(build, check=check, keep_events=keep_events, record_ops=record_ops)
    elif world is None:
        world = World(config, build, check=check, keep_events=keep_events, record_ops=record_ops)
    if opened is not None:
        opened(world)
    if not isinstance(source, Workload):
        return finish(world, scenario, build.name, apply_ops(world, source, progress, measured))
    try:
        acceptance = acceptance_model(scenario.acceptance, scenario.seed, config.drafter.drafts, scenario.folder)
        cost = cost_profile(scenario.cost, scenario.folder)
        if check == "off" and acceptance.reads_coverage and measured is None:
            problem = "expected a model that does not read the drafter's window, since check off keeps no memory of it"
            raise FieldError(("acceptance", scenario.acceptance.mode), problem)
        refuse_impossible(world, source)
    except FieldError as error:
        raise scenario.located(error) from error
    return finish(world, scenario, build.name, _serve(scenario, world, source, (acceptance, measured), cost, progress))


def _source(scenario: Scenario) -> Workload | Sequence[At | Op]:
    """What the scenario puts in: a workload, or ops from its own list or from a trace."""
    ops = scenario.ops()
    if ops is not None:
        return ops
    path = scenario.trace_path()
    return scenario.workload() if path is None else load_trace(path).ops


def _serve(
    scenario: Scenario,
    world: World | Cluster,
    workload: Workload,
    counts: tuple[Acceptance, Measured | None],
    cost: CostProfile,
    progress: Progress | None,
) -> Course:
    """Serve ``workload`` under the clock until nothing can happen any more."""
    env = Environment(initial_time=0)
    disturbances = Disturbances(scenario.disturbances)
    acceptance, measured = counts
    course = Course(acceptance.describe(), acceptance.mode)
    if measured is not None:
        course = Course("what target and drafter agreed on", MEASURED)
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

    server = server_of(world)(env, world, cost, acceptance, disturbances.before, ended)
    server.measured = measured
    server.route(workload)
    if isinstance(server, PairServer) and isinstance(scenario.workers, Disaggregated):
        server.connect(scenario.workers.link, scenario.seed)
    link = link_profile(scenario.host_link)
    if link is not None and isinstance(world, World):
        server.host_link = HostLink(env, world, link, scenario.seed, server.mark)
    course.notes += world.notes
    disturbances.attach(env, server)
    Clients(env, server, workload, scenario.seed)
    env.process(server.run())
    try:
        with rare_collections():
            env.run()
    except KeyboardInterrupt:
        course.interrupted = True
        course.duration_ns = int(env.now)
        course.device_busy_ns = server.busy_ns()
    except ENDS as error:
        note_crash(world, course, error)
        course.duration_ns = int(env.now)
    else:
        disturbances.close(server.iteration)
    course.notes.extend(disturbances.notes)
    course.clocks = server.clocks
    course.timings = [server.tickets[request_id].timing() for request_id in sorted(server.tickets)]
    return course


def apply_ops(
    world: World | Cluster,
    ops: Sequence[At | Op],
    progress: Progress | None = None,
    measured: Measured | None = None,
) -> Course:
    """Apply ``ops`` as they stand; those that are illegal are skipped and noted in one line.

    A dispatch that finds nothing to schedule is legal: a served run has them too. With ``measured`` a settle that has
    a count for each row brings what a device committed instead.
    """
    course = Course("counts as recorded in the ops", RECORDED)
    skipped: list[str] = []
    try:
        for place, op in enumerate(ops):
            outcome = world.apply(op if measured is None else _as_measured(world, op, measured))
            if not outcome.applied and not _idle_pass(world, op):
                skipped.append(f"op {place} ({name_of(op)}): {outcome.why}")
            if progress is not None:
                progress(place + 1, len(ops))
    except KeyboardInterrupt:
        course.interrupted = True
    except ENDS as error:
        note_crash(world, course, error)
    if skipped:
        count = "1 op was" if len(skipped) == 1 else f"{len(skipped)} ops were"
        course.notes.append(f"{count} not applied, the first: {skipped[0]}")
    return course


def _as_measured(world: World | Cluster, op: At | Op, measured: Measured) -> At | Op:
    """A submission in a device's words; a settle that fits the oldest step in flight, with its counts; any other op as
    it stands."""
    worker, inner = (op.worker, op.op) if isinstance(op, At) else (0, op)
    if isinstance(inner, Submit):
        submit = Submit(measured.told(inner.spec))
        return At(worker, submit) if isinstance(op, At) else submit
    if not isinstance(inner, Settle) or not 0 <= worker < len(world.workers):
        return op
    plans = world.workers[worker].engine.plans
    if not plans or len(plans[0].generation) != len(inner.accepted):
        return op
    settle = Settle(measured.counts(worker, plans[0]))
    return At(worker, settle) if isinstance(op, At) else settle


def name_of(op: At | Op) -> str:
    """The kind of an op in lower case, and its worker where it has one."""
    if isinstance(op, At):
        return f"{name_of(op.op)} at worker {op.worker}"
    return type(op).__name__.lower()


def _idle_pass(world: World | Cluster, op: At | Op) -> bool:
    """Whether ``op``, which did nothing, was a pass that could be made and found nothing to schedule."""
    if isinstance(op, At):
        return 0 <= op.worker < len(world.workers) and _idle_pass(world.workers[op.worker], op.op)
    room = world.in_flight <= world.config.limits.run_ahead
    return isinstance(op, Dispatch | Fail) and room and world.has_work()
