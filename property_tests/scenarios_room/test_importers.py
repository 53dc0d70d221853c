"""Importers of trace formats, on small files made here: what becomes of a row, and what a broken one gets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from model.tokens import prompt_tokens
from property_tests.scenarios_room.helpers import context, parse, write
from scenarios.errors import InputError
from scenarios.importers import read_aiperf, read_mooncake
from scenarios.loader import trace_scenario
from scenarios.workload import Session, prompt_lengths

V = 1000


def row(**values: object) -> str:
    return json.dumps(values)


def whole(path: Path, **changes: object) -> tuple[Session, ...]:
    return read_mooncake(path, context(**changes), deltas=False)


def test_a_row_without_session_is_a_request_with_its_arrival(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl",
        row(timestamp=0, input_length=10, output_length=3, hash_ids=[7, 8, 9]),
        "",
        row(timestamp=2500, input_length=6, output_length=1, hash_ids=[7, 11]),
    )
    one, other = whole(path)
    assert (one.arrival_s, other.arrival_s) == (0.0, 2.5)
    assert (one.name, other.name) == ("line-1", "line-3")
    assert prompt_lengths(one) == [10]
    assert one.turns[0].max_new_tokens == 3
    assert whole(path, time_scale=0.5)[1].arrival_s == 1.25
    assert len(whole(path, limit=1)) == 1


def test_equal_prefixes_of_hash_ids_give_equal_tokens_and_other_blocks_differ_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl",
        row(input_length=10, output_length=1, hash_ids=[7, 8, 9]),
        row(input_length=12, output_length=1, hash_ids=[7, 8, 9]),
        row(input_length=12, output_length=1, hash_ids=[7, 8, 10]),
        row(input_length=12, output_length=1, hash_ids=[7, 1008, 10]),
    )
    prompts = [prompt_tokens(session.turns[0].append, V).tolist() for session in whole(path)]
    assert prompts[0] == prompts[1][:10], "a partial block is the start of the whole one"
    assert prompts[1][:8] == prompts[2][:8] and prompts[1][8] != prompts[2][8]
    assert prompts[2][8] == 10, "the first token of a block is its id"
    assert prompts[3][4] == 8, "modulo the vocabulary"
    assert prompts[3][5:8] != prompts[2][5:8], "the rest of the block still differs"


def test_rows_without_hash_ids_share_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", row(input_length=9, output_length=1), row(input_length=9, output_length=1))
    one, other = (prompt_tokens(session.turns[0].append, V).tolist() for session in whole(path))
    assert one != other


SESSION = (
    row(session_id="a", turn=1, timestamp=1000, input_length=8, output_length=2, hash_ids=[1, 2]),
    row(session_id="b", input_length=4, output_length=2, hash_ids=[1]),
    row(session_id="a", turn=2, delay=250.5, input_length=14, output_length=2, hash_ids=[1, 2, 3, 4]),
    row(session_id="a", turn=3, timestamp=9000, input_length=5, output_length=2, hash_ids=[1, 5]),
)


def test_whole_prompts_of_a_session_replace_each_other(tmp_path: Path) -> None:
    a, b = whole(write(tmp_path / "t.jsonl", *SESSION))
    assert (a.name, b.name) == ("a", "b")
    assert prompt_lengths(a) == [8, 14, 5]
    assert [turn.whole for turn in a.turns] == [True] * 3
    assert a.arrival_s == 1.0
    assert [turn.think_s for turn in a.turns] == [0.0, 0.2505, 0.0]
    assert [turn.at_s for turn in a.turns] == [None, None, 9.0]


def test_deltas_of_a_session_add_to_the_prompt_and_output_before(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *SESSION)
    a, _ = read_mooncake(path, context(), deltas=True)
    assert prompt_lengths(a) == [8, 8 + 2 + 14, 24 + 2 + 5]
    assert [turn.whole for turn in a.turns] == [False] * 3


def test_gzip_is_known_by_content_not_by_name(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.gz", *SESSION)
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    assert whole(plain) == whole(packed)


BROKEN = {
    "no JSON": ("{", "expected a JSON object"),
    "no object": ("[1]", "expected an object, found [1]"),
    "field twice": ('{"input_length": 1, "input_length": 2}', "the field 'input_length' twice"),
    "not JSON's number": ('{"input_length": NaN}', "NaN"),
    "unknown field": (row(input_length=4, output_length=1, inputs=3), "inputs: expected only delay, extra"),
    "text": (row(text_input="hello", output_length=1), "text_input: expected input_length (text needs a tokenizer"),
    "messages": (row(messages=[], output_length=1), "tokenizer"),
    "no length": (row(output_length=1), "input_length: expected an integer of at least 1, found none"),
    "length as text": (row(input_length="4", output_length=1), "input_length: expected an integer"),
    "length true": (row(input_length=True, output_length=1), "input_length: expected an integer"),
    "negative output": (row(input_length=4, output_length=-1), "output_length: expected an integer of at least 1"),
    "block count": (row(input_length=4, output_length=1, hash_ids=[1, 2]), "hash_ids: expected 1 blocks of 4 for 4"),
    "negative id": (row(input_length=4, output_length=1, hash_ids=[-1]), "hash_ids: expected a list of integers"),
    "ids as text": (row(input_length=4, output_length=1, hash_ids="1"), "hash_ids: expected a list of integers"),
    "negative time": (row(input_length=4, output_length=1, timestamp=-1), "timestamp: expected milliseconds"),
    "both times": (
        row(input_length=4, output_length=1, timestamp=1, delay=1),
        "expected timestamp or delay, found both",
    ),
    "turn out of order": (
        row(session_id="a", turn=3, input_length=4, output_length=1),
        "turn: expected 2 in session 'a'",
    ),
    "empty session name": (row(session_id="", input_length=4, output_length=1), "session_id: expected a name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_is_named_with_its_number(case: str, tmp_path: Path) -> None:
    line, words = BROKEN[case]
    good = row(session_id="a", turn=1, input_length=4, output_length=1, hash_ids=[1])
    path = write(tmp_path / "t.jsonl", good, line)
    with pytest.raises(InputError) as caught:
        whole(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_extra_is_the_only_field_that_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", row(input_length=4, output_length=1, extra={"anything": [1]}))
    assert len(whole(path)) == 1


def test_files_that_are_empty_cut_or_missing_are_named(tmp_path: Path) -> None:
    empty, cut = write(tmp_path / "empty"), tmp_path / "cut"
    cut.write_bytes(gzip.compress((SESSION[1] + "\n").encode() * 1000, mtime=0)[:-20])
    for path, words in ((empty, "at least one row"), (cut, "a whole gzip file"), (tmp_path / "none", "a trace file")):
        with pytest.raises(InputError, match=words) as caught:
            whole(path)
        assert str(path) in str(caught.value)
    (tmp_path / "latin").write_bytes(b'{"session_id": "\xff"}\n')
    with pytest.raises(InputError, match=r"latin:1: expected UTF-8"):
        whole(tmp_path / "latin")


def test_a_request_that_can_never_fit_is_named_by_its_line(tmp_path: Path) -> None:
    rows = [row(session_id="a", input_length=100, output_length=20) for _ in range(3)]
    path = write(tmp_path / "t.jsonl", *rows)
    assert trace_scenario(path, "mooncake", geometry="tiny", block=4).workload().requests == 3
    scenario = trace_scenario(path, "mooncake-delta", geometry="tiny", block=4)
    with pytest.raises(InputError, match=r"jsonl:3: input_length: .* found 340 \+ 20 tokens: it needs 360"):
        scenario.workload()


def test_a_scenario_names_its_trace_relative_to_itself(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", row(input_length=10, output_length=3, hash_ids=[7, 8, 9]))
    text = "workload: {concurrency: 3, trace: {path: t.jsonl, format: mooncake, block: 4}}\n"
    scenario = parse(text).at(None, tmp_path)
    assert scenario.workload().requests == 1
    assert scenario.workload().concurrency == 3


def aiperf(path: Path) -> tuple[Session, ...]:
    return read_aiperf(path, context())


def test_turns_of_an_aiperf_session_add_up(tmp_path: Path) -> None:
    turns = [
        {"input_length": 8, "output_length": 2, "hash_ids": [1, 2], "timestamp": 500, "role": "user"},
        {"input_length": 3, "output_length": 4, "delay": 1500},
        {"input_length": 5, "output_length": 1, "timestamp": 8000, "extra": {}},
    ]
    path = write(tmp_path / "t.jsonl", row(session_id="a", turns=turns), row(turns=turns[:1]))
    a, b = aiperf(path)
    assert (a.name, b.name) == ("a", "line-2")
    assert prompt_lengths(a) == [8, 8 + 2 + 3, 13 + 4 + 5]
    assert a.arrival_s == 0.5
    assert [turn.think_s for turn in a.turns] == [0.0, 1.5, 0.0]
    assert a.turns[2].at_s == 8.0
    assert a.turns[0].append == b.turns[0].append


AIPERF_BROKEN = {
    "text": ([{"text": "hello", "output_length": 3}], "turns[0].text: expected input_length (text needs a tokenizer"),
    "texts": ([{"texts": [{"contents": ["hello"]}]}], "turns[0].texts: expected input_length (text needs a tokenizer"),
    "image": (
        [{"image": "x.png", "input_length": 3, "output_length": 3}],
        "turns[0].image: expected input_length (media",
    ),
    "second turn": (
        [{"input_length": 3, "output_length": 3}, {"input_length": 3}],
        "turns[1].output_length: expected an integer",
    ),
    "assistant": (
        [{"input_length": 3, "output_length": 3, "role": "assistant"}],
        "turns[0].role: expected one of user",
    ),
    "unknown field": (
        [{"input_length": 3, "output_length": 3, "temperature": 0}],
        "turns[0].temperature: expected only",
    ),
    "no turns": ([], "turns: expected a list of turns"),
    "turn that is no object": ([3], "turns[0]: expected an object, found 3"),
}


@pytest.mark.parametrize("case", AIPERF_BROKEN)
def test_a_broken_aiperf_turn_is_named_with_its_line(case: str, tmp_path: Path) -> None:
    turns, words = AIPERF_BROKEN[case]
    path = write(tmp_path / "t.jsonl", row(session_id="x", turns=turns))
    with pytest.raises(InputError) as caught:
        aiperf(path)
    assert str(caught.value).startswith(f"{path}:1: {words}")


def test_an_aiperf_session_comes_once(tmp_path: Path) -> None:
    line = row(session_id="x", turns=[{"input_length": 3, "output_length": 3}])
    with pytest.raises(InputError, match=r":2: session_id: expected a new session, found 'x' again"):
        aiperf(write(tmp_path / "t.jsonl", line, line))
