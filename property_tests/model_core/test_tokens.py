"""Token streams and content tags: what a tag depends on, and what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import model.tokens
from model.tokens import (
    Segment,
    TokenStream,
    cell_tags,
    mix64,
    mix64_array,
    named_seed,
    prefix_sums,
    prompt_tokens,
    segment_tokens,
    stream_tokens,
)

ROOT = Path(__file__).resolve().parents[2]
MASK = (1 << 64) - 1
Ids = NDArray[np.uint32]

words = st.integers(0, MASK)
vocabularies = st.sampled_from([2, 3, 17, 50_257, 200_064, 2**32])
prompts = st.lists(st.integers(0, 3), max_size=40)
long_prompts = st.lists(st.integers(0, 2**32 - 1), max_size=60)


def ids(values: list[int]) -> Ids:
    return np.array(values, dtype=np.uint32)


def nothing_more(start: int, count: int) -> Ids:
    return ids([])


def stream(values: list[int], more: Callable[[int, int], Ids] = nothing_more) -> TokenStream:
    return TokenStream(ids(values), more)


def sums_by_definition(values: list[int], start: int, carry: int) -> list[int]:
    """``S`` one token at a time in Python's own integers."""
    sums = []
    for position, token in enumerate(values, start):
        value = ((token + position * 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 33)) * 0x94D049BB133111EB) & MASK
        carry = (carry + (value ^ (value >> 29))) & MASK
        sums.append(carry)
    return sums


# --- mixing ------------------------------------------------------------------------------------------------------


