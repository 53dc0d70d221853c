"""The regression form of a scenario: a list of ops instead of a workload, as a shrunk failure is kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from scenarios.fields import Count, Name, Part, Size, Stream, unusable
from scenarios.workload_schema import Prompt, ScopeSpec


def _of_both(value: Any) -> None:
    if value is not None:
        raise unusable("no worker (a transfer concerns both)", value)


OfBoth = Annotated[None, BeforeValidator(_of_both, json_schema_input_type=None)]


class OfWorker(Part):
    """An op; of several workers it may concern a single one."""

    worker: Size | None = Field(default=None, description="number of the worker it is for, where there are several")


class SubmitOp(OfWorker):
    """A request arrives."""

    op: Literal["submit"]
    request: Size
    prompt: Prompt
    output: Count
    output_seed: Stream | None = Field(default=None, description="stream of its output tokens")
    conversation: Annotated[int, Field(ge=-1)] = -1
    scope: ScopeSpec = Field(default_factory=ScopeSpec)
    priority: int = 0
    drafts: bool = Field(default=True, description="false: it runs without the drafter, beside requests that draft")


class DispatchOp(OfWorker):
    """Schedule an iteration; with ``skip`` it was allocated and could not be queued."""

    op: Literal["dispatch"]
    skip: bool = False


class SettleOp(OfWorker):
    """The oldest iteration in flight ended: tokens committed per generation row, in the plan's order."""

    op: Literal["settle"]
    accepted: list[Count] = Field(default_factory=list)


class CancelOp(OfWorker):
    """A client gave up on its request."""

    op: Literal["cancel"]
    request: Size


class SuspendOp(OfWorker):
    """Both pools of a request give up their locks."""

    op: Literal["suspend"]
    request: Size


class FailOp(OfWorker):
    """An iteration is scheduled and its forward pass fails."""

    op: Literal["fail"]


class ShrinkOp(OfWorker):
    """Droppable pages are evicted until at most ``pages`` stay cached."""

    op: Literal["shrink"]
    pool: Name
    pages: Size


class SendOp(Part):
    """The decode worker admits a prefilled request and its pages begin to travel."""

    op: Literal["send"]
    request: Size
    worker: OfBoth = None


class ArriveOp(Part):
    """A transfer ends: all its bytes are written."""

    op: Literal["arrive"]
    request: Size
    worker: OfBoth = None


class AbortOp(Part):
    """A transfer is lost; with ``recompute`` the decode worker prefills the prompt, otherwise it may be sent again."""

    op: Literal["abort"]
    request: Size
    recompute: bool = False
    worker: OfBoth = None


class LandOp(OfWorker):
    """A copy between the tiers arrived; copies are numbered in the order in which they began."""

    op: Literal["land"]
    copy_: Size = Field(alias="copy")


class LoseOp(OfWorker):
    """A copy between the tiers failed."""

    op: Literal["lose"]
    copy_: Size = Field(alias="copy")


class WarmupOp(OfWorker):
    """Before any request a batch of dummies of ``tokens`` runs once, for graphs to be captured."""

    op: Literal["warmup"]
    batch: Count
    tokens: Count


AnyRequestOp = SubmitOp | CancelOp | SuspendOp | SendOp | ArriveOp | AbortOp
AnyOp = AnyRequestOp | DispatchOp | SettleOp | FailOp | ShrinkOp | LandOp | LoseOp | WarmupOp
OpSpec = Annotated[AnyOp, Field(discriminator="op")]
