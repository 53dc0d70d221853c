"""Exit codes and error lines: 0 fine, 1 broken or missed, 2 bad input, 3 nothing checked, 4 crashed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

Write = Callable[..., Path]


def one_line(text: str) -> str:
    """The single line in ``text``, which must not be a traceback."""
    assert text.count("\n") == 1, text
    assert text.startswith("kvtwin: ")
    assert "Traceback" not in text
    return text.strip()


def test_a_scenario_whose_laws_hold_is_fine(kvtwin: Command) -> None:
    answer = kvtwin("run", "hello")
    assert (answer.code, answer.err) == (0, "")
    assert "hello on unified: fine" in answer.out


def test_target_only_reuse_breaks_a_law(kvtwin: Command) -> None:
    answer = kvtwin("run", "x05_repeat", "--build", "target-only")
    assert answer.code == 1
    assert "law broken" in answer.out


def test_a_missed_expectation_is_told_with_both_figures(kvtwin: Command, scenario_file: Write) -> None:
    answer = kvtwin("run", scenario_file(add="expect: {requests: {1: {cached_tokens: 7}}}\n"))
    assert answer.code == 1
    assert "request 1: cached_tokens: expected 7, found 21" in answer.out


def test_a_broken_law_is_an_error_even_where_the_scenario_expects_it(kvtwin: Command, scenario_file: Write) -> None:
    promise = "expect: {by_build: {target-only: {violations: [INIT], may: [FRONT]}}}\n"
    answer = kvtwin("run", scenario_file(add=promise), "--build", "target-only", "--json")
    (run,) = answer.json()["runs"]
    assert (answer.code, run["missed"]) == (1, [])
    assert "INIT" in {violation["code"] for violation in run["violations"]}


def test_a_run_with_the_checks_off_has_checked_nothing(kvtwin: Command) -> None:
    answer = kvtwin("run", "hello", "--check", "off")
    assert answer.code == 3
    assert "nothing checked" in answer.out


BAD_FILES = {
    "unknown field": (("geometry: tiny", "geometri: tiny"), "", "small.yaml:1: geometri"),
    "negative size": (("document: 22", "document: -22"), "", "small.yaml:4: workload.prefixes.document"),
    "wrong type": (("concurrency: 1", "concurrency: many"), "", "small.yaml:3: workload.concurrency"),
    "unknown preset": (("geometry: tiny", "geometry: huge"), "", "small.yaml:1: geometry"),
    "unknown build": (("geometry: tiny", "geometry: tiny\nbuild: unifed"), "", "small.yaml:2: build"),
    "unknown law": (("", ""), "expect: {violations: [NOPE]}\n", "small.yaml:9: expect.violations"),
    "not YAML": (("geometry: tiny", "geometry: [tiny"), "", "small.yaml:"),
    "window that no pool can hold": (("", ""), "pools: {target: 64, draft: 1}\n", "small.yaml:"),
    "request that can never fit": (("document: 22", "document: 100000"), "", "small.yaml:"),
    "more tokens a step than K + 1": (("[3, 1]", "[99]"), "", "small.yaml:8: acceptance.forced"),
}


@pytest.mark.parametrize(("replace", "add", "place"), BAD_FILES.values(), ids=BAD_FILES)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_bad_scenario_is_one_line_that_says_where(
    kvtwin: Command, scenario_file: Write, tmp_path: Path, command: str, replace: tuple[str, str], add: str, place: str
) -> None:
    answer = kvtwin(command, scenario_file(replace=replace, add=add), "--out", tmp_path / "out")
    assert answer.code == 2
    assert place in one_line(answer.err)
    assert "expected" in answer.err
    assert answer.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


BAD_CALLS = {
    "no scenario": ("run",),
    "unknown scenario": ("run", "helo"),
    "missing file": ("run", "missing.yaml"),
    "unknown build": ("run", "hello", "--build", "unifed"),
    "unknown fault": ("run", "hello", "--build", "fault:none"),
    "unknown option": ("run", "hello", "--fast"),
    "unknown check level": ("run", "hello", "--check", "sometimes"),
    "unknown command": ("walk",),
    "trace without a format": ("run", "--trace", "trace.jsonl"),
    "format without a trace": ("run", "hello", "--format", "mooncake"),
    "scenario and trace": ("run", "hello", "--trace", "trace.jsonl", "--format", "mooncake"),
    "missing trace": ("run", "--trace", "trace.jsonl", "--format", "mooncake"),
    "missing ops": ("run", "--ops", "ops.jsonl"),
    "no scenario to compare": ("compare",),
    "unknown build to compare": ("compare", "hello", "--builds", "unified,unifed"),
    "a build twice": ("compare", "hello", "--builds", "unified,unified"),
    "three builds to tell apart": ("builds", "unified", "unified-page", "paired-22"),
    "an unknown build to look at": ("builds", "unifed"),
    "no build": ("run", "hello", "--build", ""),
    "no builds": ("compare", "hello", "--builds", ""),
    "an empty name among the builds": ("compare", "hello", "--builds", "unified,,paired-22"),
    "a geometry without a trace": ("run", "hello", "--geometry", "tiny"),
    "a block without a trace": ("compare", "hello", "--block", "16"),
    "a limit without a trace": ("run", "hello", "--limit", "3"),
    "no run to explain": ("explain", "missing", "1"),
}


@pytest.mark.parametrize("arguments", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_call_is_one_line(kvtwin: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = kvtwin(*arguments)
    assert answer.code == 2
    one_line(answer.err)
    assert answer.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_near_miss_is_suggested(kvtwin: Command) -> None:
    assert "hello" in one_line(kvtwin("run", "helo").err)


PLAIN_WORDS = {
    ("run", "helo"): "'helo': no such file or scenario (did you mean 'hello'?",
    ("run", "gone/x.yaml"): "'gone/x.yaml': no such file or scenario",
    ("run", "."): ".: expected a scenario file or a name, found a folder",
    ("run", "hello", "--build", "unifed"): "did you mean 'unified'?",
    ("run", "--build", "fault:target-cursr"): "did you mean 'target-cursor'?",
    ("drill", "--fault", "store-at-one"): "did you mean 'store-at-zero'?",
    ("run", "hello", "--check", "often"): "'often' is not one of 'off', 'incremental', 'exhaustive'",
    ("run", "--trace", "t", "--format", "csv"): "'csv' is not one of 'mooncake', 'mooncake-delta', 'aiperf'",
    ("run", "--ops", "gone.jsonl"): "gone.jsonl: expected a readable trace of ops, found: no such file",
    ("run", "--ops", "."): "is a directory",
    ("run", "hello", "--limit", "3"): "expected --limit only beside --trace",
}


@pytest.mark.parametrize(("arguments", "words"), PLAIN_WORDS.items(), ids=map(" ".join, PLAIN_WORDS))
def test_an_error_is_told_in_plain_words(kvtwin: Command, arguments: tuple[str, ...], words: str) -> None:
    told = one_line(kvtwin(*arguments).err)
    assert words in told
    assert not [junk for junk in ("Value error", "Errno", "found found", "of , found") if junk in told]
    assert len(told) < 200


def test_an_empty_file_is_named_as_such(kvtwin: Command, tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "---\n"):
        (tmp_path / "empty.yaml").write_text(text)
        assert (
            "expected a mapping with a geometry and a workload, found an empty file" in kvtwin("run", "empty.yaml").err
        )


@pytest.mark.parametrize(
    "line",
    ["{", '{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": []}', '{"timestamp": 0}', "[1, 2]"],
)
def test_a_broken_line_of_a_trace_is_named(kvtwin: Command, tmp_path: Path, line: str) -> None:
    good = '{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}'
    (tmp_path / "trace.jsonl").write_text(f"{good}\n{line}\n")
    answer = kvtwin("run", "--trace", "trace.jsonl", "--format", "mooncake", "--out", "out")
    assert answer.code == 2
    assert "trace.jsonl:2" in one_line(answer.err)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]


def test_nothing_runs_before_every_scenario_is_read(kvtwin: Command, scenario_file: Write, tmp_path: Path) -> None:
    bad = scenario_file(replace=("geometry: tiny", "geometry: huge"))
    assert kvtwin("run", "hello", bad, "--out", "out").code == 2
    assert not (tmp_path / "out").exists()


class Defect(Exception):
    """Something that no part of kvtwin foresees."""


def test_a_crash_is_one_line_and_tells_how_to_see_more(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise Defect("the shelf\nfell")

    monkeypatch.setattr("reports.runs.run_scenario", broken)
    answer = kvtwin("run", "hello")
    assert answer.code == 4
    assert "Defect: the shelf fell" in one_line(answer.err)
    assert "KVTWIN_TRACEBACK=1" in answer.err
    monkeypatch.setenv("KVTWIN_TRACEBACK", "1")
    told = kvtwin("run", "hello")
    assert told.code == 4
    assert "Traceback" in told.err and "in broken" in told.err


@contextmanager
def ctrl_c(_: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar in whose middle the user presses Ctrl-C."""

    def tick(done: int, total: int) -> None:
        raise KeyboardInterrupt

    yield tick


