"""The event log: what the engine decided and what the memory did, as integers, with one digest for each.

A record is ``kind, number of fields, fields..``, all signed 64-bit little-endian integers. Decisions are ordered by
iteration, never by clock time. Digests are SHA-256 over the records; keeping the records is optional.
"""

from __future__ import annotations

import enum
import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.page_journal import PageJournal
    from model.pages import PagePool
    from model.plan import StepPlan
    from model.request import Request

_FLUSH = 1 << 15


class Kind(enum.IntEnum):
    """Record kinds; :data:`FIELDS` names their fields."""

    SUBMIT = 1
    CLAIM = 2
    CHUNK = 3
    STEP = 4
    SETTLE = 5
    FINISH = 6
    CANCEL = 7
    SUSPEND = 8
    PREEMPT = 9
    REFUSE = 10
    DEFER = 11
    ITERATION = 12
    SKIP = 13
    GRANT = 14
    COPY = 15
    MOVE = 16
    PUBLISH = 17
    BIND = 18
    UNBIND = 19
    RELEASE = 20
    EVICT = 21
    START = 22
    LAND = 23
    LOSE = 24
    SEND = 26
    ARRIVE = 27
    ABORT = 28
    DUMMY = 30
    PADDING = 31
    MEM_STEP = 32
    MEM_CHUNK = 33
    MEM_COPY = 34
    MEM_GRANT = 35
    MEM_MOVE = 36
    MEM_PUBLISH = 37
    MEM_BIND = 38
    MEM_RECEIVE = 44
    MEM_DUMMY = 48


FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.SUBMIT: ("request", "order", "prompt", "max_new_tokens"),
    Kind.CLAIM: ("request", "owner", "tokens", "fresh", "branch"),
    Kind.CHUNK: ("request", "slot", "start", "end", "last"),
    Kind.STEP: ("request", "slot", "width", "real_drafts"),
    Kind.SETTLE: ("request", "committed", "known"),
    Kind.FINISH: ("request", "output"),
    Kind.CANCEL: ("request",),
    Kind.SUSPEND: ("request",),
    Kind.PREEMPT: ("request", "context"),
    Kind.REFUSE: ("request", "cursor"),
    Kind.DEFER: ("request", "behind"),
    Kind.ITERATION: ("iteration", "chunks", "steps"),
    Kind.SKIP: ("iteration", "failed"),
    Kind.GRANT: ("pool", "owner", "slots.."),
    Kind.COPY: ("pool", "source", "target", "tokens"),
    Kind.MOVE: ("pool", "page", "source", "target"),
    Kind.PUBLISH: ("pool", "slot", "coverage", "owner", "column", "block"),
    Kind.BIND: ("slot", "owner", "length", "base", "draft_length"),
    Kind.UNBIND: ("slot",),
    Kind.RELEASE: ("owner",),
    Kind.EVICT: ("pool", "page.."),
    Kind.START: ("copy", "pool", "page", "source", "target"),
    Kind.LAND: ("copy",),
    Kind.LOSE: ("copy",),
    Kind.SEND: ("request", "owner", "position", "claim"),
    Kind.ARRIVE: ("request", "owner"),
    Kind.ABORT: ("request", "owner"),
    Kind.DUMMY: ("owner", "slot", "position"),
    Kind.PADDING: ("rows",),
    Kind.MEM_STEP: (
        "iteration",
        "owner",
        "position",
        "committed",
        "base",
        "draft_length",
        "slot",
        "tag",
        "draft_slot",
        "draft_tag",
    ),
    Kind.MEM_CHUNK: ("iteration", "owner", "start", "end", "base", "tag.."),
    Kind.MEM_COPY: ("iteration", "pool", "source", "target", "tokens", "tag"),
    Kind.MEM_GRANT: ("iteration", "pool", "owner", "slots.."),
    Kind.MEM_MOVE: ("iteration", "pool", "source", "target", "tag"),
    Kind.MEM_PUBLISH: ("iteration", "pool", "coverage", "tag", "slots.."),
    Kind.MEM_BIND: ("iteration", "slot", "owner", "length", "base", "draft_length"),
    Kind.MEM_RECEIVE: ("iteration", "pool", "owner", "begin", "tag", "slots.."),
    Kind.MEM_DUMMY: ("iteration", "owner", "position", "slots.."),
}


# Records that hold several rows: fields before the rows, fields of one row.
_ROWS: dict[Kind, tuple[int, int]] = {Kind.SETTLE: (0, 3), Kind.MEM_STEP: (1, 9)}


