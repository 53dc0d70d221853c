"""Traces of ops on file: the same digests again, whole files only, and one line for a broken one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from model.builds import BUILDS
from model.config import Memory, RequestSpec, Scope
from model.ops import Cancel, Dispatch, Fail, Op, Settle, Shrink, Submit, Suspend, World
from model.tokens import Segment
from property_tests.sim_room.helpers import BUSY_WORLD, busy, served
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.files import write_lines
from sim.opcodec import decode_config, decode_op, encode_config, encode_op
from sim.optrace import Trace, load_trace, save_trace
from sim.replay import replay_trace, run_trace
from sim.result import RunResult

DISTURBANCES = [
    {"at_iteration": 5, "action": "skip"},
    {"at_iteration": 7, "action": "fail"},
    {"at_iteration": 9, "action": "suspend", "request": 1},
    {"at_iteration": 12, "action": "cancel", "request": 2},
    {"at_iteration": 15, "action": "shrink", "pool": "draft", "pages": 2},
]
HOST_TIER = {"target": {"device_pages": 60, "host_pages": 20}, "draft": 40}

words = st.integers(0, 2**64 - 1)
segments = st.one_of(
    st.tuples(words, st.integers(1, 10**6), st.integers(-1, 4095)).map(lambda fields: Segment(*fields)),
    st.lists(st.integers(0, 4095), min_size=1, max_size=5).map(lambda ids: Segment.of(tuple(ids))),
)
specs = st.builds(
    RequestSpec,
    request_id=st.integers(0, 10**6),
    prompt=st.lists(segments, min_size=1, max_size=4).map(tuple),
    max_new_tokens=st.integers(1, 10**6),
    output_seed=words,
    conversation=st.integers(-1, 100),
    scope=st.builds(Scope, st.text(max_size=5), st.text(max_size=5), st.integers(0, 9), st.integers(0, 9)),
    priority=st.integers(-5, 5),
    output=st.lists(st.integers(0, 4095), max_size=5).map(tuple),
)
ops: st.SearchStrategy[Op] = st.one_of(
    st.builds(Submit, specs),
    st.builds(Dispatch, st.booleans()),
    st.builds(Settle, st.lists(st.integers(1, 16), max_size=5).map(tuple)),
    st.builds(Cancel, st.integers(0, 99)),
    st.builds(Suspend, st.integers(0, 99)),
    st.just(Fail()),
    st.builds(Shrink, st.text(min_size=1, max_size=8), st.integers(0, 10**6)),
)


def recorded() -> RunResult:
    """A busy run with every kind of disturbance and a host tier."""
    return served(busy(pools=HOST_TIER, disturbances=DISTURBANCES), record_ops=True)


def trace_of(run: RunResult) -> Trace:
    digests = (run.decision_digest, run.memory_digest)
    return Trace(run.scenario, run.build, run.seed, run.check, run.config, tuple(run.ops), *digests)


@pytest.fixture(scope="module")
def run() -> RunResult:
    return recorded()


@pytest.fixture
def path(run: RunResult, tmp_path: Path) -> Path:
    save_trace(tmp_path / "trace.jsonl", trace_of(run))
    return tmp_path / "trace.jsonl"


@given(ops)
def test_an_op_survives_the_file(op: Op) -> None:
    again = decode_op(json.loads(json.dumps(encode_op(op))))
    assert type(again) is type(op)
    assert again == op


def test_the_memory_that_pools_were_split_from_survives_the_file(run: RunResult) -> None:
    memory = Memory(32_768, 4_096, (("target", 256), ("draft", 128)), given_share=True)
    config = replace(run.config, memory=memory)
    assert decode_config(json.loads(json.dumps(encode_config(config)))) == config


@pytest.mark.parametrize("pages", [None, [["target"]], [["", 4]], [["target", 0]]])
def test_memory_without_bytes_of_a_page_is_refused(run: RunResult, pages: object) -> None:
    line = encode_config(run.config) | {"memory": {"device": 9, "host": 0, "page_bytes": pages}}
    with pytest.raises(ValueError, match=r"memory\.page_bytes"):
        decode_config(line)


def test_a_configuration_survives_the_file(run: RunResult) -> None:
    again = decode_config(json.loads(json.dumps(encode_config(run.config))))
    assert again == run.config
    assert [type(lifecycle.policy) for lifecycle in again.draft] == [type(part.policy) for part in run.config.draft]


def test_a_run_written_as_ops_runs_again_to_the_same_digests(run: RunResult, path: Path) -> None:
    assert {type(op) for op in run.ops} == {Submit, Dispatch, Settle, Cancel, Suspend, Fail, Shrink}
    again = run_trace(path)
    assert (again.decision_digest, again.memory_digest) == (run.decision_digest, run.memory_digest)
    assert again.records == run.records
    assert again.totals == run.totals
    assert (again.exit_code, again.missed, again.acceptance_mode) == (0, [], "recorded")


def test_the_same_run_writes_the_same_bytes(path: Path, tmp_path: Path) -> None:
    save_trace(tmp_path / "again.jsonl", trace_of(recorded()))
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_a_digest_that_differs_is_a_missed_expectation(run: RunResult) -> None:
    trace = replace(trace_of(run), decision_digest="0" * 64)
    again = replay_trace(trace, BUILDS[run.build])
    assert again.exit_code == 1
    assert again.missed == [f"decision digest: expected {'0' * 64}, found {run.decision_digest}"]


def test_another_build_decides_otherwise_on_the_same_ops_and_owes_no_digest(run: RunResult) -> None:
    again = replay_trace(trace_of(run), BUILDS["paired-22"])
    assert again.decision_digest != run.decision_digest
    assert again.missed == []


def test_recorded_output_ids_are_the_tokens_of_a_request(run: RunResult) -> None:
    told = (7, 7, 7, 9)
    ops = [Submit(replace(op.spec, output=told)) if isinstance(op, Submit) else op for op in trace_of(run).ops]
    world = World(run.config, BUILDS[run.build])
    for op in ops[:12]:
        world.apply(op)
    streams = [request.stream for request in world.engine.live.values() if request.stream is not None]
    assert streams
    for stream in streams:
        end = stream.prompt_length
        assert tuple(stream.tokens(end, end + 4).tolist()) == told
        assert stream.tokens(end + 4, end + 6).tolist() != [7, 7]


def test_every_part_of_a_trace_is_a_trace(run: RunResult) -> None:
    trace = trace_of(run)
    thinned = replace(trace, ops=trace.ops[::2], decision_digest="", memory_digest="")
    result = replay_trace(thinned, BUILDS[run.build], check="exhaustive")
    assert result.codes in ([], ["PROGRESS"])  # the ops that would have finished a request may be gone
    assert result.notes[0].split(" ops were not applied")[0].isdigit()


def test_a_trace_without_checks_has_no_memory_digest_to_compare(run: RunResult, tmp_path: Path) -> None:
    save_trace(tmp_path / "off.jsonl", replace(trace_of(run), check="off", memory_digest="not computed"))
    again = run_trace(tmp_path / "off.jsonl")
    assert again.memory_digest == "not computed"
    assert again.exit_code == 3  # same decisions, and nothing was checked
    assert again.decision_digest == run.decision_digest


def test_a_scenario_may_name_a_trace_in_place_of_a_workload(run: RunResult, path: Path) -> None:
    text = yaml.safe_dump({"geometry": "tiny", "trace": path.name, **BUSY_WORLD, "pools": HOST_TIER})
    result = served(parse_scenario(text, "replay.yaml", path.parent))
    assert result.decision_digest == run.decision_digest
    assert (result.exit_code, result.timings, result.duration_ns) == (0, [], 0)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file.txt"
    write_lines(target, ["old"])

    def broken() -> list[str]:
        raise RuntimeError("no more lines")

    with pytest.raises(RuntimeError):
        write_lines(target, (line for lines in (["new"], broken()) for line in lines))
    assert target.read_text() == "old\n"
    assert [path.name for path in target.parent.iterdir()] == ["file.txt"]


def edit(path: Path, line: int, old: str, new: str) -> None:
    lines = path.read_text().splitlines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "old", "new", "says"),
    [
        (1, '"schema":1', '"schema":9', r":1: expected the header of a kvtwin-ops trace of schema 1"),
        (1, '"seed":3,', "", r":1: expected the key seed in the header"),
        (1, '"page_size"', '"page_sise"', r":1: .*limits to have the fields of Limits"),
        (1, '"build":"unified"', '"build":"unifid"', r":1: build: expected a build .*, found 'unifid'"),
        (2, '"op":"submit"', '"op":"sumbit"', r":2: expected op to be one of submit, dispatch, .*found 'sumbit'"),
        (2, '"output":14', '"output":0', r":2: expected output to be a whole number from 1, found 0"),
        (2, '"output":14', '"outptu":14', r":2: expected only .* in a submit, found outptu"),
        (2, '"output":14', '"output":14,"output_ids":7', r":2: expected output_ids to be a list of token ids, found 7"),
        (2, '"output":14', '"output":14,"output_ids":[-1]', r":2: expected output_ids to be a whole number from 0"),
        (2, '"stream"', '"strem"', r":2: expected a token run with ids, or with stream and tokens"),
        (3, "{", "", r":3: expected a line of JSON"),
        (
            1,
            '"page_size":4',
            '"page_size":0',
            r":1: config\.limits\.page_size: expected a whole number from 1, found 0",
        ),
        (1, '"page_size":4', '"page_size":"4"', r":1: config\.limits\.page_size: expected a whole .*, found '4'"),
        (1, '"page_size":4', '"page_size":4.5', r":1: config\.limits\.page_size: expected a whole .*, found 4.5"),
        (1, '"max_batch":4', '"max_batch":-4', r":1: config\.limits\.max_batch: expected a whole .*, found -4"),
        (1, '"run_ahead":1', '"run_ahead":7', r":1: .*run_ahead is 0 or 1, found 7"),
        (1, '"drafts":3', '"drafts":null', r":1: config\.drafter\.drafts: expected a whole .*, found None"),
        (1, '"kind":"', '"kind":"x', r":1: config\.drafter\.kind: expected a kind of "),
        (1, '"device_pages":60', '"device_pages":0', r":1: config\.pools\.target\.device_pages: .* found 0"),
        (1, '"pool":"target"', '"pool":"targt"', r":1: config\.target\[0\]\.pool: .*did you mean 'target'"),
        (1, '"check":"exhaustive"', '"check":"never"', r":1: check: expected one of off, .*found 'never'"),
    ],
)
def test_a_broken_line_is_named(path: Path, line: int, old: str, new: str, says: str) -> None:
    edit(path, line, old, new)
    with pytest.raises(InputError, match=r"trace\.jsonl" + says) as error:
        run_trace(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x80\xff", b"[" * 5000 + b"\n{}\n", b"1\n2\n"])
def test_a_file_that_is_no_trace_is_refused_in_plain_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"trace\.jsonl.*: expected ") as error:
        load_trace(tmp_path / "trace.jsonl")
    assert "\n" not in str(error.value) and "codec" not in str(error.value)


def test_a_file_that_is_not_there_is_named_once_and_without_a_number(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_trace(tmp_path / "trace.jsonl")
    assert str(error.value).count("trace.jsonl") == 1
    assert "no such file" in str(error.value) and "Errno" not in str(error.value)


def test_only_illegal_ops_are_called_not_applied(run: RunResult) -> None:
    """A server looks for work while the last step is in flight: a good run has dispatches that schedule nothing."""
    trace = trace_of(run)
    world = World(trace.config, BUILDS[run.build])
    idle = [op for op in trace.ops if not world.apply(op).applied]
    assert [type(op) for op in idle].count(Dispatch) >= 2
    assert [type(op) for op in idle if not isinstance(op, Dispatch)] == [Cancel]  # of a request that had ended
    good = tuple(op for op in trace.ops if not isinstance(op, Cancel))
    assert replay_trace(replace(trace, ops=good), BUILDS[run.build]).notes == []
    notes = replay_trace(replace(trace, ops=(Settle((1,)), *good)), BUILDS[run.build]).notes
    assert notes == ["1 op was not applied, the first: op 0 (settle): no iteration is in flight"]


def test_a_trace_that_was_cut_is_refused(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(InputError, match=rf":{len(lines) - 1}: expected the end line .* the trace is cut"):
        load_trace(path)
    path.write_text("")
    with pytest.raises(InputError, match="expected a header and an end line, found an empty file"):
        load_trace(path)
