"""Rule *claim*: how deep a new request may start, given what both pools hold of its prompt.

``L`` is the context length, ``P`` the target's match, ``W`` the drafter's window. After a prefill of ``L`` tokens the
drafter reads from ``L + 2 - W`` on; a mirror that starts with no drafter page may claim up to ``L + 1 - W``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from model.geometry import floor_to
from model.rules import promise
from model.rules.promise import Holdings, Promise


class Claim(NamedTuple):
    """Decision: start at ``tokens``; ``fresh`` reuses no drafter page; ``branch`` >= 0 publishes the window there."""

    tokens: int
    fresh: bool
    branch: int = -1

    @property
    def kind(self) -> str:
        """ "none", "joint", "fresh" or "branch"."""
        if self.branch >= 0:
            return "branch"
        return "none" if not self.tokens else "fresh" if self.fresh else "joint"


class ClaimView(Protocol):
    """What a claim rule may ask."""

    length: int  # context length L
    page_size: int
    window: int | None  # widest drafter window W, None for full attention
    branches: bool  # whether the publication rule publishes a branch window
    target: int  # P
    drafts: bool  # whether there is a drafter with a pool

    def joint(self, end: int, boundary: bool) -> int:
        """Deepest endpoint up to ``end`` that target and drafter both cover (on a page boundary if ``boundary``)."""
        ...

    def draft_match(self) -> int:
        """The drafter's own match."""
        ...

    def touched(self, end: int) -> int:
        """Deepest endpoint up to ``end`` whose last page the drafter has, whatever of its window lies before it."""
        ...

    def required(self, end: int) -> int:
        """Deepest endpoint up to ``end`` that the REQUIRED lifecycles cover."""
        ...


class ClaimRule(Protocol):
    """Decides where a request starts."""

    @property
    def name(self) -> str:
        """Name of the answer."""
        ...

    def decide(self, view: ClaimView) -> Claim: ...

    def promise(self, held: Holdings) -> Promise:
        """How deep a claim has to be, and may be, given what the memory holds of the prompt."""
        ...

    def window_valid(self, paired: bool, window: int | None) -> bool:
        """Whether the drafter's window of ``window`` tokens is promised to be whole at its first pass."""
        ...


def fresh_limit(length: int, window: int | None, match: int, page_size: int) -> int:
    """Deepest claim whose drafter window the prefill of the rest still refills, page-floored; 0 without a window."""
    if window is None:
        return 0
    limit = length + 1 - window
    return match if match <= limit else floor_to(max(0, limit), page_size)


def recompute_tail(claim: int, length: int, tail: int, page_size: int) -> int:
    """Cursor that leaves at least ``tail`` tokens of a prompt of ``length`` to compute, floored to a page if moved.

    ``tail`` 0 keeps the claim, a negative one gives all of it up (TensorRT-LLM's recompute of a spec-decode tail).
    """
    if claim == 0 or tail == 0:
        return claim
    if tail < 0:
        return 0
    return claim if length - claim >= tail else floor_to(max(0, length - tail), page_size)


@dataclass(frozen=True, slots=True)
class TargetOnly:
    """The target's match alone; the drafter starts with nothing (before pairing). ``full_pages`` floors the claim."""

    name: str = "target-only"
    full_pages: bool = False

    def decide(self, view: ClaimView) -> Claim:
        tokens = view.target
        while self.full_pages and tokens % view.page_size:
            tokens = view.required(floor_to(tokens, view.page_size))
        return Claim(tokens, fresh=True)

    def promise(self, held: Holdings) -> Promise:
        return promise.target_promise(held, self.full_pages)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class RecomputeTail:
    """The target's match, rewound so that a tail of the prompt runs through the target again.

    ``tokens`` of tail, one drafter window where it is ``None``; the rewound cursor is floored to a page if
    ``aligned`` (it has to be: a drafter hides whole pages).
    """

    name: str = "recompute-tail"
    tokens: int | None = None
    aligned: bool = True

    def decide(self, view: ClaimView) -> Claim:
        tail = self.tokens if self.tokens is not None else view.window or 0
        claim = recompute_tail(view.target, view.length, tail, view.page_size if self.aligned else 1)
        return Claim(view.required(claim), fresh=True)

    def promise(self, held: Holdings) -> Promise:
        return promise.tail_promise(held, self.tokens if self.tokens is not None else held.window or 0)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return window is not None and (self.tokens is None or self.tokens >= window)