def test_the_mixer_is_the_finaliser_of_splitmix64() -> None:
    """The first three outputs of splitmix64 from seed 0 (Steele, Lea and Flood 2014)."""
    outputs = [mix64(step * 0x9E3779B97F4A7C15 & MASK) for step in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(values=st.lists(words, max_size=50), span=st.integers(1, 60))
def test_arrays_mix_like_single_words(values: list[int], span: int) -> None:
    array = np.array(values, dtype=np.uint64)
    expected = [mix64(value) for value in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.tokens, "_SPAN", span)
        assert mix64_array(array).tolist() == expected
        assert array.tolist() == values
        assert mix64_array(array, array) is array
    assert array.tolist() == expected


# --- seeds -------------------------------------------------------------------------------------------------------

parts = st.none() | st.booleans() | st.integers() | st.text(alphabet="ab:\\\x1f1strint", max_size=12)


@given(one=st.lists(parts, max_size=4), other=st.lists(parts, max_size=4))
def test_seeds_are_equal_if_and_only_if_the_typed_tuples_are(one: list[object], other: list[object]) -> None:
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (named_seed(*one) == named_seed(*other)) == same


def test_types_and_borders_of_fields_count() -> None:
    seeds = {named_seed(*fields) for fields in [(1,), ("1",), (True,), (1.0,), ("a", "b"), ("ab",), ("a", "", "b")]}
    assert len(seeds) == 7


def test_a_salt_cannot_spell_the_field_that_follows_it() -> None:
    assert named_seed("adapter\x1fstr:salt") != named_seed("adapter", "salt")
    assert named_seed("adapter\\x1fstr:salt") != named_seed("adapter\x1fstr:salt")


# --- segments ----------------------------------------------------------------------------------------------------


@given(seed=st.integers(), start=st.integers(0, 2**40), count=st.integers(0, 50), cut=st.integers(0, 50))
def test_a_stream_of_ids_does_not_depend_on_how_it_is_asked_for(seed: int, start: int, count: int, cut: int) -> None:
    cut = min(cut, count)
    whole = stream_tokens(seed, start, count, 50_257)
    pieces = [stream_tokens(seed, start, cut, 50_257), stream_tokens(seed, start + cut, count - cut, 50_257)]
    assert whole.tolist() == np.concatenate(pieces).tolist()
    assert whole.dtype == np.uint32


@given(seed=words, vocabulary=vocabularies, length=st.integers(0, 60), first=st.integers(-1, 2**40))
def test_ids_stay_inside_the_vocabulary(seed: int, vocabulary: int, length: int, first: int) -> None:
    tokens = segment_tokens(Segment(seed, length, first), vocabulary)
    assert len(tokens) == length
    assert all(0 <= token < vocabulary for token in tokens.tolist())


@given(seed=words, length=st.integers(1, 60), first=st.integers(0, 9_999))
def test_a_first_id_replaces_the_first_and_only_the_first(seed: int, length: int, first: int) -> None:
    plain = segment_tokens(Segment(seed, length), 10_000)
    marked = segment_tokens(Segment(seed, length, first), 10_000)
    assert marked[0] == first
    assert marked[1:].tolist() == plain[1:].tolist()


@given(seed=words, length=st.integers(1, 60), one=st.integers(0, 9_999), other=st.integers(0, 9_999))
def test_runs_with_different_first_ids_differ_at_once(seed: int, length: int, one: int, other: int) -> None:
    assume(one != other)
    marked = [TokenStream(segment_tokens(Segment(seed, length, first), 10_000), nothing_more) for first in (one, other)]
    assert marked[0].common_prefix(marked[1]) == 0


@given(values=long_prompts)
def test_literal_ids_stand_as_given(values: list[int]) -> None:
    segment = Segment.of(tuple(values))
    assert segment.length == len(values)
    assert segment_tokens(segment, 2**32).tolist() == values


@given(seeds=st.lists(st.tuples(words, st.integers(0, 20), st.integers(-1, 5)), max_size=5), literal=long_prompts)
def test_a_prompt_is_its_segments_one_after_the_other(seeds: list[tuple[int, int, int]], literal: list[int]) -> None:
    segments = (*(Segment(*fields) for fields in seeds), Segment.of(tuple(literal)))
    expected = [token for segment in segments for token in segment_tokens(segment, 50_257).tolist()]
    assert prompt_tokens(segments, 50_257).tolist() == expected


def test_a_prompt_of_no_segments_is_empty() -> None:
    assert prompt_tokens((), 50_257).tolist() == []


def test_different_seeds_give_different_ids() -> None:
    rows = {tuple(stream_tokens(seed, 0, 8, 200_064).tolist()) for seed in range(1_000)}
    assert len(rows) == 1_000


# --- sums --------------------------------------------------------------------------------------------------------


@given(values=long_prompts, start=st.integers(0, 2**40), carry=words, span=st.integers(1, 70))
def test_sums_follow_their_definition_whatever_the_span(values: list[int], start: int, carry: int, span: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.tokens, "_SPAN", span)
        assert prefix_sums(ids(values), start, carry).tolist() == sums_by_definition(values, start, carry)


@given(values=long_prompts, cut=st.integers(0, 60))
def test_sums_continue_from_a_carry(values: list[int], cut: int) -> None:
    head = prefix_sums(ids(values[:cut]), 0, 0).tolist()
    tail = prefix_sums(ids(values[cut:]), min(cut, len(values)), head[-1] if head else 0).tolist()
    assert head + tail == prefix_sums(ids(values), 0, 0).tolist()


@given(head=prompts, middle=prompts, tail=prompts, pair=st.permutations(range(4)))
def test_swapped_tokens_change_every_sum_from_the_first_on(
    head: list[int], middle: list[int], tail: list[int], pair: list[int]
) -> None:
    one, other = pair[:2]
    prompt, swapped = [*head, one, *middle, other, *tail], [*head, other, *middle, one, *tail]
    equal = prefix_sums(ids(prompt), 0, 0) == prefix_sums(ids(swapped), 0, 0)
    assert equal.tolist() == [True] * len(head) + [False] * (len(prompt) - len(head))


def test_sums_tell_all_short_prompts_apart() -> None:
    """All 1,092 strings of one to six tokens out of three: sums that ignored the order would collide."""
    strings: list[list[int]] = [[0], [1], [2]]
    for values in strings:
        if len(values) < 6:
            strings.extend([*values, token] for token in range(3))
    sums = {int(prefix_sums(ids(values), 0, 0)[-1]) for values in strings}
    assert len(strings) == 1_092
    assert len(sums) == len(strings)


# --- streams -----------------------------------------------------------------------------------------------------


@given(one=prompts, other=prompts)
def test_the_common_prefix_is_the_number_of_equal_leading_tokens(one: list[int], other: list[int]) -> None:
    expected = 0
    while expected < min(len(one), len(other)) and one[expected] == other[expected]:
        expected += 1
    assert stream(one).common_prefix(stream(other)) == expected
    assert stream(other).common_prefix(stream(one)) == expected


@given(shared=long_prompts, one=prompts, other=prompts)
def test_what_follows_the_first_difference_does_not_count(shared: list[int], one: list[int], other: list[int]) -> None:
    """Two turns that agree again after they branched off stay apart."""
    left, right = [*shared, 1, *one, *other], [*shared, 2, *one, *other]
    assert stream(left).common_prefix(stream(right)) == len(shared)


class Source:
    """Committed ids past a prompt, and the spans that were asked for."""

    def __init__(self, seed: int, most: int | None = None) -> None:
        self.seed = seed
        self.most = most
        self.asked: list[tuple[int, int]] = []

    def __call__(self, start: int, count: int) -> Ids:
        self.asked.append((start, count))
        given = count if self.most is None else max(0, min(count, self.most - start))
        return stream_tokens(self.seed, start, given, 50_257)


@given(values=long_prompts, seed=words, ends=st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_a_stream_that_grows_equals_one_that_was_whole(values: list[int], seed: int, ends: list[int]) -> None:
    source = Source(seed)
    growing = stream(values, source)
    for end in ends:
        growing.require(end)
        assert growing.length >= end
    whole = stream(values + stream_tokens(seed, 0, 400, 50_257).tolist())
    length = growing.length
    assert growing.prompt_length == len(values)
    assert growing.tokens(0, length).tolist() == whole.tokens(0, length).tolist()
    assert growing.sums(0, length).tolist() == whole.sums(0, length).tolist()
    assert cell_tags(growing, 0, length, 0, 7).tolist() == cell_tags(whole, 0, length, 0, 7).tolist()


def test_the_source_is_asked_once_for_each_token_and_for_64_at_least() -> None:
    source = Source(seed=5)
    growing = stream([1, 2, 3], source)
    growing.require(3)
    assert source.asked == []
    growing.tokens(2, 4)
    growing.sums(60, 67)
    cell_tags(growing, 0, 67, 1, 9)
    growing.require(1_000)
    assert source.asked == [(0, 64), (64, 64), (128, 869)]


def test_a_source_may_give_less_than_it_was_asked_for() -> None:
    growing = stream([1, 2, 3], Source(seed=5, most=10))
    assert growing.tokens(3, 8).tolist() == stream_tokens(5, 0, 5, 50_257).tolist()
    assert growing.length == 13


@pytest.mark.parametrize("prompt", [[], [1, 2, 3]])
def test_a_token_that_nobody_can_supply_is_an_error_not_a_short_answer(prompt: list[int]) -> None:
    growing = stream(prompt, Source(seed=5, most=10))
    end = len(prompt) + 11
    with pytest.raises(IndexError, match=f"token {end - 1} of a stream that has {end - 1} tokens"):
        cell_tags(growing, 0, end - 1, 1, 0)
    assert growing.length == end - 1
    assert len(growing.sums(0, end - 1)) == end - 1


@given(
    values=long_prompts,
    seed=words,
    begin=st.integers(0, 90),
    ids=st.lists(st.integers(0, 50_256), min_size=1, max_size=9),
    asked=st.integers(0, 200),
)
def test_a_stream_that_learns_what_was_committed_equals_one_that_knew(
    values: list[int], seed: int, begin: int, ids: list[int], asked: int
) -> None:
    """Whatever had been read of the guess before."""
    learning, at = stream(values, Source(seed)), len(values) + begin
    learning.sums(0, asked)
    learning.learn(at, ids)
    guess = stream_tokens(seed, 0, begin, 50_257).tolist()
    knowing = stream(values + guess + ids)
    end = at + len(ids)
    assert learning.prompt_length == len(values)
    assert learning.tokens(0, end).tolist() == knowing.tokens(0, end).tolist()
    assert learning.sums(0, end).tolist() == knowing.sums(0, end).tolist()


def test_an_empty_range_needs_no_token() -> None:
    source = Source(seed=5, most=0)
    assert cell_tags(stream([1, 2, 3], source), 3, 3, 2, 0).tolist() == []
    assert stream([1, 2, 3], source).tokens(9, 9).tolist() == []
    assert source.asked == []


# --- tags --------------------------------------------------------------------------------------------------------


@given(values=long_prompts, one=words, other=words, seed=words)
def test_equal_prompts_have_equal_tags_whatever_each_request_generates(
    values: list[int], one: int, other: int, seed: int
) -> None:
    requests = [stream(values, Source(output_seed)) for output_seed in (one, other)]
    requests[0].require(len(values) + 50)
    tags = [cell_tags(request, 0, len(values), 0, seed).tolist() for request in requests]
    assert tags[0] == tags[1]
    assert len(set(tags[0])) == len(values)


@given(values=long_prompts, lookahead=st.integers(0, 3), seed=words, begin=st.integers(0, 60))
def test_a_tag_is_the_mixed_sum_of_the_last_token_it_depends_on(
    values: list[int], lookahead: int, seed: int, begin: int
) -> None:
    end = len(values) - lookahead
    assume(begin <= end)
    sums = sums_by_definition(values, 0, 0)
    expected = [mix64(seed ^ sums[position + lookahead]) for position in range(begin, end)]
    assert cell_tags(stream(values), begin, end, lookahead, seed).tolist() == expected


@given(shared=prompts, one=prompts, other=prompts, lookahead=st.integers(0, 3), seed=words)
def test_tags_differ_exactly_from_the_first_cell_that_looks_past_the_common_prefix(
    shared: list[int], one: list[int], other: list[int], lookahead: int, seed: int
) -> None:
    """With a lookahead of D and a common prefix of c tokens, cells [0, c - D) agree and all later ones differ."""
    left, right = stream([*shared, 1, *one]), stream([*shared, 2, *other])
    cells = max(0, min(left.length, right.length) - lookahead)
    agree = cell_tags(left, 0, cells, lookahead, seed) == cell_tags(right, 0, cells, lookahead, seed)
    same = min(cells, max(0, len(shared) - lookahead))
    assert agree.tolist() == [True] * same + [False] * (cells - same)


@given(values=long_prompts, one=words, other=words)
def test_a_cell_of_another_scope_has_another_tag(values: list[int], one: int, other: int) -> None:
    assume(one != other)
    request = stream(values)
    tags = [cell_tags(request, 0, len(values), 0, seed) for seed in (one, other)]
    assert not (tags[0] == tags[1]).any()


def test_tags_do_not_collide_within_a_long_prompt() -> None:
    request = TokenStream(stream_tokens(3, 0, 200_000, 2), nothing_more)
    tags = [cell_tags(request, 0, 199_997, lookahead, named_seed("pool", lookahead)) for lookahead in (0, 1, 3)]
    assert len(np.unique(np.concatenate(tags))) == 3 * 199_997


# --- the same on every machine ------------------------------------------------------------------------------------

REPORT = """
import json
import numpy as np
from model.tokens import Segment, TokenStream, cell_tags, named_seed, prompt_tokens, stream_tokens

seed = named_seed("draft", 1, None, "salt")
prompt = prompt_tokens((Segment(seed, 40_000, 7), Segment.of((1, 2, 3))), 200_064)
stream = TokenStream(prompt, lambda start, count: stream_tokens(11, start, count, 200_064))
tags = cell_tags(stream, 0, 40_100, 1, seed)
print(json.dumps([seed, int(np.bitwise_xor.reduce(tags)), int(tags[0]), int(tags[-1]), int(prompt.sum())]))
"""


def report_under(hash_seed: str) -> list[int]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_seeds_and_tags_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    assert report_under("0") == report_under("1") == report_under("4242")
