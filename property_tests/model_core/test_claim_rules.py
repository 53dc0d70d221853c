"""Claim rules one by one, asked about a prompt of which each pool covers certain endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from model.builds import BUILDS
from model.rules.claim import (
    Claim,
    ClaimRule,
    DropLastPage,
    JointMinimum,
    RecomputeTail,
    TargetCursor,
    TargetOnly,
    WindowedPair,
    WithoutWindow,
    recompute_tail,
)
from property_tests.model_core.helpers import codes, config, serve, spec, step, submit, world

PROMPT = list(range(10, 42))


@dataclass
class Held:
    """A prompt of ``length`` tokens: the target holds its first ``target``; the drafter covers some endpoints."""

    length: int
    target: int
    drafted: set[int] = field(default_factory=set)
    window: int | None = 8
    branches: bool = False
    page_size: int = 4
    drafts: bool = True
    keyed: int = 0

    def joint(self, end: int, boundary: bool) -> int:
        return max((one for one in {0, *self.drafted} if one <= end and not (boundary and one % 4)), default=0)

    def touched(self, end: int) -> int:
        return self.joint(end, False)

    def draft_match(self) -> int:
        return max(self.drafted, default=0)

    def required(self, end: int) -> int:
        return min(end, self.target)


@pytest.mark.parametrize(
    ("rule", "held", "claim"),
    [
        (TargetOnly(), Held(30, 22), Claim(22, fresh=True)),
        (TargetOnly(full_pages=True), Held(30, 22), Claim(20, fresh=True)),
        (TargetCursor(), Held(30, 22), Claim(22, fresh=False)),
        (JointMinimum(), Held(30, 22, {10, 18}), Claim(18, fresh=False)),
        (JointMinimum(), Held(30, 22), Claim(0, fresh=False)),
        (WithoutWindow(), Held(30, 22, {22}), Claim(22, fresh=False)),
        (WithoutWindow(), Held(30, 22, {18}), Claim(22, fresh=True)),
        (DropLastPage(), Held(30, 22, {12, 16, 20}), Claim(16, fresh=False)),
        (DropLastPage(), Held(30, 22, {12, 20}, drafts=False), Claim(20, fresh=False)),
        (DropLastPage(), Held(30, 3, {0}), Claim(0, fresh=False)),
        (WindowedPair(), Held(30, 22, {22}), Claim(22, fresh=False)),
        (WindowedPair(), Held(30, 22, {10}), Claim(22, fresh=True)),  # 22 <= 30 + 1 - 8
        (WindowedPair(), Held(24, 22, {10}), Claim(16, fresh=True)),  # 17 on a page
        (WindowedPair(), Held(24, 22, {16}), Claim(16, fresh=False)),  # the covered one on a tie
        (WindowedPair(), Held(24, 22, {18}), Claim(18, fresh=False)),
        (WindowedPair(), Held(24, 22, {10}, branches=True), Claim(12, fresh=True, branch=22)),
        (WindowedPair(), Held(24, 22, {13}, branches=True), Claim(13, fresh=False)),
        (WindowedPair(), Held(10, 7, branches=True), Claim(0, fresh=True, branch=7)),
        (WindowedPair(branch=False), Held(24, 22, {10}, branches=True), Claim(16, fresh=True)),
        (WindowedPair(boundary=True), Held(30, 22, {22, 20}), Claim(22, fresh=True)),
        (WindowedPair(boundary=True), Held(24, 22, {22, 20}), Claim(20, fresh=False)),
        (WindowedPair(draft_first=True), Held(30, 22, {4}), Claim(4, fresh=False)),
        (WindowedPair(draft_first=True), Held(30, 22), Claim(22, fresh=True)),
        (WindowedPair(), Held(30, 22, {10}, window=None), Claim(10, fresh=False)),  # full attention pairs or nothing
    ],
)
def test_a_rule_claims_what_its_sentence_says(rule: ClaimRule, held: Held, claim: Claim) -> None:
    assert rule.decide(held) == claim


@pytest.mark.parametrize(
    ("claim", "length", "tail", "left"),
    [(12, 13, 6, 4), (0, 13, 6, 0), (12, 13, 0, 12), (12, 13, -1, 0), (4, 13, 6, 4), (7, 13, 6, 7), (8, 13, 20, 0)],
)
def test_a_recomputed_tail_rewinds_the_cursor_to_a_page(claim: int, length: int, tail: int, left: int) -> None:
    """semantics.md section 9: L = 13, pages of 4, a claim of 12 and a tail of 6 leave 4."""
    assert recompute_tail(claim, length, tail, 4) == left
    if tail > 0:
        assert RecomputeTail(tokens=tail).decide(Held(length, claim)).tokens == left


def test_by_default_the_recomputed_tail_is_a_window() -> None:
    assert RecomputeTail().decide(Held(30, 24)) == Claim(20, fresh=True)


@pytest.mark.parametrize(
    ("build", "claim", "kind", "coverage"),
    [("unified", 20, "branch", 1), ("unified-nowindow", 31, "fresh", 1 / 7), ("target-21", 28, "fresh", 5 / 7)],
)
def test_a_hit_without_its_window_drafts_from_less(build: str, claim: int, kind: str, coverage: float) -> None:
    """A repeat of 32 tokens, W = 8, its drafter cells lost: what the first drafting pass sees of its 7 cells."""
    serving = world(config(), build)
    serve(serving, spec(0, PROMPT, 3))
    serving.engine.twin.pools["draft"].evict_down_to(0)
    submit(serving, spec(1, PROMPT, 6))
    while serving.engine.live[1].generated < 2:
        step(serving)
    record = serving.engine.records[1]
    assert (record.cached_tokens, record.claim_kind) == (claim, kind)
    assert serving.coverage(1) == pytest.approx(coverage)
    assert codes(serving) == set(BUILDS[build].must_fire)
