"""What one iteration asks of a memory, and what comes back: records in stream order, rows, results.

Everything here is a decision; a memory resolves positions from its own slot lengths and tables. Page-level records
are tuples that start with a :class:`Record` code; the recorder gathers them in the order in which the device will
see them and the next plan carries them ahead of its rows.
"""

from __future__ import annotations

import enum
from array import array
from typing import TYPE_CHECKING, NamedTuple

from model.table import TableRow

if TYPE_CHECKING:
    from model.copies import CopyBook
    from model.page_journal import PageJournal
    from model.pages import PagePool
    from model.rules.device import DeviceRules


class Record(enum.IntEnum):
    """Kinds of stream records and the fields that follow the code."""

    GRANT = 0  # pool, slots (array of int), owner
    COPY = 1  # pool, source slot, target slot, tokens
    MOVE = 2  # pool, page, source slot, target slot
    PUBLISH = 3  # pool, slots (array of int) from ``block`` on, coverage of each, owner, column, block
    BIND = 4  # row slot, owner, target length, draft base page, draft length
    UNBIND = 5  # row slot
    BEGIN = 6  # owner, request, claim, root of its keys, tokens received (-1: prefilled here): its tokens become known
    END = 7  # owner
    CLAIM = 8  # owner, request, what an observer noted of its claim; only while laws are checked
    START = 9  # copy number, pool, page, source slot, target slot: a change of tier that takes time begins


# Plain integers for the hot paths: a member access costs ten times as much.
GRANT, COPY, MOVE, PUBLISH, BIND, UNBIND, BEGIN, END, CLAIM, START = (int(record) for record in Record)


class Recorder:
    """Collects stream records between two plans."""

    __slots__ = ("_next", "_open", "book", "journal", "records")

    def __init__(self, book: CopyBook | None = None) -> None:
        self.records: list[tuple] = []
        self.book = book  # of copies between tiers; None where they are done at once
        self.journal: PageJournal | None = None  # told of grants and publications, where a log is kept
        # Publications that may still grow: (pool, coverage, owner, column) -> slots, and the block that would follow.
        self._open: dict[tuple[int, int, int, int], array[int]] = {}
        self._next: dict[tuple[int, int, int, int], int] = {}

    def granted(self, pool: PagePool, pages: array[int], owner: int, column: int, block: int) -> None:
        """Pages start a new tenancy, as blocks from ``block`` on of a lifecycle: their old content is void."""
        self._open.clear()
        if self.journal is not None:
            self.journal.granted(pool.index, pages, owner, column, block)
        if pool.host_pages:
            pages = array("i", [pool.slot[page] for page in pages])
        if self.book is not None:
            self.book.named(pool.index, pages)
        self.records.append((GRANT, pool.index, pages, owner))

    def copied(self, pool: PagePool, source: int, target: int, tokens: int) -> None:
        """The first ``tokens`` cells of a page are copied to another page of the pool."""
        slots = pool.slot[source], pool.slot[target]
        if self.book is not None:
            self.book.named(pool.index, slots)
        self.records.append((COPY, pool.index, *slots, tokens))

    def moved(self, pool: PagePool, page: int, source: int, target: int) -> None:
        """A page changes tiers with its content: at once, or by a copy that begins here."""
        self._open.clear()
        if self.book is not None:
            copy = self.book.begin(pool.index, page, (source, target), target >= pool.device_pages)
            self.records.append((START, copy.number, pool.index, page, source, target))
            return
        self.records.append((MOVE, pool.index, page, source, target))

    def stored(self, pool: PagePool, page: int, source: int, target: int) -> None:
        """A page changes tiers; its content goes along to the host tier only."""
        if target >= pool.device_pages:
            self.moved(pool, page, source, target)

    def published(self, pool: PagePool, page: int, coverage: int, owner: int, column: int, block: int) -> None:
        """A page enters the prefix tree, covering the first ``coverage`` tokens of ``block``.

        Full pages of consecutive blocks share one record.
        """
        if self.journal is not None:
            self.journal.published(pool.index, page, coverage, owner, column, block)
        key = (pool.index, coverage, owner, column)
        slots = self._open.get(key)
        if slots is not None and self._next[key] == block:
            slots.append(pool.slot[page])
        else:
            slots = self._open[key] = array("i", (pool.slot[page],))
            self.records.append((PUBLISH, pool.index, slots, coverage, owner, column, block))
        self._next[key] = block + 1
        if self.book is not None:
            self.book.named(pool.index, (pool.slot[page],))

    def take(self) -> list[tuple]:
        """Hand over what was recorded and start anew."""
        records, self.records = self.records, []
        self._open.clear()
        return records


class ContextRow(NamedTuple):
    """One prompt chunk ``[start, end)`` of a request; ``last`` when it completes the context.

    ``drafts`` off: the drafter stores nothing of it. ``behind`` tokens of the context stand behind the chunk.
    """

    request_id: int
    owner: int
    slot: int
    start: int
    end: int
    last: bool
    tables: tuple[TableRow, ...]
    drafts: bool = True
    behind: int = 0


class GenerationRow(NamedTuple):
    """One generation step: verify ``width`` = 1 + K tokens from the slot's own length on.

    ``drafts`` off: a plain step of width 1, after which the drafter does not run.
    """

    request_id: int
    owner: int
    slot: int
    width: int
    real_drafts: bool
    tables: tuple[TableRow, ...]
    drafts: bool = True


class DummyRow(NamedTuple):
    """One generation row without a request: it verifies ``width`` tokens from ``position`` on."""

    request_id: int  # -1
    owner: int
    slot: int
    width: int
    position: int
    tables: tuple[TableRow, ...]


class StepPlan:
    """One iteration, with the ``device`` rules by which it is carried out.

    ``records`` come first in stream order, then the rows; nothing of it changes after dispatch. It may not settle
    before the copies that it ``waits`` for have ended.
    """

    __slots__ = (
        "context",
        "device",
        "dummies",
        "generation",
        "iteration",
        "padding",
        "prefill_tokens",
        "records",
        "waits",
    )

    def __init__(
        self,
        iteration: int,
        records: list[tuple],
        context: list[ContextRow],
        generation: list[GenerationRow],
        device: DeviceRules,
        waits: tuple[int, ...] = (),
    ) -> None:
        self.iteration = iteration
        self.records = records
        self.context = context
        self.generation = generation
        self.device = device
        self.waits = waits
        self.dummies: tuple[DummyRow, ...] = ()
        self.padding = 0  # rows behind the generation rows, up to the size of a captured graph
        self.prefill_tokens = sum(row.end - row.start for row in context)

    @property
    def context_rows(self) -> int:
        """Number of prompt chunks."""
        return len(self.context)

    def committed(self, accepted: tuple[int, ...]) -> tuple[int, ...]:
        """Counts for the generation rows as they can be: 1 without real drafts, else 1 .. the row's width."""
        return tuple(
            [
                (1 if count < 1 else count if count <= width else width) if real_drafts else 1
                for count, (_, _, _, width, real_drafts, _, _) in zip(accepted, self.generation, strict=True)
            ]
        )

    @property
    def generation_rows(self) -> list[GenerationRow]:
        """The generation rows, in the order in which a settle gives their accepted counts."""
        return self.generation


class SettledRow(NamedTuple):
    """What a settled step did to one request."""

    request_id: int
    tokens: int
    first: bool
    finished: bool
    drafted: bool
