"""How the pages of a worker change from step to step: what its history says at any iteration, told by difference."""

from __future__ import annotations

import numpy as np

from reports.page.frames import Ints
from reports.page_history import PageHistory

_REQUEST, _BLOCK = 4, 5  # columns of the notes of a history
_NOBODY = -1


def changes_of(history: PageHistory, last: int) -> Ints:
    """A column for every page that an iteration up to ``last`` finds changed, in their order; int64 ``[6, changes]``.

    Rows: iteration, place of the pool, place of the state, request and block of the last grant or publication (-1: the
    page is free), page. A page of which nothing was told is free.
    """
    notes = history.notes[history.notes[:, 0] <= last]
    states = history.changes[history.changes[:, 0] <= last]
    width, pages = last + 1, max(history.pools.values(), default=0) + 1
    noted, changed = (((rows[:, 1] * pages) + rows[:, 2]) * width + rows[:, 0] for rows in (notes, states))
    keys = np.unique(np.concatenate((noted, changed)))
    spot, iteration = keys // width, keys % width
    state = _last(changed, states[:, 3], keys, width, 0)
    request, block = (_last(noted, notes[:, column], keys, width, _NOBODY) for column in (_REQUEST, _BLOCK))
    request[state == 0] = block[state == 0] = _NOBODY
    table = np.stack((iteration, spot // pages, state, request, block, spot % pages))
    fresh = np.append(True, (np.diff(table[1:], axis=1) != 0).any(axis=0))[: len(keys)]
    return table[:, fresh][:, np.argsort(iteration[fresh], kind="stable")]


def _last(made: Ints, values: Ints, keys: Ints, width: int, otherwise: int) -> Ints:
    """For each of ``keys`` (spot times width plus iteration) the last of ``values`` that its spot was given by then."""
    order = np.argsort(made, kind="stable")
    given = made[order]
    at = np.searchsorted(given, keys, side="right") - 1
    mine = at >= 0
    mine[mine] = given[at[mine]] // width == keys[mine] // width
    found = np.full(len(keys), otherwise, dtype=np.int64)
    found[mine] = values[order][at[mine]]
    return found
