"""The command line as a user has it: the installed console script, called in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors are tiny, and the workers of a run share the cores

# kvtwin runs without torch, a replay and a training do not
_WITH_TORCH = (
    "test_al.py",
    "test_nightly_device.py",
    "test_replay.py",
    "test_train.py",
    "test_train_input.py",
    "test_train_t2.py",
)
collect_ignore = [] if find_spec("torch") else list(_WITH_TORCH)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as JSON, which must be all that there is."""
        return json.loads(self.out)


Command = Callable[..., Answer]


@pytest.fixture
def kvtwin(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """``kvtwin("run", "hello")`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # those that run the tests may set it
    (script,) = entry_points(group="console_scripts", name="kvtwin")
    main = script.load()

    def call(*arguments: str | Path) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


SCENARIO = """\
geometry: tiny
workload:
  concurrency: 1
  prefixes: {document: 22}
  sessions:
    - {name: cold, prompt: document, output: 6}
    - {name: repeat, prompt: document, output: 6}
acceptance: {forced: [3, 1]}
"""


@pytest.fixture
def scenario_file(tmp_path: Path) -> Callable[..., Path]:
    """``scenario_file(old=new, ...)``: a small good scenario on disk, with lines replaced or added at its end."""

    def write(*, replace: tuple[str, str] = ("", ""), add: str = "", name: str = "small") -> Path:
        path = tmp_path / f"{name}.yaml"
        old, new = replace
        assert old in SCENARIO
        path.write_text((SCENARIO.replace(old, new, 1) if old else SCENARIO) + add)
        return path

    return write
