"""What every page of one worker held, iteration by iteration: the journal of pages read back."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from model.eviction import DROPPABLE, FREE
from model.page_journal import CACHED, COUNT_FIELDS, NOTE_FIELDS, ON_HOST, STATE, PageJournal, PoolJournal
from reports.course_spans import NOBODY, OwnerOf
from reports.decisions import Ints

PAGE_STATES = ("free", "held", "published", "reusable", "host")


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


class PageHistory:
    """The pages of one worker. ``requests`` says whose request an owner is."""

    def __init__(self, journal: PageJournal, worker: int, requests: dict[int, int]) -> None:
        self.worker, self.requests = worker, requests
        self.looks: Ints = np.array(journal.iterations, dtype=np.int64)
        self._notes: Ints = np.array(journal.notes, dtype=np.int64).reshape(-1, len(NOTE_FIELDS))
        self._noted: Ints = np.array(journal.noted, dtype=np.int64)
        self._pools = [_PoolHistory(pool) for pool in journal.pools]
        self._counts = np.array(journal.counts, dtype=np.int64).reshape(-1, len(self._pools), len(COUNT_FIELDS))

    @cached_property
    def _request_of(self) -> Ints:
        """Request by owner; the last entry, which -1 finds, is nobody's."""
        last = max(int(self._notes[:, 2].max(initial=0)), *self.requests, 0)
        table = np.full(last + 2, NOBODY, dtype=np.int64)
        table[list(self.requests)] = list(self.requests.values())
        return table

    def owner_of(self) -> OwnerOf:
        """Who was granted which page when."""
        look = np.searchsorted(self._noted, np.arange(len(self._notes)), side="right")
        after = self.looks[-1:] + 1  # what was noted behind the last look
        return OwnerOf(self._notes[:, :3], np.append(self.looks, after)[look])

    def occupancy(self) -> pd.DataFrame:
        """Pages of each pool by state at every look."""
        pools = len(self._pools)
        columns = {"iteration": np.repeat(self.looks, pools), "worker": self.worker}
        names = pd.Categorical.from_codes(
            np.tile(np.arange(pools), len(self.looks)), categories=[pool.name for pool in self._pools]
        )
        counts = self._counts.reshape(-1, len(COUNT_FIELDS))
        return pd.DataFrame(
            columns | {"pool": names} | {name: counts[:, place] for place, name in enumerate(COUNT_FIELDS)}
        ).astype({"pool": str})

    def at(self, iteration: int) -> pd.DataFrame:
        """The rows of :meth:`reports.course.Course.page_map` of this worker."""
        look = int(np.searchsorted(self.looks, iteration, side="right")) - 1
        notes = self._notes[: self._noted[look] if look >= 0 else 0]
        return pd.concat([self._pool(place, look, notes) for place in range(len(self._pools))], ignore_index=True)

    def _pool(self, place: int, look: int, notes: Ints) -> pd.DataFrame:
        pool = self._pools[place]
        told = np.tile(np.array([NOBODY, -1, -1, 0]), (pool.total, 1))  # owner, column, block, coverage
        mine = notes[notes[:, 0] == place]
        told[mine[:, 1]] = mine[:, 2:]  # of several notes of one page the last one counts
        code = pool.at(look)
        told[code & STATE == FREE] = (NOBODY, -1, -1, 0)
        return pd.DataFrame(
            {
                "worker": self.worker,
                "pool": pool.name,
                "page": np.arange(pool.total),
                "owner": told[:, 0],
                "request": self._request_of[told[:, 0]],
                "block": told[:, 2],
                "column": told[:, 1],
                "coverage": np.where(code & CACHED, told[:, 3], 0),
                "state": pd.Categorical.from_codes(_STATES[code], categories=list(PAGE_STATES)),
            }
        )


class _PoolHistory:
    """Changes of the pages of one pool as arrays."""

    def __init__(self, journal: PoolJournal) -> None:
        self.name, self.total = journal.name, journal.device_pages + journal.host_pages
        self._pages = np.array(journal.pages, dtype=np.int32)
        self._codes = np.frombuffer(bytes(journal.codes), dtype=np.uint8)
        self._ends: Ints = np.array(journal.ends, dtype=np.int64)

    def at(self, look: int) -> np.ndarray:
        """Code of every page at a look, uint8 ``[total]``; all are free ahead of the first one."""
        code = np.zeros(self.total, dtype=np.uint8)
        if look >= 0:
            end = self._ends[look]
            code[self._pages[:end]] = self._codes[:end]
        return code
