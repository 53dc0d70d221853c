"""Every command in README.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(?:console|sh)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines() if line.startswith("$ ")]
KVTWIN = [command for command in COMMANDS if command.startswith("kvtwin ")]
FOLDER = re.compile(r"\bruns/[\w-]+")
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
def test_the_commands_run_one_after_the_other(tmp_path: Path, group: list[str]) -> None:
    """In the order of the text, in one folder; ``# exits N`` behind a command is its exit code, else it is 0."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    wrong = []
    for command in group:
        stated = re.search(r"# exits (\d)", command)
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        if done.returncode != int(stated[1] if stated else 0) or "Traceback" in done.stderr:
            wrong.append(f"{command}: exit {done.returncode}: {done.stderr or done.stdout}")
    assert wrong == []


def test_the_files_and_pictures_it_names_are_there() -> None:
    named = re.findall(r"\]\(([^)#:]+)\)", README)
    assert any(name.endswith(".png") for name in named)
    assert [name for name in named if not (ROOT / name).exists()] == []
