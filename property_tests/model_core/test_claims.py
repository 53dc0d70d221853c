"""Joint claims: the order in which two managers claim under one cursor, and how deep a request may start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.builds import BUILDS, Build
from model.config import Drafter, PublishPolicy
from model.drafter import SlotState
from model.geometry import Lifecycle, floor_to
from model.joint import Twin
from model.manager import Manager
from model.request import Totals
from model.rules.admission import Admission
from model.rules.claim import Claim, ClaimView, JointMinimum, fresh_limit
from model.rules.promise import Holdings, Promise
from model.rules.slots import Slots
from property_tests.model_core.helpers import (
    admitted,
    arrived,
    claim_of,
    codes,
    config,
    lifecycle,
    lose,
    prefilled,
    serve,
    spec,
    step,
    submit,
    twin_of,
    world,
)

PROMPT = list(range(10, 42))
FULL_ATTENTION = Drafter("pard", 3, None)  # no lookahead


def build(base: str, **rules: Any) -> Build:
    return replace(BUILDS[base], rules=replace(BUILDS[base].rules, **rules))


def diary(twin: Twin) -> list[tuple[str, str, int]]:
    """What the managers of a twin are asked for from now on: (manager, "claim" or "free", tokens)."""
    told: list[tuple[str, str, int]] = []

    def keep_a_diary(manager: Manager) -> None:
        create, free = manager.create, manager.free

        def claim(owner: int, keys: Any, match: Any, tokens: int, declined: frozenset[int] = frozenset()) -> Any:
            told.append((manager.role, "claim", tokens))
            return create(owner, keys, match, tokens, declined)

        def release(owner: int) -> None:
            told.append((manager.role, "free", 0))
            free(owner)

        manager.create, manager.free = claim, release  # pyright: ignore[reportAttributeAccessIssue]

    for manager in twin.managers:
        keep_a_diary(manager)
    return told


# -- the order of the paired admission --------------------------------------------------------------------------------


def two_pools(draft_window: int | None = 8, rewinds: bool = True) -> Twin:
    """A target with full and windowed attention beside a drafter; all of the prompt is cached in both."""
    target = (lifecycle(), lifecycle("recent", 4))
    rules = build("joint-backoff", admission=Admission("symmetric", rewinds_on_fallback=rewinds))
    drafter = Drafter("dflash", 3, draft_window) if draft_window else FULL_ATTENTION
    twin = twin_of(config(drafter=drafter, target=target), rules)
    prefilled(twin, 1, PROMPT[:20])
    return twin


def test_the_drafter_claims_first_and_the_target_no_deeper() -> None:
    twin = twin_of(config(), "paired-22")
    prefilled(twin, 1, PROMPT)
    told = diary(twin)
    assert admitted(twin, 2, [*PROMPT[:30], 1]).claim == Claim(30, fresh=False)
    assert told == [("draft", "claim", 30), ("target", "claim", 30)]


def test_a_target_that_covers_less_at_the_drafters_end_makes_the_drafter_claim_again() -> None:
    twin = two_pools(draft_window=None)
    assert twin.draft is not None
    keep = [*PROMPT[:20], 1, 2]
    lose(twin.draft, PROMPT[:20], 4)  # the drafter's match ends at 16
    lose(twin.target, PROMPT[:20], 3, column=1)  # and there the target's window has a hole
    told = diary(twin)
    assert admitted(twin, 2, keep).claim.tokens == 12
    assert told == [("draft", "claim", 16), ("target", "claim", 12), ("draft", "free", 0), ("draft", "claim", 12)]


@pytest.mark.parametrize(("rewinds", "cursor"), [(True, 0), (False, 12)])
def test_pools_that_cannot_agree_start_over_without_reuse(rewinds: bool, cursor: int) -> None:
    twin = two_pools(draft_window=8, rewinds=rewinds)
    assert twin.draft is not None
    lose(twin.draft, PROMPT[:20], 4, 1)  # whole again at 16, and not at 12
    lose(twin.target, PROMPT[:20], 3, column=1)
    told, totals = diary(twin), Totals()
    request = admitted(twin, 2, [*PROMPT[:20], 1, 2], totals)
    assert told == [
        ("draft", "claim", 16),
        ("target", "claim", 12),
        ("draft", "free", 0),
        ("draft", "claim", 4),
        ("target", "free", 0),
        ("draft", "free", 0),
        ("draft", "claim", 0),
        ("target", "claim", 0),
    ]
    assert request.claim.tokens == cursor  # the rule that does not rewind leaves the cursor where nothing is
    assert totals.fallbacks == 1
    assert [sequence.claimed for sequence in twin.sequences(request)] == [0, 0]


def test_an_unpaired_mirror_is_made_empty_and_publishes_nothing() -> None:
    twin = twin_of(config(), "target-only")
    prefilled(twin, 1, PROMPT)
    told = diary(twin)
    assert admitted(twin, 2, [*PROMPT[:30], 1]).claim == Claim(30, fresh=True)
    assert told == [("target", "claim", 30), ("draft", "claim", 0)]
    assert twin.draft is not None
    assert twin.draft.tree.index == {}


@pytest.mark.parametrize(
    ("drafter", "paired", "managers"),
    [
        (Drafter("draft-target-one-model", 3, None), False, 2),
        (Drafter("ngram", 3, None), False, 1),
        (Drafter("eagle3", 3, None), True, 2),
    ],
)
def test_a_drafter_pairs_only_if_its_lookahead_is_known(drafter: Drafter, paired: bool, managers: int) -> None:
    twin = twin_of(config(drafter=drafter), "paired-22")
    assert (twin.paired, len(twin.managers)) == (paired, managers)
    assert bool(twin.unpaired_note) == (drafter.kind == "draft-target-one-model")


def test_a_probe_for_the_first_missing_block_leaves_no_trace() -> None:
    twin = twin_of(config(), "paired-22")
    prefilled(twin, 1, PROMPT[:20])
    request = arrived(twin, 2, PROMPT)
    told = diary(twin)
    assert request.keys is not None
    assert twin.first_new_key(request) == request.keys.keys[5]
    assert twin.first_new_key(arrived(twin, 3, [*PROMPT[:20], 1])) is None  # its next block is no whole one
    assert told == []


# -- claims against their definition ----------------------------------------------------------------------------------


@st.composite
def damaged_pools(draw: st.DrawFn) -> tuple[str, int, list[int], list[int], int, int]:
    """A build, a window, blocks that target and drafter lost, how much of the prompt a reader shares, its length."""
    name = draw(st.sampled_from(["paired-22", "paired-22-nobranch", "unified", "unified-page", "joint-backoff"]))
    lost = st.lists(st.integers(0, 7), max_size=3)
    shared = draw(st.integers(0, 32))
    return name, draw(st.integers(2, 12)), draw(lost), draw(lost), shared, draw(st.integers(shared + 1, 44))


def covered(coverage: list[int], window: int | None, end: int) -> bool:
    """Whether a pool holds what the query at ``end`` reads, given the tokens that it covers of each block."""
    first = 0 if window is None else Lifecycle("w", "w", "draft", window=window).read_from(end) // 4
    return all(coverage[block] >= min(4, end - 4 * block) for block in range(first, -(-end // 4)))


@given(case=damaged_pools())
def test_a_claim_is_the_deeper_of_what_both_pools_cover_and_what_a_window_recomputes(
    case: tuple[str, int, list[int], list[int], int, int],
) -> None:
    name, window, target_lost, draft_lost, shared, length = case
    twin = twin_of(config(drafter=Drafter("dflash", 3, window), policy=PublishPolicy.PER_CONVERSATION), name)
    manager = twin.draft or twin.target
    column = 0 if twin.draft is not None else 1
    prefilled(twin, 1, PROMPT)
    target = [4] * 8
    for block in sorted(target_lost)[:1]:
        lose(twin.target, PROMPT, block)
        target[block:] = [0] * (8 - block)
    first = twin.columns[-1].lifecycle.stale_range(32, 4)[1]  # only the window at the end was published
    draft = [0 if block < first or block in draft_lost else 4 for block in range(8)]
    if twin.draft is None:
        draft = [min(*pair) for pair in zip(draft, target, strict=True)]  # one tree: what hangs on a block goes with it
    for block in draft_lost:
        if draft[block] == 0 and block >= first and target[block]:
            lose(manager, PROMPT, block, column=column)
    reader = [*PROMPT[:shared], *range(1000, 1000 + length - shared)]
    claim = claim_of(twin, 2, reader)
    ends = range(min(shared, length - 1) + 1)
    match = max(end for end in ends if covered(target, None, end))
    own = max(end for end in ends if covered(draft, window, end) and end <= match)
    if name == "unified-page":
        own = max(end for end in ends if covered(draft, window, end) and end <= match and end % 4 == 0)
    if name == "joint-backoff":
        assert claim.tokens == own
    else:
        assert claim.tokens == max(own, fresh_limit(length, window, match, 4))
        assert claim.fresh == (own < claim.tokens)


# -- fresh mirrors (X17) ----------------------------------------------------------------------------------------------

WINDOW = 8


def target_alone(name: str) -> Twin:
    """Both pools published the prompt; then the drafter's lost everything."""
    twin = twin_of(config(drafter=Drafter("dflash", 3, WINDOW)), name)
    prefilled(twin, 1, PROMPT)
    twin.pools["draft"].evict_down_to(0)
    assert twin.pools["target"].droppable == 8
    return twin