def rows_of(kind: Kind, values: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The rows of one record, each with the fields that :data:`FIELDS` names.

    Settles and memory steps are recorded a step at a time, publications a run of blocks at a time.
    """
    if kind is Kind.PUBLISH:
        pool, coverage, owner, column, block = values[:5]
        for place, slot in enumerate(values[5:]):
            yield (pool, slot, coverage, owner, column, block + place)
    elif kind in _ROWS:
        head, width = _ROWS[kind]
        for begin in range(head, len(values), width):
            yield values[:head] + values[begin : begin + width]
    else:
        yield values


class Channel:
    """One stream of records with its running digest."""

    def __init__(self, keep: bool) -> None:
        self.buffer = array("q")
        self.keep = keep
        self.kept: list[bytes] = []
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, record: tuple[int, ...]) -> None:
        """Append ``(kind, number of fields, fields..)``."""
        self.buffer.extend(record)
        self.count += 1
        if len(self.buffer) >= _FLUSH:
            self.flush()

    def add_long(self, kind: int, fields: list[int]) -> None:
        """Append one record of many ``fields``."""
        self.buffer.extend((kind, len(fields)))
        self.add_fields(fields)

    def add_fields(self, fields: list[int], records: int = 1) -> None:
        """Append whole ``records``, or the rest of one; a list is appended three times as fast as a tuple."""
        self.buffer.fromlist(fields)
        self.count += records
        if len(self.buffer) >= _FLUSH:
            self.flush()

    def add_bytes(self, data: bytes, records: int) -> None:
        """Append whole ``records`` as this machine writes their integers."""
        self.buffer.frombytes(data)
        self.count += records
        if len(self.buffer) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Hash what is buffered, and keep it if the log keeps records."""
        if sys.byteorder == "big":
            self.buffer.byteswap()
        data = self.buffer.tobytes()
        self._hash.update(data)
        if self.keep:
            self.kept.append(data)
        self.buffer = array("q")

    def digest(self) -> str:
        """SHA-256 of all records so far, as hex."""
        self.flush()
        return self._hash.hexdigest()

    def records(self, passed: int = 0) -> Iterator[tuple[Kind, tuple[int, ...]]]:
        """The kept records, oldest first, one for each row; not those of the first ``passed`` entries of ``kept``."""
        self.flush()
        for data in self.kept[passed:]:
            values = array("q")
            values.frombytes(data)
            if sys.byteorder == "big":
                values.byteswap()
            place = 0
            while place < len(values):
                count = values[place + 1]
                kind = Kind(values[place])
                for row in rows_of(kind, tuple(values[place + 2 : place + 2 + count])):
                    yield kind, row
                place += 2 + count


class EventLog:
    """Decisions and memory events of one world."""

    def __init__(self, keep: bool = False) -> None:
        self.decisions = Channel(keep)
        self.memory = Channel(keep)
        self.journal: PageJournal | None = None  # of the pages, where records are kept

    def note(self, kind: Kind, *fields: int) -> None:
        """Append a decision."""
        self.decisions.add((kind, len(fields), *fields))

    def submitted(self, request: Request, prompt: int) -> None:
        """A request was queued."""
        self.note(Kind.SUBMIT, request.request_id, request.order, prompt, request.spec.max_new_tokens)

    def claimed(self, request: Request) -> None:
        """A request was admitted with a claim."""
        claim = request.claim
        self.note(Kind.CLAIM, request.request_id, request.owner, claim.tokens, claim.fresh, claim.branch)

    def suspended(self, request: Request) -> None:
        """A request gave up its locks."""
        self.note(Kind.SUSPEND, request.request_id)

    def preempted(self, request: Request) -> None:
        """A request gave up its pages."""
        self.note(Kind.PREEMPT, request.request_id, request.context_length)

    def refused(self, request: Request) -> None:
        """A chunk found no pages."""
        self.note(Kind.REFUSE, request.request_id, request.cursor)

    def deferred(self, request: Request, behind: Request) -> None:
        """A request waits for the prefix that another one computes."""
        self.note(Kind.DEFER, request.request_id, behind.request_id)

    def evicted(self, pools: Iterable[PagePool]) -> None:
        """Pages that were lost since the last call, pool by pool in the order they went."""
        for pool in pools:
            if pool.lost:
                self.decisions.add((Kind.EVICT, 1 + len(pool.lost), pool.index, *pool.lost))
                pool.lost = array("i")

    def planned(self, plan: StepPlan) -> None:
        """An iteration was dispatched: its records, then its rows."""
        self.recorded(plan.records)
        add = self.decisions.add
        add((_ITERATION, 3, plan.iteration, len(plan.context), len(plan.generation)))
        for row in plan.context:
            add((_CHUNK, 5, row.request_id, row.slot, row.start, row.end, row.last))
        steps: list[int] = []
        for request_id, _, slot, width, real_drafts, _, _ in plan.generation:
            steps += (_STEP, 4, request_id, slot, width, real_drafts)
        self.decisions.add_fields(steps, len(plan.generation))
        for dummy in plan.dummies:
            add((Kind.DUMMY, 3, dummy.owner, dummy.slot, dummy.position))
        if plan.padding:
            add((Kind.PADDING, 1, plan.padding))
        if self.journal is not None:
            self.journal.look(plan.iteration)

    def recorded(self, records: list[tuple]) -> None:
        """Page-level records, in stream order."""
        add = self.decisions.add
        for record in records:
            kind = _RECORD_KINDS[record[0]]
            if kind is _GRANT:
                add((kind, 2 + len(record[2]), record[1], record[3], *record[2]))
            elif kind is _PUBLISH:
                _, pool, slots, coverage, owner, column, block = record
                add((kind, 5 + len(slots), pool, coverage, owner, column, block, *slots))
            elif kind is not None:
                add((kind, len(record) - 1, *record[1:]))


def named_fields(kind: Kind, values: tuple[int, ...]) -> dict[str, Any]:
    """Fields of one record by name."""
    names = FIELDS[kind]
    result: dict[str, Any] = {}
    for place, name in enumerate(names):
        if name.endswith(".."):
            result[name[:-2]] = list(values[place:])
            break
        result[name] = values[place]
    return result


# Bound once: a member access costs ten times as much.
_GRANT, _PUBLISH, _ITERATION, _CHUNK, _STEP = Kind.GRANT, Kind.PUBLISH, Kind.ITERATION, Kind.CHUNK, Kind.STEP
# Record codes of model.plan in order: GRANT, COPY, MOVE, PUBLISH, BIND, UNBIND, BEGIN, END, CLAIM, START.
_RECORD_KINDS = (Kind.GRANT, Kind.COPY, Kind.MOVE, Kind.PUBLISH, Kind.BIND, Kind.UNBIND, None, None, None, Kind.START)