def test_ctrl_c_keeps_what_a_run_found(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.terminal.progress", ctrl_c)
    answer = kvtwin("run", "hello", "mtp_chain", "--json")
    (run,) = answer.json()["runs"]
    assert (answer.code, answer.err) == (130, "kvtwin: interrupted\n")
    assert (run["verdict"], run["totals"]["finished"]) == ("interrupted", 1)


def test_ctrl_c_leaves_no_half_comparison(kvtwin: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("reports.terminal.progress", ctrl_c)
    answer = kvtwin("compare", "hello", "--out", "out")
    assert (answer.code, answer.out) == (130, "")
    assert list(tmp_path.iterdir()) == []


def test_no_command_at_all_prints_the_help(kvtwin: Command) -> None:
    answer = kvtwin()
    assert answer.code == 0
    assert "Usage: kvtwin" in answer.out and "compare" in answer.out


def test_the_version_is_the_packages(kvtwin: Command) -> None:
    assert kvtwin("--version").out == "kvtwin 0.1.0\n"


def test_the_process_ends_with_the_exit_code_and_minds_a_closed_pipe() -> None:
    """The real process: its exit status, and no complaint when its reader goes away."""
    kvtwin = [sys.executable, "-m", "kvtwin"]
    assert subprocess.run([*kvtwin, "run", "helo"], capture_output=True).returncode == 2
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*kvtwin, "schema"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode != 4
    assert done.stderr == b""


def test_the_end_of_a_file_inside_a_command_is_a_crash_and_not_ctrl_c(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise EOFError("no data left")

    monkeypatch.setattr("reports.runs.run_scenario", ends)
    answer = kvtwin("run", "hello")
    assert answer.code == 4
    assert "EOFError: no data left" in one_line(answer.err)
