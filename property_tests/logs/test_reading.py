"""Logs on disk: lines, arrays, gzip; fields nobody knows; and one line about what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from property_tests.logs.judging import judged, lines
from property_tests.logs.reference import trtllm_log, vllm_log
from property_tests.logs.test_correct_logs import BUSY
from scenarios.errors import InputError
from sim.logs import documents
from sim.logs.check import check_log
from sim.logs.documents import values

LOG = trtllm_log(BUSY, 1, [(64, (5, 3))])
CREATED = {"event_id": 0, "data": {"type": "created", "num_blocks_per_cache_level": [4]}, "window_size": 64}


def event(number: int, data: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"event_id": number, "data": data, "window_size": 64, **more}


@pytest.mark.parametrize(
    "text",
    [
        lines(LOG),
        "\n" + lines(LOG),
        "\ufeff" + lines(LOG),
        "\ufeff" + json.dumps(LOG),
        json.dumps(LOG),
        json.dumps(LOG, indent=2),
        json.dumps(LOG[:3]) + "\n" + "[]\n" + json.dumps(LOG[3:]) + "\n",
        "[\n" + ",\n".join(json.dumps(one) for one in LOG) + "\n]",
        lines([LOG[0], {}, None, LOG[1:4], LOG[4:]]),
    ],
    ids=[
        "lines",
        "blank first",
        "marked",
        "an array marked",
        "one array",
        "indented",
        "an array a poll",
        "an event a line",
        "empty polls",
    ],
)
def test_an_array_or_lines_are_the_same_log(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_CHUNK", 7)  # so that arrays are read in many pieces
    path = tmp_path / "log.json"
    path.write_text(text)
    report = check_log(path)
    assert sum(report.events.values()) == len(LOG)
    assert report.broken == 0
    packed = tmp_path / "log.json.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert [value for _, value in values(packed)] == [value for _, value in values(path)]


def test_the_line_of_a_finding_is_that_of_its_event(tmp_path: Path) -> None:
    log = [CREATED, event(1, {"type": "removed", "block_hashes": [5]})]
    for text, line in ((lines(log), 2), (json.dumps(log), 1), (json.dumps(log, indent=1), 12)):
        path = tmp_path / "log.json"
        path.write_text(text)
        (finding,) = check_log(path).findings
        assert (finding.line, finding.event, finding.block) == (line, 1, "5")


def test_fields_and_events_that_nobody_knows_are_passed_over_and_counted() -> None:
    grown = [
        {**CREATED, "colour": "red"},
        event(1, {"type": "painted", "shade": 3}),
        event(2, {"type": "removed", "block_hashes": [], "shade": 3}),
    ]
    report = judged(grown)
    assert report.broken == 0
    assert report.unknown == {"field colour": 1, "event type painted": 1, "field data.shade": 1}
    batch = vllm_log(BUSY, 1, 9)[0]
    batch["events"][0]["session_id"] = "s"
    batch["events"].append({"type": "BlockPainted"})
    assert judged([batch]).unknown == {"field BlockStored.session_id": 1, "event type BlockPainted": 1}


STORED = {"type": "stored", "parent_hash": None, "blocks": []}
BLOCK = {"block_hash": 1, "tokens": [{"token_id": 3}], "cache_level": 0, "priority": 0}


def with_block(**changed: Any) -> str:
    """A log whose only block has these fields."""
    return lines([event(0, {**STORED, "blocks": [{**BLOCK, **changed}]})])


VLLM = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1], "block_size": 1}
BAD: dict[str, tuple[str, str]] = {
    "no event": ("", "expected at least one event, found none"),
    "white space": (" \n\n", "expected at least one event, found none"),
    "only empty polls": ("[]\n{}\n", "expected at least one event, found none"),
    "no JSON": ("hello\n", ":1: expected one JSON value on a line, found: "),
    "a broken line": (lines(LOG[:2]) + '{"event_id": 2,\n', ":3: expected one JSON value on a line, found: "),
    "a broken array": (json.dumps(LOG[:2], indent=1)[:-20], "expected JSON, found: "),
    "no comma": ('[{"event_id": 0, "data": {"type": "new"}}\n {}]', ":2: expected , or ] between the elements"),
    "no end": ("[{}", ":1: expected ] at the end of the array, found the end of the file"),
    "something else": ('{"name": "span", "ph": "X"}\n', ":1: expected an event of "),
    "a number": ("5\n", ":1: expected an event of "),
    "no data": ('{"event_id": 0}\n', ":1: data: expected an object, found None"),
    "no id": (lines([event(0, STORED), {**event(1, STORED), "event_id": "1"}]), ":2: event_id: expected an integer"),
    "no type": (lines([event(0, {})]), ":1: data.type: expected created, stored, removed or updated"),
    "no list": (lines([event(0, {**STORED, "blocks": 3})]), ":1: data.blocks: expected a list, found 3"),
    "no hash": (with_block(block_hash=None), ":1: data.blocks[].block_hash: "),
    "no tokens": (with_block(tokens=None), ":1: data.blocks[].tokens: "),
    "a token": (with_block(tokens=[None]), "tokens[].token_id: expected a hash"),
    "a level": (with_block(cache_level="0"), "cache_level: expected an integer"),
    "a rank": (lines([event(0, STORED, attention_dp_rank="a")]), "attention_dp_rank: expected an integer"),
    "a list as a rank": (lines([event(0, STORED, attention_dp_rank=[1])]), "attention_dp_rank: expected an integer"),
    "a window": (lines([{**event(0, STORED), "window_size": [1]}]), ":1: window_size: expected an integer"),
    "a diff": (lines([event(0, {"type": "updated", "block_hash": 1, "priority": 3})]), "data.priority: expected an "),
    "vLLM: no tokens": (lines([{**VLLM, "token_ids": None}]), ":1: token_ids: expected a list, found None"),
    "vLLM: a token": (lines([{**VLLM, "token_ids": [[]]}]), ":1: token_ids: expected a list of integers"),
    "vLLM: a key": (lines([{**VLLM, "extra_keys": 5}]), ":1: extra_keys: expected a list, found 5"),
    "vLLM: keys by name": (lines([{**VLLM, "extra_keys": {"a": 1}}]), ":1: extra_keys: expected a list, found {"),
    "vLLM: no size": (lines([{**VLLM, "block_size": None}]), ":1: block_size: expected an integer"),
    "vLLM: no type": (lines([{"events": [{}]}]), ":1: type: expected BlockStored, BlockRemoved or AllBlocksCleared"),
    "vLLM: an array": (lines([[1.5, [[3]], 0]]), ":1: event: expected an array that begins with the event's type"),
    "vLLM: events": (lines([{"events": 3, "ts": 1}]), ":1: events: expected a list, found 3"),
    "vLLM: a rank": (lines([{"events": [], "data_parallel_rank": "a"}]), ":1: data_parallel_rank: expected an integer"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_gets_one_line_that_says_where(tmp_path: Path, name: str) -> None:
    text, problem = BAD[name]
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        check_log(path)
    line = str(caught.value)
    assert line.startswith(str(path)) and "\n" not in line
    assert problem in line


def test_files_that_are_no_text_or_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    for content, problem in ((b"[{\xff}]", "expected UTF-8"), (b"\x1f\x8b\x08\x00cut", "expected a whole gzip file")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=problem):
            check_log(path)
    with pytest.raises(InputError, match="expected a log, found: No such file"):
        check_log(tmp_path / "nothing")
