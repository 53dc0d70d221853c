"""A trace applied once more, with a look at every request after every op: what a story or a picture is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from model.builds import Build
from model.cluster import Cluster
from model.events import Kind, named_fields
from model.invariants import Violation
from model.ops import At, Op, Outcome, World
from model.request import WAITING, Request
from model.sequence import ACTIVE
from sim.crashes import ENDS, crashed, traceback_of
from sim.optrace import Trace


@dataclass(frozen=True, slots=True)
class Block:
    """One backed block of a lane: the slot that backs it, the request that the page was granted to, if known."""

    ordinal: int
    slot: int
    origin: int | None
    on_host: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """Pages of one lifecycle of one request after an op; positions in tokens.

    What is computed lies below ``frontier``, the history; the next query reads from ``window_from`` on, sinks aside.
    """

    name: str
    pool: str
    draft: bool
    frontier: int
    capacity: int
    committed: int
    window_from: int
    blocks: tuple[Block, ...]
    locked: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """One live request on one worker after an op."""

    worker: int
    request: int
    state: str
    cursor: int
    known: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Happening:
    """One decision that was logged with an op: its fields, pools by name, and the request that it is about."""

    worker: int
    request: int | None
    fields: dict[str, object]

    @property
    def kind(self) -> str:
        """The kind of the event, in lower case."""
        return str(self.fields["event"])


@dataclass(frozen=True, slots=True)
class Sample:
    """The world after one op. ``free`` counts device pages that nobody holds or caches, by pool (and worker).

    ``op`` is ``None`` for the end of the run, where the end-of-run laws are judged. ``traceback`` is that of the error
    with which the op ended, if any.
    """

    number: int
    op: At | Op | None
    outcome: Outcome
    iteration: int
    standings: tuple[Standing, ...]
    free: dict[str, int]
    happenings: tuple[Happening, ...]
    violations: tuple[Violation, ...]
    traceback: str = ""


@dataclass(slots=True)
class _Eye:
    """What is remembered of one worker between two looks."""

    world: World
    worker: int
    passed: int = 0
    granted: dict[tuple[int, int], int] = field(default_factory=dict)  # (pool, slot) -> owner of its tenancy
    owners: dict[int, int] = field(default_factory=dict)  # owner -> request

    def happenings(self) -> list[Happening]:
        """What was logged since the last look."""
        self.owners |= {owner: request.request_id for owner, request in self.world.engine.owners.items()}
        records = list(self.world.log.decisions.records(self.passed))
        self.passed = len(self.world.log.decisions.kept)
        for kind, values in records:
            if kind in (Kind.CLAIM, Kind.SEND):
                self.owners[values[1]] = values[0]
            if kind is Kind.GRANT:
                self.granted |= {(values[0], slot): values[1] for slot in values[2:]}
            elif kind is Kind.MOVE:
                self.granted[values[0], values[3]] = self.granted.get((values[0], values[2]), -1)
            elif kind is Kind.START:
                self.granted[values[1], values[4]] = self.granted.get((values[1], values[3]), -1)
        return [self._happening(kind, values) for kind, values in records]

    def _happening(self, kind: Kind, values: tuple[int, ...]) -> Happening:
        fields: dict[str, object] = {"event": kind.name.lower(), **named_fields(kind, values)}
        if "pool" in fields:
            fields["pool"] = list(self.world.engine.twin.pools)[int(str(fields["pool"]))]
        request = fields.get("request")
        if request is None and "owner" in fields:
            request = self.owners.get(int(str(fields["owner"])))
        return Happening(self.worker, None if request is None else int(str(request)), fields)

    def standings(self) -> Iterator[Standing]:
        """Every live request, in the order of arrival."""
        for request_id, request in self.world.engine.live.items():
            state = request.state.value
            yield Standing(
                self.worker, request_id, state, request.cursor, request.known_tokens(), tuple(self._lanes(request))
            )

    def _lanes(self, request: Request) -> Iterator[Lane]:
        twin = self.world.engine.twin
        for column in twin.columns:
            sequence = column.manager.sequences.get(request.owner)
            if sequence is None or (request.state is WAITING and not sequence.backed):
                continue
            table, pool, life = sequence.tables[column.column], column.pool, column.lifecycle
            places = [*enumerate(table.sinks), *enumerate(table.pages, table.base)]
            blocks = []
            for ordinal, page in places:
                slot = pool.slot[page]
                owner = self.granted.get((pool.index, slot))
                origin = None if owner is None else self.owners.get(owner)
                blocks.append(Block(ordinal, slot, origin, slot >= pool.device_pages))
            yield Lane(
                life.name,
                pool.name,
                column.draft,
                sequence.history,
                sequence.capacity,
                sequence.committed,
                life.read_from(sequence.history),
                tuple(blocks),
                sequence.status is ACTIVE,
            )


def samples(trace: Trace, build: Build, check: str = "exhaustive") -> Iterator[Sample]:
    """The world after each op of ``trace`` on ``build``, and after its end.

    Where the model or a rule raises an error, the sample of that op is the last one: it shows what was there before.
    """
    try:
        world = _open(trace, build, check)
    except ENDS as error:
        yield _crashed(None, 0, trace.ops[0] if trace.ops else None, error, ())
        return
    eyes = [_Eye(worker, place) for place, worker in enumerate(world.workers)]
    known = 0
    last: Sample | None = None
    for number, op in enumerate((*trace.ops, None)):
        try:
            if op is None:
                world.drain()
                outcome = Outcome(True)
            else:
                outcome = world.apply(op)
            last = _look(number, op, outcome, world, eyes, known)
        except ENDS as error:
            yield _crashed(last, number, op, error, tuple(world.violations[known:]))
            return
        yield last
        known = len(world.violations)


def _open(trace: Trace, build: Build, check: str) -> World | Cluster:
    if trace.workers is None:
        return World(trace.config, build, check=check, keep_events=True)
    return trace.workers.open(build, check=check, keep_events=True)


def _crashed(
    last: Sample | None, number: int, op: At | Op | None, error: BaseException, broken: tuple[Violation, ...]
) -> Sample:
    """The sample of an op that raised ``error``, over what was there before."""
    told = crashed(error, last.iteration if last is not None else 0)
    why, crash = told.message, (*broken, told)
    if last is None:
        return Sample(number, op, Outcome(False, why), 0, (), {}, (), crash, traceback_of(error))
    outcome, text = Outcome(False, why), traceback_of(error)
    return replace(last, number=number, op=op, outcome=outcome, happenings=(), violations=crash, traceback=text)


def _look(
    number: int, op: At | Op | None, outcome: Outcome, world: World | Cluster, eyes: list[_Eye], known: int
) -> Sample:
    several = len(eyes) > 1
    happenings = tuple(happening for eye in eyes for happening in eye.happenings())
    free = {
        f"{pool.name}@{eye.worker}" if several else pool.name: pool.free_count()
        for eye in eyes
        for pool in eye.world.engine.twin.pools.values()
    }
    worker = op.worker if isinstance(op, At) and 0 <= op.worker < len(eyes) else 0
    iteration = eyes[worker].world.engine.iteration
    return Sample(
        number,
        op,
        outcome,
        iteration,
        tuple(standing for eye in eyes for standing in eye.standings()),
        free,
        happenings,
        tuple(world.violations[known:]),
    )