def lengths_and_matches() -> list[tuple[int, int]]:
    return [(length, match) for length in range(1, 42) for match in range(min(length, 33))]


@pytest.mark.parametrize("name", ["paired-22-nobranch", "paired-22", "unified"])
def test_a_fresh_mirror_claims_up_to_a_window_before_the_end(name: str) -> None:
    """X17: all of P up to L + 1 - W, else that limit on a page; a branch point goes a window before P instead."""
    twin, branches = target_alone(name), name != "paired-22-nobranch"
    for owner, (length, match) in enumerate(lengths_and_matches(), 2):
        prompt = [*PROMPT[:match], *range(500, 500 + length - match)]
        limit = length + 1 - WINDOW
        expected = Claim(match if match <= limit else floor_to(max(0, limit), 4), fresh=True)
        if match and branches and limit < match:
            expected = Claim(floor_to(max(0, match - WINDOW), 4), fresh=True, branch=match)
        claim = claim_of(twin, owner, prompt)
        assert (claim.tokens, claim.branch) == (expected.tokens, expected.branch), (length, match)
        assert claim.fresh or not claim.tokens
    assert all(pool.used() == 0 for pool in twin.pools.values())


def test_a_repeated_prompt_recomputes_a_window_before_its_match() -> None:
    """Its match ends at L - 1, within a window of its own end."""
    twin = target_alone("paired-22")
    assert claim_of(twin, 2, PROMPT) == Claim(20, fresh=True, branch=31)


