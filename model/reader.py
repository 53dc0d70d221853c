"""What a memory knows of one request, and the values that a cell holds besides content tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.table import TableRow
from model.tokens import TokenStream

if TYPE_CHECKING:
    from model.request import Request
    from model.rules.claim import Claim

UNWRITTEN = 0xBAD0_0000_0000_0001
PROVISIONAL = 0xBAD0_0000_0000_0002
MASKED = 0xBAD0_0000_0000_0003
DUMMY = 0xBAD0_0000_0000_0004
SENTINELS = {UNWRITTEN: "unwritten", PROVISIONAL: "provisional", MASKED: "masked", DUMMY: "dummy"}
GUARD = -1  # slot of an entry that nothing backs
LOGGED = (1 << 63) - 1  # bits of a cell that a log record keeps


class Reader:
    """What the memory knows of one request: its tokens' tags per column, and what of its pages it verified."""

    __slots__ = (
        "begun",
        "checked_from",
        "draft_final",
        "drafted",
        "flushed",
        "invalid_below",
        "lag",
        "owner",
        "pending",
        "request_id",
        "room",
        "seeds",
        "seen_rows",
        "seen_versions",
        "slot",
        "space",
        "stream",
        "tables",
        "tags",
        "taken",
        "views",
    )

    def __init__(
        self, request: Request, owner: int, claim: Claim, space: int, tags: list[NDArray[np.uint64]], seeds: list[int]
    ) -> None:
        assert request.stream is not None
        self.owner = owner
        self.request_id = request.request_id
        self.space = space  # root of its keys: scope and kind
        self.stream: TokenStream = request.stream
        self.tags = tags  # per column, [cells]
        self.seeds = seeds  # per column, of its tags
        self.views = [memoryview(column) for column in tags]
        self.draft_final = 0 if claim.fresh else claim.tokens  # drafter cells final below this
        self.begun = -1  # where its first chunk began, for the drafter
        self.invalid_below = [0] * len(tags)  # per column, positions below were found wrong
        self.checked_from = [claim.tokens] * len(tags)  # cells from here on were verified or written by itself
        self.pending = True  # the next generation row has to look at its whole range
        self.tables: tuple[TableRow, ...] = ()  # rows that were verified last, as one object
        self.room = -1  # target positions up to which steps need nothing but their lengths moved
        self.flushed = 0  # target cells below are in memory; those up to the slot's length are deferred
        self.slot = -1
        self.taken = 0  # tokens that the last deferred step committed
        self.lag = 0  # how far the drafter's slot trails the request
        self.drafted = -1  # context length at the last drafter pass
        self.seen_rows: list[TableRow | None] = [None] * len(tags)
        self.seen_versions: list[bytes] = [b""] * len(tags)


def vouched_cells(
    reader: Reader | None, count: int, coverage: int, span: int, begin: int, page: int
) -> NDArray[np.int32]:
    """Cells of each of ``count`` published pages from position ``begin`` on that the key speaks for; ``[count]``."""
    return vouched_tokens(None if reader is None else reader.stream.prompt_length, count, coverage, span, begin, page)


def vouched_tokens(
    prompt: int | None, count: int, coverage: int, span: int, begin: int, page: int
) -> NDArray[np.int32]:
    """The same for a prompt of so many tokens (``None``: nobody knows it), ``[count]``.

    Not those that depend on ``span`` tokens behind the prompt.
    """
    vouched = np.full(count, coverage, dtype=np.int32)
    if prompt is None or not span:
        return vouched
    ends = prompt - span - begin - np.arange(count, dtype=np.int32) * page
    return np.clip(vouched, 0, np.maximum(ends, 0))
