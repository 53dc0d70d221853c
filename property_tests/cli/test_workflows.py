"""The example workflows: what GitHub's schema says of them, and what their own commands do, run in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
SUITE = "comparisons: [{scenarios: [smoke/hello], builds: [paired-22, unified]}]\n"


def steps(name: str) -> list[dict[str, Any]]:
    (job,) = yaml.safe_load((FOLDER / name).read_text())["jobs"].values()
    return job["steps"]


def test_there_is_one_for_every_change_and_one_for_a_gpu_at_night() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "nightly-gpu.yml"]
    texts = [path.read_text() for path in WORKFLOWS]
    assert "ubuntu-latest" in texts[0] and "--on cpu" in texts[0]
    assert "[self-hosted, gpu]" in texts[1] and "cron:" in texts[1] and "PLACE: gpu" in texts[1]


def test_they_are_workflows_by_the_schema_of_github(tmp_path: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, *WORKFLOWS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert subprocess.run([*check, wrong], capture_output=True).returncode == 1


def test_no_expression_stands_in_a_command_where_it_could_be_anything() -> None:
    commands = [step["run"] for path in WORKFLOWS for step in steps(path.name) if "run" in step]
    assert len(commands) >= 7
    assert [command for command in commands if "${{" in command] == []


class Runner:
    """Runs steps of a workflow in one folder, as a runner does: ``bash -e``, the first failure ends it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir()
        (tools / "kvtwin").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvtwin "$@"\n')
        (tools / "kvtwin").chmod(0o755)
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder), **environment}
        self.environment["GITHUB_STEP_SUMMARY"] = str(folder / "step.md")

    def run(self, workflow: str, *names: str) -> subprocess.CompletedProcess[str]:
        """Run the named steps, of which each has to be there, with ``--on cpu`` taken for ``--on sim``."""
        by_name = {step["name"]: step["run"] for step in steps(workflow) if "run" in step and "name" in step}
        script = "\n".join(by_name[name] for name in names).replace("--on cpu", "--on sim")
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip


def test_the_commands_store_figures_and_fail_where_they_are_missed(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text(SUITE)
    runner = Runner(tmp_path, {"SUITE": "toy", "PLACE": "sim"})
    first = runner.run("ci.yml", "Nightly", "Summary", "Store the figures")
    assert (first.returncode, first.stderr) == (0, "")
    assert "held to no baseline" in first.stdout and "stored in baseline" in first.stdout
    assert "## kvtwin nightly: suite toy on sim: fine" in (tmp_path / "step.md").read_text()

    assert runner.run("nightly-gpu.yml", "Accept the figures").returncode == 0
    stored = tmp_path / "kvtwin-baselines/toy-sim/baseline.json"
    assert stored.read_text() == (tmp_path / "baseline/baseline.json").read_text()
    stored.write_text(re.sub(r'("cached_tokens": \[\s*)(\d+)', r"\g<1>99", stored.read_text(), count=1))
    missed = runner.run("nightly-gpu.yml", "Nightly")
    assert missed.returncode == 1
    assert missed.stdout.startswith("✗ hello on paired-22: cached tokens 99 → ")