@dataclass(frozen=True, slots=True)
class WithoutWindow:
    """The target's match, whatever the drafter holds: what is missing of its window stays hidden (an experiment)."""

    name: str = "without-window"

    def decide(self, view: ClaimView) -> Claim:
        covered = view.joint(view.target, False)
        return Claim(view.target, fresh=covered < view.target)

    def promise(self, held: Holdings) -> Promise:
        least, most = promise.target_promise(held, False)
        return Promise(held.target(max(0, least - held.span), True), most)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return paired


@dataclass(frozen=True, slots=True)
class DropLastPage:
    """Whole pages that every group holds, less the last one when there is a drafter (vLLM without lookahead keys).

    The groups' windows are checked at the endpoint that is left. Wrong: with ``every_pass`` the page is dropped each
    time that a group shortens the match, and with ``align`` the rest is rounded down to a multiple of that many pages.
    """

    name: str = "drop-last-page"
    every_pass: bool = False
    align: int = 1

    def decide(self, view: ClaimView) -> Claim:
        page = view.page_size
        drop = page if view.drafts else 0
        end = floor_to(max(0, floor_to(view.target, page) - drop), self.align * page)
        covered = view.joint(end, True)
        while self.every_pass and covered < end:
            end = max(0, covered - drop)
            covered = view.joint(end, True)
        return Claim(covered, fresh=False)

    def promise(self, held: Holdings) -> Promise:
        return promise.dropped_promise(held, held.page_size if held.drafts else 0)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return paired


@dataclass(frozen=True, slots=True)
class TargetCursor:
    """Wrong: the cursor goes where the target matches, although a drafter that claims less shares it."""

    name: str = "target-cursor"

    def decide(self, view: ClaimView) -> Claim:
        return Claim(view.target, fresh=False)

    def promise(self, held: Holdings) -> Promise:
        return promise.joint_promise(held)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return paired


@dataclass(frozen=True, slots=True)
class JointMinimum:
    """The lesser of both matches; a drafter window that is not there costs the whole hit."""

    name: str = "joint-minimum"

    def decide(self, view: ClaimView) -> Claim:
        return Claim(min(view.target, view.draft_match()), fresh=False)

    def promise(self, held: Holdings) -> Promise:
        return promise.joint_promise(held)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return paired


@dataclass(frozen=True, slots=True)
class WindowedPair:
    """The deeper of what both pools cover and what a recomputed window allows; the covered one on a tie.

    ``boundary``: a drafter window counts only where it ends on a page. ``branch``: a prompt that ends within one
    window of the match recomputes from a window before the match, so that the window there can be published.
    ``draft_first``: any covered endpoint above 0 wins. Wrong: ``extra`` tokens more for a fresh mirror, and endpoints
    that are not ``complete``, of whose window only the last page has to be there.
    """

    name: str = "windowed-pair"
    boundary: bool = False
    branch: bool = True
    draft_first: bool = False
    extra: int = 0
    complete: bool = True

    def decide(self, view: ClaimView) -> Claim:
        match = view.target
        covered = view.joint(match, self.boundary) if self.complete else view.touched(match)
        if covered == match or (self.draft_first and covered):
            return Claim(covered, fresh=False)
        window, point = view.window, -1
        fresh = fresh_limit(view.length + self.extra, window, match, view.page_size)
        if self.branch and view.branches and window is not None and view.length + 1 - window < match < view.length:
            fresh, point = floor_to(max(0, match - window), view.page_size), match
        fresh = view.required(fresh)
        if covered >= fresh and (covered or point < 0):
            return Claim(covered, fresh=False)
        return Claim(fresh, fresh=True, branch=point)

    def promise(self, held: Holdings) -> Promise:
        return promise.windowed_promise(held, self.boundary, self.branch and held.branches, self.draft_first)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return paired
