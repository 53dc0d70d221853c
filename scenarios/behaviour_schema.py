"""The rest of a scenario file: acceptance, cost, disturbances."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scenarios.fields import Bandwidth, Loss, Name, Part, Seconds, Share, Size, one_of, only_with, refuse, shorthand


def _list(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


Committed = Annotated[int, Field(ge=1, le=255)]
Schedule = Annotated[
    list[Committed], Field(min_length=1), BeforeValidator(_list, json_schema_input_type=Committed | list[Committed])
]
Times = Annotated[int, Field(ge=1, le=10_000)]
Rates = Annotated[
    list[Share] | Name,
    BeforeValidator(_list, json_schema_input_type=Share | list[Share] | Name),
]


class Acceptance(Part):
    """Tokens that a verify step commits, 1..K+1: forced, or drawn from rates per draft position.

    ``bernoulli`` and ``coverage`` take one rate for every position, a rate for each, or the name of a golden curve;
    ``coverage`` scales the rates by the share of the drafter's window that is valid. ``fitted`` is a file of rates and
    of that scale as a real drafter had them, which `kvtwin al --calibrate` writes.
    """

    forced: Schedule | None = Field(default=None, description="tokens per verify step, bonus included; a list repeats")
    requests: dict[int, Schedule] = Field(default_factory=dict, description="forced counts of single requests")
    length: Annotated[float, Field(ge=1)] | None = Field(default=None, description="forced acceptance length (AL)")
    bernoulli: Rates | None = Field(default=None, description="rate per position: a number, a list or a curve's name")
    coverage: Rates | None = Field(default=None, description="the same, scaled by the valid share of the window")
    fitted: Name | None = Field(default=None, description="a model fitted from a real drafter, relative to this file")
    loss: Share | None = Field(default=None, description="of coverage: share of a rate lost with no window at all")
    exponent: Annotated[float, Field(gt=0)] | None = Field(default=None, description="of coverage: shape of the loss")

    @model_validator(mode="after")
    def _one_mode(self) -> Acceptance:
        mode = self.mode
        only_with(self, "requests", "forced", mode == "forced")
        only_with(self, "loss", "coverage", mode == "coverage")
        only_with(self, "exponent", "coverage", mode == "coverage")
        return self

    @property
    def mode(self) -> str:
        """``forced``, ``length``, ``bernoulli``, ``coverage`` or ``fitted``."""
        return one_of(self, ("forced", "length", "bernoulli", "coverage", "fitted"))


class Cost(Part):
    """A cost profile by name (``sim.cost``) and what to change in it."""

    profile: Name = "default"
    prefill_us_per_token: Seconds | None = None
    host_ms: Seconds | None = None


CostField = Annotated[Cost, BeforeValidator(shorthand("profile", str), json_schema_input_type=Name | Cost)]


class HostLink(Part):
    """The link to the host tier: with it, copies between the tiers take time, and may fail."""

    gib_per_s: Bandwidth
    latency_us: Seconds = 0.0
    loss: Loss = Field(default=0.0, description="share of the copies that fail")


HostLinkField = Annotated[
    HostLink, BeforeValidator(shorthand("gib_per_s", int, float), json_schema_input_type=float | HostLink)
]


class Disturbance(Part):
    """Something that happens to a run, before an iteration is dispatched or at a time.

    ``suspend`` and ``cancel`` take a ``request``, ``shrink`` a ``pool`` and the ``pages`` that may stay cached,
    ``lose`` the kind of ``copies`` of which the next one fails (with a ``host_link``);
    ``skip`` is an iteration that was allocated and could not be queued, ``fail`` one whose forward pass failed.
    """

    at_iteration: Size | None = None
    at_s: Seconds | None = None
    action: Literal["suspend", "cancel", "skip", "fail", "shrink", "lose"]
    request: Size | None = None
    pool: Name | None = None
    pages: Size | None = None
    worker: Size | None = Field(default=None, description="a shrink of one worker's pool only")
    copies: Literal["loads", "stores"] | None = None
    times: Times = Field(default=1, description="in so many iterations in a row")

    @model_validator(mode="after")
    def _complete(self) -> Disturbance:
        one_of(self, ("at_iteration", "at_s"))
        of = {"suspend": ("request",), "cancel": ("request",), "shrink": ("pool", "pages"), "lose": ("copies",)}
        needs = of.get(self.action, ())
        for name in ("request", "pool", "pages", "copies"):
            if (getattr(self, name) is not None) != (name in needs):
                wanted = f"{self.action} with {' and '.join(needs)}" if needs else f"{self.action} alone"
                raise refuse(f"expected {wanted}, found {name} {'missing' if name in needs else 'as well'}")
        only_with(self, "worker", "shrink", self.action == "shrink")
        return self
