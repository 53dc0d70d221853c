"""Drafters that look D tokens ahead: what may be claimed (X14) and what a chunk feeds them at its end (X15)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.builds import BUILDS, Build
from model.config import Drafter, PublishPolicy
from model.ops import World
from model.reader import PROVISIONAL
from model.rules.keys import KeysRule, MatchBackoff, ShiftedStream
from model.rules.lookahead import PLACEHOLDER_SEED, Lookahead, behind_chunk, chunk_end_sums, chunk_inputs
from model.tokens import stream_tokens
from property_tests.model_core.helpers import codes, config, serve, spec, step, stream, submit, view, world

DRAFTERS = {0: Drafter("pard", 3, None), 1: Drafter("eagle3", 3, None)}
PROTOCOLS = [MatchBackoff(), ShiftedStream()]
PROMPT = list(range(10, 30))


def drafter(lookahead: int) -> Drafter:
    """PARD, EAGLE3 or a chain of D MTP modules, with full attention."""
    return DRAFTERS.get(lookahead, Drafter("mtp", 3, None, chain=lookahead))


def keyed(build: str, keys: KeysRule) -> Build:
    return replace(BUILDS[build], rules=replace(BUILDS[build].rules, keys=keys))


def judged(lookahead: int, keys: KeysRule, build: str, **limits: object) -> World:
    return world(config(drafter=drafter(lookahead), **limits), keyed(build, keys))  # pyright: ignore[reportArgumentType]


# -- claims (X14) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", ["unified", "paired-22", "joint-backoff"])
@pytest.mark.parametrize("keys", PROTOCOLS, ids=lambda rule: rule.name)
@pytest.mark.parametrize("lookahead", [0, 1, 2, 3])
def test_of_a_common_prefix_all_but_the_lookahead_is_claimed(lookahead: int, keys: KeysRule, build: str) -> None:
    """X14: claim = max(c - D, 0) for every common prefix of c tokens, in a prompt that goes on differently."""
    serving = judged(lookahead, keys, build)
    serve(serving, spec(0, PROMPT))
    for common in range(21):
        reader = [*PROMPT[:common], *range(1000 + 100 * common, 1006 + 100 * common)]
        serve(serving, spec(1 + common, reader))
        assert serving.engine.records[1 + common].cached_tokens == max(common - lookahead, 0), common
    assert codes(serving) == set()


@pytest.mark.parametrize("keys", PROTOCOLS, ids=lambda rule: rule.name)
@pytest.mark.parametrize(("lookahead", "claim"), [(0, 19), (1, 19), (2, 18), (3, 17)])
def test_of_a_repeated_prompt_the_last_token_or_the_lookahead_is_computed(
    lookahead: int, claim: int, keys: KeysRule
) -> None:
    """X14: capped at L - 1 for D <= 1, at L - D for more."""
    serving = judged(lookahead, keys, "unified")
    serve(serving, spec(0, PROMPT))
    serve(serving, spec(1, PROMPT))
    assert serving.engine.records[1].cached_tokens == claim
    assert codes(serving) == set()


@pytest.mark.parametrize("policy", list(PublishPolicy)[:3])
@pytest.mark.parametrize("lookahead", [1, 2, 3])
def test_prompts_that_go_on_alike_and_differently_never_read_each_others_cells(
    lookahead: int, policy: PublishPolicy
) -> None:
    """Branches on and off a page end, in turn from one side and the other, whole and in chunks of one page."""
    branches = [[*PROMPT[:cut], *range(300 + 10 * cut, 308 + 10 * cut)] for cut in (7, 8, 9, 12)]
    for keys in PROTOCOLS:
        serving = judged(lookahead, keys, "unified", policy=policy, max_num_tokens=11)
        for number, prompt in enumerate([PROMPT, *branches, *branches, PROMPT]):
            serve(serving, spec(number, prompt))
        assert codes(serving) == set()
        assert serving.engine.totals.cached_tokens > 60


def test_the_last_positions_of_a_shifted_stream_have_no_key() -> None:
    """18093: a key stream of max(L - D, 0) items, so the last D positions can never be published."""
    for lookahead in range(4):
        for length in range(12):
            keys = view(range(length), lookahead=lookahead, rule=ShiftedStream())
            assert keys.length == max(length - lookahead, 0)
            assert len(keys.keys) == keys.length // 4


def test_a_shifted_key_depends_on_exactly_the_tokens_that_its_cells_depend_on() -> None:
    for lookahead in range(4):
        keys = view(PROMPT, lookahead=lookahead, rule=ShiftedStream()).keys
        for changed in range(20):
            other = [*PROMPT[:changed], 999, *PROMPT[changed + 1 :]]
            new = view(other, lookahead=lookahead, rule=ShiftedStream()).keys
            assert [a != b for a, b in zip(keys, new, strict=True)] == [
                changed < 4 * (block + 1) + lookahead for block in range(len(keys))
            ]


def test_raw_keys_are_those_of_a_run_without_a_drafter() -> None:
    plain = view(PROMPT).keys
    for lookahead in range(4):
        assert view(PROMPT, lookahead=lookahead).keys == plain


@pytest.mark.parametrize(
    ("lookahead", "limit", "items"), [(0, None, 19), (1, None, 20), (3, None, 20), (3, 8, 11), (3, 0, 0)]
)
def test_a_limit_leaves_the_evidence_in_the_lookup(lookahead: int, limit: int | None, items: int) -> None:
    """Cut to R + D: without the D the claim would shrink by D each time the other pool limits it."""
    keys = view(PROMPT, lookahead=lookahead)
    assert keys.lookup(limit) == items
    if limit:
        assert keys.trim(items) == limit


# -- the end of a chunk (X15) -----------------------------------------------------------------------------------------

EIGHT = list(range(10, 18))


@pytest.mark.parametrize(
    ("lookahead", "behind", "inputs"),
    [
        (1, [14], [11, 12, 13, 14]),
        (1, [99], [11, 12, 13, 99]),
        (2, [14, 15], [12, 13, 14, 15]),
        (2, [99, 98], [12, 13, 99, 98]),
        (0, [], [10, 11, 12, 13]),
        (5, [14, 15, 16, 17, 18], [15, 16, 17, 18]),  # none of the chunk, and not the one right behind it
    ],
)
def test_the_first_chunk_feeds_the_drafter_the_tokens_behind_it(
    lookahead: int, behind: list[int], inputs: list[int]
) -> None:
    """X15: prompt 10..17 in chunks of 4; a placeholder stands where nobody handed the worker the next tokens."""
    assert chunk_inputs(EIGHT, 0, 4, lookahead, behind) == inputs


@pytest.mark.parametrize("lookahead", [1, 2, 3])
def test_the_tokens_behind_a_chunk_are_the_prompts_or_a_placeholders(lookahead: int) -> None:
    tokens = stream(EIGHT)
    told = behind_chunk(Lookahead.PROMPT, tokens, 4, lookahead, 4096)
    assert told.tolist() == EIGHT[4 : 4 + lookahead]
    assert chunk_inputs(EIGHT, 0, 4, lookahead, told.tolist()) == EIGHT[lookahead : 4 + lookahead]
    found = behind_chunk(Lookahead.PLACEHOLDER, tokens, 4, lookahead, 4096)
    assert found.tolist() == stream_tokens(PLACEHOLDER_SEED + 4, 0, lookahead, 4096).tolist()
    assert found.tolist() != told.tolist()


@pytest.mark.parametrize("lookahead", [1, 2, 3])
@pytest.mark.parametrize(("start", "end"), [(0, 4), (4, 6), (2, 3)])
def test_cells_at_the_end_of_a_chunk_depend_on_the_tokens_behind_it(lookahead: int, start: int, end: int) -> None:
    tokens = stream(EIGHT + list(range(100, 108)))
    cells = min(lookahead, end - start)
    right = chunk_end_sums(Lookahead.PROMPT, tokens, start, end, lookahead, 4096)
    assert right.tolist() == tokens.sums(end - cells + lookahead, end + lookahead).tolist()
    wrong = chunk_end_sums(Lookahead.PLACEHOLDER, tokens, start, end, lookahead, 4096)
    assert not np.isin(wrong, right).any()


# How many cells of 13 tokens are final behind each chunk, by lookahead and budget: those that the prompt's tokens say,
# at its end one more. A budget of 4 ends chunks at 4, 8, 12 and 13.
ENDS = {
    (1, 4): [4, 8, 12, 13],
    (2, 4): [4, 8, 11, 12],
    (3, 4): [4, 8, 10, 11],
    (4, 4): [4, 8, 9, 10],
    (6, 4): [4, 7, 7, 8],
    (2, 8): [8, 12],
}


@pytest.mark.parametrize("rule", Lookahead)
@pytest.mark.parametrize(("lookahead", "budget"), ENDS)
def test_cells_that_wait_for_a_token_nobody_generated_are_provisional(
    lookahead: int, budget: int, rule: Lookahead
) -> None:
    """A last chunk may be shorter than the lookahead: then cells of chunks before it wait for what is chosen, too."""
    build = replace(BUILDS["unified"], rules=replace(BUILDS["unified"].rules, lookahead=rule))
    serving = world(config(drafter=drafter(lookahead), chunk_unit=1, max_num_tokens=budget), build)
    assert serving.watch is not None
    submit(serving, spec(0, 13, 12))
    shadow, found, end = serving.watch.shadow, list[int](), 0
    while end < 13:
        (row,) = step(serving).context
        end, reader = row.end, shadow.readers[row.owner]
        pages = serving.engine.twin.rows(serving.engine.owners[row.owner])[1].view
        cells = shadow.cells[shadow.pool_of[1]][list(pages)].reshape(-1)[:end]
        final = np.flatnonzero(cells != PROVISIONAL)
        assert final.tolist() == list(range(len(final))) and reader.draft_final == len(final)
        told = cells[: len(final)] == reader.tags[1][: len(final)]
        assert told.all() or rule is Lookahead.PLACEHOLDER
        found.append(len(final))
    assert found == ENDS[lookahead, budget]
    if rule is Lookahead.PROMPT:
        step(serving, 3)
        step(serving, 2)
        assert codes(serving) == set()


@pytest.mark.parametrize("keys", PROTOCOLS, ids=lambda rule: rule.name)
@pytest.mark.parametrize("lookahead", [1, 2])
def test_keys_say_what_the_prompt_is_whatever_was_fed(lookahead: int, keys: KeysRule) -> None:
    """X15: a first block is keyed [H(10, 11), 12, 13, 14] (D = 1) or [H(10, 11, 12), 13, 14, 15] in any case."""
    of_prompt = view(EIGHT, lookahead=lookahead, rule=keys)
    shift = lookahead if isinstance(keys, ShiftedStream) else 0
    assert list(of_prompt.items[1:4]) == EIGHT[1 + shift : 4 + shift]
    assert (of_prompt.items[0] == EIGHT[0]) == (shift == 0)
    assert of_prompt.key(0, 4) == view(EIGHT[: 4 + shift], lookahead=lookahead, rule=keys).key(0, 4)


@pytest.mark.parametrize("lookahead", [1, 2, 3])
def test_a_chunk_that_ends_on_placeholders_publishes_what_its_key_does_not_say(lookahead: int) -> None:
    for answer, broken in ((Lookahead.PROMPT, set()), (Lookahead.PLACEHOLDER, {"KEY"})):
        rules = replace(BUILDS["unified"].rules, lookahead=answer)
        serving = world(config(drafter=drafter(lookahead), max_num_tokens=8), replace(BUILDS["unified"], rules=rules))
        serve(serving, spec(0, EIGHT))
        assert codes(serving) == broken
        assert {violation.position for violation in serving.violations} <= {4 - min(lookahead, 4)}