def test_a_window_as_long_as_the_prompt_leaves_a_fresh_mirror_nothing() -> None:
    for length in range(1, 12):
        assert fresh_limit(length, length + 1, length - 1, 4) == 0
    assert fresh_limit(20, None, 16, 4) == 0  # full attention: only exact pairing is valid


@dataclass(frozen=True, slots=True)
class Unfloored:
    """A fresh mirror's limit taken to the token, and ``extra`` tokens more."""

    extra: int
    name: str = "unfloored"

    def decide(self, view: ClaimView) -> Claim:
        assert view.window is not None
        return Claim(view.required(min(view.target, view.length + 1 - view.window + self.extra)), fresh=True)

    def promise(self, held: Holdings) -> Promise:
        return Promise(0, held.limit)

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return False


class OwnPage(Slots):
    """A slot whose base is the page that the claim ends in: its unwritten cells are left to the window to avoid."""

    def first(self, claim: int, reused: int, page_size: int) -> SlotState:
        return SlotState(claim // page_size, claim)


@pytest.mark.parametrize("name", ["paired-22", "unified"])
@pytest.mark.parametrize(
    ("length", "extra", "safe"),
    [(20, 0, True), (20, 1, True), (20, 2, False), (22, 0, True), (23, 1, True), (21, 3, False), (23, 2, False)],
)
def test_one_token_past_the_limit_is_still_safe_and_two_are_not(length: int, extra: int, safe: bool, name: str) -> None:
    """The drafter reads from L + 2 - W on, so the policy is a token stricter than the memory (W = 8, L = 20: 13)."""
    settings = config(drafter=Drafter("dflash", 3, WINDOW), policy=PublishPolicy.PER_CONVERSATION)
    judged = world(settings, build(name, claim=Unfloored(extra), slots=OwnPage()))
    serve(judged, spec(0, PROMPT[:length], 1))
    serve(judged, spec(1, PROMPT[:length], 6), accepted=1)
    assert judged.engine.records[1].cached_tokens == length + 1 - WINDOW + extra
    assert codes(judged) == (set() if safe else {"INIT"})


@pytest.mark.parametrize(("length", "extra", "coverage"), [(23, 0, 1.0), (22, 1, 1.0), (21, 2, 6 / 7), (20, 3, 5 / 7)])
def test_a_prefix_behind_the_base_is_safe_and_costs_the_drafter_its_context(
    length: int, extra: int, coverage: float
) -> None:
    """All these claims end at 16, on a page: what lies below is hidden, so only the first pass's window tells them."""
    settings = config(drafter=Drafter("dflash", 3, WINDOW), policy=PublishPolicy.PER_CONVERSATION)
    judged = world(settings, build("unified", claim=Unfloored(extra)))
    serve(judged, spec(0, PROMPT[:length], 1))
    submit(judged, spec(1, PROMPT[:length], 6))
    step(judged)
    step(judged)
    assert judged.coverage(1) == coverage
    assert codes(judged) == set()


# -- an optional group that is left out -------------------------------------------------------------------------------


def test_left_out_drafter_pages_are_given_up_before_the_allocation() -> None:
    """Four fresh pages from two free ones: the candidates that the request does not claim are the other two."""
    settings = config(drafter=Drafter("dflash", 3, 8), policy=PublishPolicy.PER_CONVERSATION)
    twin = twin_of(settings, build("unified", claim=Unfloored(-13)))
    drafts = twin.pools["draft"]
    prefilled(twin, 1, PROMPT[:20])
    drafts.grant(drafts.free_count() - 2)
    assert (drafts.free_count(), drafts.droppable) == (2, 2)
    request = admitted(twin, 2, [*PROMPT[:20], *range(500, 520)])
    assert request.claim == Claim(20, fresh=True)
    assert twin.grow_context(request, 28, last=False)
    assert (drafts.free_count(), drafts.droppable, drafts.evicted) == (0, 0, 2)


def test_the_joint_minimum_is_the_lesser_of_two_matches() -> None:
    twin = twin_of(config(drafter=FULL_ATTENTION), build("paired-22", claim=JointMinimum()))
    prefilled(twin, 1, PROMPT)
    assert twin.draft is not None
    assert claim_of(twin, 2, [*PROMPT, 1]) == Claim(32, fresh=False)
    lose(twin.draft, PROMPT, 3)
    assert claim_of(twin, 3, [*PROMPT, 1]) == Claim(12, fresh=False)
    lose(twin.target, PROMPT, 1)
    assert claim_of(twin, 4, [*PROMPT, 1]) == Claim(4, fresh=False)
