"""What every page of one worker held, iteration by iteration: the journal of pages as tables, and read at any step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from model.eviction import DROPPABLE, FREE
from model.page_journal import CACHED, COUNT_FIELDS, NOTE_FIELDS, ON_HOST, STATE, PageJournal
from reports.course_spans import NOBODY, OwnerOf
from reports.decisions import Ints

PAGE_STATES = ("free", "held", "published", "reusable", "host")
NOTE_COLUMNS = ("owner", "request", "block", "column", "coverage")
_ROWS_OF_A_SNAPSHOT = 1 << 18
_NOTHING = (NOBODY, NOBODY, -1, -1, 0)


def _state(code: int) -> int:
    """The state in :data:`PAGE_STATES` that a code of the journal means."""
    if code & STATE == FREE:
        return 0
    if code & ON_HOST:
        return 4
    if code & STATE == DROPPABLE:
        return 3
    return 2 if code & CACHED else 1


_STATES = np.array([_state(code) for code in range(STATE + CACHED + ON_HOST + 1)], dtype=np.int8)


class _Snapshot(NamedTuple):
    """All pages after so many rows of notes and of changes: the last :data:`NOTE_COLUMNS` of each, its state and
    whether it is cached."""

    notes: int
    changes: int
    told: Ints
    standing: Ints


class PageHistory:
    """The pages of one worker; ``pools`` has the number of pages, host tier included, by name.

    ``notes`` has a row for each grant (coverage 0) and publication: iteration, place of the pool, page and
    :data:`NOTE_COLUMNS`. ``changes`` has a row whenever a page was found in another state: iteration, place of the
    pool, page, place in :data:`PAGE_STATES`, 1 where the prefix tree has it. Both are ordered by iteration.
    """

    def __init__(self, worker: int, pools: Mapping[str, int], notes: Ints, changes: Ints) -> None:
        self.worker, self.pools, self.notes, self.changes = worker, dict(pools), notes, changes
        sizes = list(self.pools.values())
        self._base = np.cumsum([0, *sizes])  # number of the first page of each pool, counted through all pools
        self._pool_of = np.repeat(np.array(list(self.pools), dtype=object), sizes)
        self._page = np.concatenate([np.arange(size) for size in sizes])
        nothing = np.tile(np.array(_NOTHING), (len(self._page), 1))
        self._snapshots = [_Snapshot(0, 0, nothing, np.zeros((len(self._page), 2), dtype=np.int64))]
        for iteration in changes[_ROWS_OF_A_SNAPSHOT::_ROWS_OF_A_SNAPSHOT, 0].tolist():
            self._snapshots.append(self._advanced(self._snapshots[-1], *self._rows_by(iteration)))

    def _rows_by(self, iteration: int) -> tuple[int, int]:
        """How many rows of notes and of changes there are by an iteration."""
        notes, changes = (np.searchsorted(rows[:, 0], iteration, side="right") for rows in (self.notes, self.changes))
        return int(notes), int(changes)

    def _advanced(self, since: _Snapshot, notes: int, changes: int) -> _Snapshot:
        """The pages after so many notes and changes."""
        told, standing = since.told.copy(), since.standing.copy()
        new = self.notes[since.notes : notes]
        told[self._base[new[:, 1]] + new[:, 2]] = new[:, 3:]  # of several rows of one page the last one counts
        new = self.changes[since.changes : changes]
        standing[self._base[new[:, 1]] + new[:, 2]] = new[:, 3:]
        return _Snapshot(notes, changes, told, standing)

    def at(self, iteration: int) -> pd.DataFrame:
        """The rows of :meth:`reports.course.Course.page_map` of this worker."""
        notes, changes = self._rows_by(iteration)
        since = next(one for one in reversed(self._snapshots) if one.changes <= changes)
        found = self._advanced(since, notes, changes)
        state, cached = found.standing.T
        found.told[state == 0] = _NOTHING
        owner, request, block, column, coverage = found.told.T
        return pd.DataFrame(
            {
                "worker": self.worker,
                "pool": self._pool_of,
                "page": self._page,
                "owner": owner,
                "request": request,
                "block": block,
                "column": column,
                "coverage": np.where(cached, coverage, 0),
                "state": pd.Categorical.from_codes(state.astype(np.int8), categories=list(PAGE_STATES)),
            }
        )


def history_of(journal: PageJournal, worker: int, requests: Mapping[int, int]) -> PageHistory:
    """The history that a journal kept; ``requests`` says whose request an owner is."""
    pools = {pool.name: pool.device_pages + pool.host_pages for pool in journal.pools}
    looks = _looks(journal)
    pool, page, owner, column, block, coverage = _rows(journal).T
    made = looks[np.searchsorted(np.array(journal.noted), np.arange(len(owner)), side="right")]
    request = _looked_up(requests, owner)
    notes = np.stack([made, pool, page, owner, request, block, column, coverage], axis=1)
    parts = [_changes(place, looks, *one) for place, one in enumerate(_changed(journal))]
    changes = np.concatenate(parts) if parts else np.empty((0, 5), dtype=np.int64)
    return PageHistory(worker, pools, notes, changes[np.argsort(changes[:, 0], kind="stable")])


def owner_of(history: PageHistory) -> OwnerOf:
    """Who was granted which page when."""
    iteration, pool, page, owner = history.notes[:, :4].T
    return OwnerOf(np.stack([pool, page, owner], axis=1), iteration)


def occupancy_of(journal: PageJournal, worker: int) -> pd.DataFrame:
    """Pages of each pool by state at every look of a journal: iteration, worker, pool and the counts."""
    names = np.array([pool.name for pool in journal.pools], dtype=object)
    counts = np.array(journal.counts, dtype=np.int64).reshape(-1, len(COUNT_FIELDS))
    looks = np.array(journal.iterations, dtype=np.int64)
    columns = {"iteration": np.repeat(looks, len(names)), "worker": worker, "pool": np.tile(names, len(looks))}
    counted = {name: counts[:, place] for place, name in enumerate(COUNT_FIELDS)}
    return pd.DataFrame(columns | counted).astype({"pool": str})


def _looks(journal: PageJournal) -> Ints:
    """Iteration of each look, and one for what was noted behind the last."""
    looks = np.array(journal.iterations, dtype=np.int64)
    return np.append(looks, looks[-1:].sum() + 1)


def _rows(journal: PageJournal) -> Ints:
    return np.array(journal.notes, dtype=np.int64).reshape(-1, len(NOTE_FIELDS))


def _looked_up(requests: Mapping[int, int], owners: Ints) -> Ints:
    table = np.full(max(int(owners.max(initial=0)), *requests, 0) + 1, NOBODY, dtype=np.int64)
    table[list(requests)] = list(requests.values())
    return table[owners]


def _changed(journal: PageJournal) -> list[tuple[Ints, Ints, NDArray[np.uint8]]]:
    """Of each pool: how many changes came by each look, their pages, their codes."""
    return [
        (
            np.array(pool.ends, dtype=np.int64),
            np.array(pool.pages, dtype=np.int64),
            np.frombuffer(bytes(pool.codes), dtype=np.uint8),
        )
        for pool in journal.pools
    ]


def _changes(place: int, looks: Ints, ends: Ints, pages: Ints, codes: NDArray[np.uint8]) -> Ints:
    found = looks[np.searchsorted(ends, np.arange(len(pages)), side="right")]
    cached = (codes & CACHED > 0).astype(np.int64)
    return np.stack([found, np.full(len(pages), place), pages, _STATES[codes].astype(np.int64), cached], axis=1)
