"""Rules that the device carries out: a member of a frozen enum travels with the plan, each memory implements all."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from model.rules.lookahead import Lookahead


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """The answers that a memory carries out; every plan brings them along."""

    lookahead: Lookahead
    extent: Extent
    unbacked: Unbacked
    provisional: Provisional
    table: TableUpload
    rebase: Rebase
    addressing: Addressing
    trim: Trim
    padding: Padding

    @property
    def plain(self) -> bool:
        """Whether the cells of a step can be told from lengths and tables alone, however late they are looked at."""
        return (
            self.provisional is Provisional.REWRITTEN
            and self.extent is Extent.LAST_BACKED
            and self.rebase is Rebase.BOTH
            and self.addressing is Addressing.TABLE
            and self.trim is Trim.ACCEPTED
        )


class Extent(enum.Enum):
    """Rule *extent*: how far a row may be addressed."""

    LAST_BACKED = "one past the last backed entry"
    COUNT = "count of backed entries"


class Unbacked(enum.Enum):
    """Rule *unbacked*: what an entry that no page backs resolves to."""

    GUARD = "guard page"
    PAGE_ZERO = "physical page 0"


class Provisional(enum.Enum):
    """Rule *provisional*: what becomes of draft-time cells of accepted tokens."""

    REWRITTEN = "rewritten from verified states"
    KEPT = "left as the draft pass wrote them"


class TableUpload(enum.Enum):
    """Rule *table*: which version of its block table a step reads."""

    PER_STEP = "the step's own"
    SHARED_BUFFER = "whatever the shared buffer holds when the copy runs"


class Rebase(enum.Enum):
    """Rule *rebase*: which accesses to a drafter's row count its blocks from the slot's base page."""

    BOTH = "reads and writes"
    READS = "reads only"
    WRITES = "writes only"


class Addressing(enum.Enum):
    """Rule *addressing*: where the cells behind a page end are written."""

    TABLE = "where the block table says"
    ADJACENT = "in the page behind"


class Trim(enum.Enum):
    """Rule *trim*: how much of its own entries a drafter without a slot takes back after a verify row."""

    ACCEPTED = "all behind the accepted tokens"
    REJECTED = "as many as were rejected and one"

    def surplus(self, accepted: int, drafts: int) -> int:
        """Entries taken back too many when ``accepted`` tokens of a row with ``drafts`` drafts were committed.

        The drafter wrote one entry for each draft. ``accepted`` of them stand (one more has to be written when all
        drafts were accepted); trimming ``min(rejected + 1, drafts)`` leaves fewer.
        """
        if self is Trim.ACCEPTED:
            return 0
        rejected = drafts - (accepted - 1)
        return accepted - (drafts - min(rejected + 1, drafts))


class Padding(enum.Enum):
    """Rule *padding*: what the rows touch that fill a batch up to the size of a captured graph."""

    SCRATCH = "scratch and the dummies' row slot"
    LAST_CELL = "index -1: the last cell of the last page"
    STALE_ROW = "the table row that an earlier request left"
    REQUEST_SLOT = "row slot 0"
