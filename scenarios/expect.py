"""What a scenario promises: reuse of single requests, totals, the laws that break; and what a run missed of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from scenarios.fields import BuildName, Name, Part, Share, Size, refuse, shorthand, unusable

_MOST = 1_000_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class Bound(Part):
    """A figure: exact, about a value within a share of it, or between two bounds."""

    value: Size | None = None
    within: Share = Field(default=0.0, description="share of value that the figure may be off")
    min: Size | None = None
    max: Size | None = None

    @model_validator(mode="after")
    def _value_or_bounds(self) -> Bound:
        if (self.value is None) == (self.min is None and self.max is None):
            raise refuse("expected either value or min and max, found both or neither")
        return self

    def holds(self, figure: int) -> bool:
        """Whether ``figure`` is what was promised."""
        if self.value is not None:
            return abs(figure - self.value) <= self.within * self.value
        return (self.min is None or figure >= self.min) and (self.max is None or figure <= self.max)

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.value:,}" + (f" within {self.within:.1%}" if self.within else "")
        if self.min is None:
            return f"at most {self.max:,}"
        return f"at least {self.min:,}" if self.max is None else f"{self.min:,} to {self.max:,}"


BoundField = Annotated[Bound, BeforeValidator(shorthand("value", int), json_schema_input_type=Size | Bound)]


class RequestExpectation(Part):
    """Tokens of one request, as its record counts them."""

    cached_tokens: BoundField | None = None
    draft_cached_tokens: BoundField | None = None
    prefilled_tokens: BoundField | None = None
    received_tokens: BoundField | None = None
    output_tokens: BoundField | None = None


def _text(key: Any) -> Any:
    return str(key) if isinstance(key, int) else key


Requests = dict[Annotated[Name, BeforeValidator(_text)], RequestExpectation]


class Promise(Part):
    """Expectations of a build. Request ids count submissions from 0; ``2-5`` means each of 2 to 5.

    ``violations`` are the codes of the laws that the run breaks, all of them, and [] none; codes in ``may`` are
    tolerated besides. What ``by_build`` leaves out is inherited, request by request and total by total; null instead
    of a mapping or a list expects nothing.
    """

    violations: list[Name] | None = None
    may: list[Name] | None = None
    requests: Requests | None = None
    totals: dict[Name, BoundField] | None = Field(default=None, description="counters of the engine")
    peak_pages: dict[Name, BoundField] | None = Field(default=None, description="most pages in use at once, by pool")

    @model_validator(mode="after")
    def _ranges(self) -> Promise:
        self.by_request()
        return self

    def by_request(self) -> dict[int, RequestExpectation]:
        """``requests`` with every range written out."""
        found: dict[int, RequestExpectation] = {}
        for key, expectation in (self.requests or {}).items():
            match = _RANGE.fullmatch(key)
            if match is None:
                raise unusable("request ids as 3 or as 2-5", key)
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < first + _MOST:
                raise unusable(f"a range of 1 to {_MOST} requests", key)
            for request in range(first, last + 1):
                if request in found:
                    raise refuse(f"expected each request once, found request {request} twice")
                found[request] = expectation
        return found


class Expect(Promise):
    """Expectations of a scenario, with what other builds or faults (``fault:NAME``) show instead."""

    violations: list[Name] | None = Field(default_factory=list)
    by_build: dict[BuildName, Promise] = Field(default_factory=dict)

    def for_build(self, name: str) -> Expectation:
        """The expectations that hold for the build ``name``."""
        special = self.by_build.get(name, Promise())

        def chosen(key: str) -> Any:
            own = getattr(special, key)
            if key not in special.model_fields_set or own == {}:
                return getattr(self, key)
            return own

        def merged(key: str) -> dict[Any, Any]:
            both = chosen(key) and {**(getattr(self, key) or {}), **chosen(key)}
            return both or {}

        violations = chosen("violations")
        requests = {} if chosen("requests") is None else {**self.by_request(), **special.by_request()}
        return Expectation(
            violations=None if violations is None else frozenset(violations),
            may=frozenset(chosen("may") or ()),
            requests=requests,
            totals=merged("totals"),
            peak_pages=merged("peak_pages"),
        )


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expectations of one build: ``violations`` is ``None`` where they do not count."""

    violations: frozenset[str] | None = frozenset()
    may: frozenset[str] = frozenset()
    requests: Mapping[int, RequestExpectation] = field(default_factory=dict)
    totals: Mapping[str, Bound] = field(default_factory=dict)
    peak_pages: Mapping[str, Bound] = field(default_factory=dict)

    def missed(
        self,
        records: Mapping[int, Any],
        totals: Any,
        codes: Iterable[str],
        peaks: Mapping[str, int] | None = None,
        declared: Iterable[str] = (),
    ) -> list[str]:
        """One line for each expectation that a run missed.

        ``records`` are the engine's by request id, ``totals`` its totals, ``codes`` those of all violations and
        ``peaks`` the most pages in use at once by pool. ``declared`` are laws that the build says it breaks.
        """
        lines = self._missed_codes(frozenset(codes), frozenset(declared))
        for request, expectation in self.requests.items():
            record = records.get(request)
            if record is None:
                lines.append(f"request {request}: expected to run, but there is no such request")
                continue
            for name in RequestExpectation.model_fields:
                lines += _missed(f"request {request}: {name}", getattr(expectation, name), getattr(record, name, None))
        for name, bound in self.totals.items():
            lines += _missed(f"total {name}", bound, getattr(totals, name, None))
        for pool, bound in self.peak_pages.items():
            lines += _missed(f"peak pages of pool {pool}", bound, (peaks or {}).get(pool))
        return lines

    def _missed_codes(self, codes: frozenset[str], declared: frozenset[str]) -> list[str]:
        if self.violations is None:
            return []
        lines = [f"law {code}: expected to break, but it held" for code in sorted(self.violations - codes)]
        surplus = sorted(codes - self.violations - self.may)
        known = "broke, as this build declares; the scenario does not expect it"
        return lines + [
            f"law {code} {known}" if code in declared else f"law {code}: expected to hold, but it broke"
            for code in surplus
        ]


def _missed(what: str, bound: Bound | None, figure: int | None) -> list[str]:
    if bound is None or (figure is not None and bound.holds(figure)):
        return []
    return [f"{what}: expected {bound}, found {'nothing' if figure is None else f'{figure:,}'}"]
