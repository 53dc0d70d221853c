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
