"""The two key protocols side by side: equal claims, another published tail, other keys than a run without a drafter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from model.config import Drafter
from model.ops import World
from model.rules.keys import KeysRule, MatchBackoff, ShiftedStream
from property_tests.model_core.helpers import codes, config, serve, spec, world
from property_tests.model_core.test_lookahead import PROMPT, drafter

LOOKAHEADS = pytest.mark.parametrize("lookahead", [0, 1, 2, 3])
NO_DRAFTER = Drafter("ngram", 3, None)


def served(kind: Drafter, keys: KeysRule, build: str = "joint-backoff") -> World:
    """One prompt of 20 tokens in pages of 4, served and published."""
    rules = replace(BUILDS[build].rules, keys=keys)
    serving = world(config(drafter=kind), replace(BUILDS[build], rules=rules))
    serve(serving, spec(0, PROMPT))
    assert codes(serving) == set()
    return serving


def tokens_of(serving: World) -> int:
    """Key items that the target's tree holds of its only prompt."""
    return sum(node.length for node in serving.engine.twin.target.tree.index.values())


@LOOKAHEADS
def test_the_shifted_stream_never_publishes_its_tail_and_back_off_publishes_it_without_a_use(lookahead: int) -> None:
    assert tokens_of(served(drafter(lookahead), ShiftedStream())) == len(PROMPT) - lookahead
    assert tokens_of(served(drafter(lookahead), MatchBackoff())) == len(PROMPT)


@LOOKAHEADS
@pytest.mark.parametrize("keys", [MatchBackoff(), ShiftedStream()], ids=lambda rule: rule.name)
def test_of_what_is_published_a_longer_prompt_can_claim_all_but_the_lookahead(keys: KeysRule, lookahead: int) -> None:
    serving = served(drafter(lookahead), keys)
    serve(serving, spec(1, [*PROMPT, *range(500, 509)]))
    assert serving.engine.records[1].cached_tokens == len(PROMPT) - lookahead
    assert codes(serving) == set()


@LOOKAHEADS
def test_only_raw_keys_are_found_by_a_run_without_a_drafter(lookahead: int) -> None:
    """Events and routers know a block by its key: with the shifted stream they know two sets of them."""
    plain = set(served(NO_DRAFTER, MatchBackoff()).engine.twin.target.tree.index)
    raw = set(served(drafter(lookahead), MatchBackoff()).engine.twin.target.tree.index)
    shifted = set(served(drafter(lookahead), ShiftedStream()).engine.twin.target.tree.index)
    assert raw == plain
    assert shifted == plain if lookahead == 0 else shifted.isdisjoint(plain)


@pytest.mark.parametrize("build", ["unified", "paired-22", "joint-backoff"])
def test_a_build_that_cannot_pair_claims_what_the_target_holds(build: str) -> None:
    """A drafter of unknown lookahead runs beside the target's reuse and sets no limit to it."""
    serving = served(Drafter("draft-target-one-model", 3, None), MatchBackoff(), build)
    serve(serving, spec(1, [*PROMPT[:13], *range(500, 509)]))
    assert serving.engine.twin.unpaired_note
    assert serving.engine.records[1].cached_tokens == 13
    assert codes(serving) == set()
