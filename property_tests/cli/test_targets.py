"""Where results go: below ``--out`` and nowhere else, and over nothing that kvtwin did not write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

Write = Callable[..., Path]


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["../../evil", "a/b", "/evil", "..", ".hidden", "a\\b", "", "a\nb"])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_scenario_cannot_name_a_place_outside_the_folder_of_results(
    kvtwin: Command, scenario_file: Write, tmp_path: Path, command: str, name: str
) -> None:
    bad = scenario_file(add=f"name: {json.dumps(name)}\n")
    answer = kvtwin(command, "hello", bad, "--out", "deep/out")
    assert (answer.code, answer.out) == (2, "")
    assert "small.yaml:9: name: expected" in answer.err
    assert answer.err.count("\n") == 1
    assert below(tmp_path) == {"small.yaml"}


def test_a_file_of_the_users_beside_results_is_kept(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "keep")
    (tmp_path / "keep/mine.txt").write_text("mine")
    before = below(tmp_path)
    answer = kvtwin("run", "hello", "--out", "keep")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("kvtwin: keep: ") and "mine.txt" in answer.err and answer.err.count("\n") == 1
    assert (tmp_path / "keep/mine.txt").read_text() == "mine"
    assert below(tmp_path) == before


@pytest.mark.parametrize("place", ["mine.txt", "hello/mine.txt", "mtp_chain/deeper/mine.txt"])
def test_a_file_of_the_users_anywhere_below_several_results_is_kept(
    kvtwin: Command, tmp_path: Path, place: str
) -> None:
    kvtwin("run", "hello", "mtp_chain", "--out", "runs")
    (tmp_path / "runs" / place).parent.mkdir(exist_ok=True)
    (tmp_path / "runs" / place).write_text("mine")
    answer = kvtwin("compare", "hello", "--builds", "unified", "--out", "runs")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert place.split("/", 1)[0] in answer.err
    assert (tmp_path / "runs" / place).read_text() == "mine"


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"files": 3}', '{"files": ["result.json"]}'])
def test_a_manifest_that_does_not_list_a_file_gives_no_leave_to_remove_it(
    kvtwin: Command, tmp_path: Path, manifest: str
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/kvtwin.json").write_text(manifest)
    (tmp_path / "thesis/chapter1.txt").write_text("dear reader")
    assert kvtwin("run", "hello", "--out", "thesis").code == 2
    assert below(tmp_path / "thesis") == {"kvtwin.json", "chapter1.txt"}


def test_a_symbolic_link_is_not_replaced(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    answer = kvtwin("run", "hello", "--out", "link")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert (tmp_path / "link").is_symlink() and not below(tmp_path / "real")


def test_several_results_replace_several_results_and_leave_none_of_the_old(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "hello", "mtp_chain", "--out", "runs").code == 0
    builds = ("--builds", "unified")
    assert kvtwin("compare", "hello", "conversation", *builds, "--out", "runs").code == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"kvtwin.json", "hello", "conversation"}
    assert kvtwin("run", "mtp_chain", "--out", "runs").code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == ["course"]
    assert json.loads((tmp_path / "runs/result.json").read_text())["scenario"] == "mtp_chain"


def test_the_manifest_lists_what_lies_beside_it(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "mtp_chain", "--out", "runs")
    group, one = (json.loads((tmp_path / path / "kvtwin.json").read_text()) for path in ("runs", "runs/hello"))
    assert (group["files"], group["folders"]) == ([], ["hello", "mtp_chain"])
    beside = {path.name for path in (tmp_path / "runs/hello").iterdir()}
    assert {*one["files"], *one["folders"], "kvtwin.json"} == beside
    assert one["folders"] == ["course"]
