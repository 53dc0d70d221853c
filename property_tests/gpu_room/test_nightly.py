"""The commands that README.md lists for one's own GPU are whole: without one each says just that, and runs nothing."""

from __future__ import annotations

import importlib
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
SECTION = README.split("### On your own GPU\n")[1]
COMMANDS = [line.split("#")[0].strip() for line in SECTION.split("```text\n")[1].split("```")[0].splitlines()]
MODULE = "python -m gpu_backend."


def ended(command: str) -> int:
    """The exit code of ``command``, run in this process."""
    words = shlex.split(command)
    if words[0] == "kvtwin":
        (script,) = entry_points(group="console_scripts", name="kvtwin")
        return script.load()(words[1:])
    module = importlib.import_module(words[2])
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{words[2]}.__main__")
    return module.main(words[3:])


def test_the_nightly_has_what_needs_a_gpu() -> None:
    modules = {command.removeprefix(MODULE).split()[0] for command in COMMANDS if command.startswith(MODULE)}
    assert modules == {"soak", "needle", "long_context", "bench_step", "parallel"}
    assert {command.split()[1] for command in COMMANDS if command.startswith("kvtwin ")} == {"replay", "drill"}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_gpu_it_says_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert ended(command) in (2, 3)
    captured = capsys.readouterr()
    assert re.search(r"\bno GPU\b|\bCUDA device\b", captured.err) and captured.out == ""
    assert list(tmp_path.iterdir()) == []
