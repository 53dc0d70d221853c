"""Every command in README.md runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from property_tests.cli.conftest import Answer, Command

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(?:console|sh)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines() if line.startswith("$ ")]
KVTWIN = [command for command in COMMANDS if command.startswith("kvtwin ")]
FOLDER = re.compile(r"\bruns/[\w-]+")
ASKS_A_SHELL = re.compile(r"[^\w\s:+./,=#-]")  # a redirection, a pattern of file names, a quotation
MAKE = [command for command in COMMANDS if command.startswith("make ")]


def test_the_readme_has_the_commands_that_a_user_comes_for() -> None:
    assert {"make run", "make test"} <= set(MAKE)
    verbs = {command.split()[1] for command in KVTWIN}
    listed = {"scenarios", "builds", "faults", "invariants", "schema", "capacity", "pages", "tables"}
    asked = {"run", "compare", "explain", "drill", "sweep", "seeds", "fuzz", "check", "nightly", "baseline"}
    assert verbs == asked | listed
    assert sorted(MAKE + KVTWIN) == sorted(COMMANDS)


@pytest.mark.parametrize("command", sorted(set(MAKE)))
def test_make_targets_exist(command: str) -> None:
    done = subprocess.run([*command.split("#")[0].split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def groups() -> list[list[str]]:
    """The commands in the order of the text, those that name one folder together: they read what the first wrote."""
    found: dict[str, list[str]] = {}
    for command in KVTWIN:
        folder = FOLDER.search(command)
        found.setdefault(folder[0] if folder else command, []).append(command)
    return list(found.values())


def test_a_command_that_reads_a_folder_comes_behind_the_one_that_writes_it() -> None:
    assert sorted(command for group in groups() for command in group) == sorted(KVTWIN)
    written = [group for group in groups() if FOLDER.search(group[0])]
    assert all(f"--out {FOLDER.findall(group[0])[0]}" in group[0] for group in written)
    assert sum(len(group) > 1 for group in written) >= 3
    assert all(len(set(FOLDER.findall(command))) <= 1 for command in KVTWIN)


@pytest.mark.parametrize("group", groups(), ids=lambda group: group[0])
def test_the_commands_run_one_after_the_other(
    tmp_path: Path, kvtwin: Command, monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    """In the order of the text, in one folder; ``# exits N`` behind a command is its exit code, else it is 0.

    A line that means something to a shell goes through one, every other is read as a shell would read it. This is a
    machine of one core: what several processes of a campaign do to each other has tests of its own.
    """
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    assert any(map(ASKS_A_SHELL.search, KVTWIN)), "one at least starts the kvtwin that is installed"
    wrong = []
    for command in group:
        stated = re.search(r"# exits (\d)", command)
        if ASKS_A_SHELL.search(command):
            done = through_a_shell(command, tmp_path)
        else:
            done = kvtwin(*shlex.split(command, comments=True)[1:])
        if done.code != int(stated[1] if stated else 0) or "crashed" in done.err or "Traceback" in done.err:
            wrong.append(f"{command}: exit {done.code}: {done.err or done.out}")
    assert wrong == []


def through_a_shell(command: str, folder: Path) -> Answer:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_the_files_and_pictures_it_names_are_there() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", README)
    assert any(name.endswith(".png") for name in named)
    assert [name for name in named if not (ROOT / name).exists()] == []
