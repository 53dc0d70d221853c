"""Set-up: what make installs is pinned, and every target that the documents name exists."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    *("run", "fuzz", "arithmetic", "test", "test-core", "test-gpu"),
    *("lint", "format", "bench", "bench-gpu", "setup", "clean"),
)
CUDA_LIBRARIES = ("cuda-", "nvidia-")  # torch's CUDA build pins them itself


@cache
def dry_run(target: str) -> subprocess.CompletedProcess[str]:
    """What make would do for ``target`` where nothing is installed."""
    return subprocess.run(["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True)


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line) for line in lines)
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


def closure(roots: list[Requirement]) -> set[str]:
    """Names of ``roots`` and of all that they need here, extras included."""
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, extra) for requirement in roots for extra in ("", *requirement.extras)]
    while waiting:
        requirement, extra = waiting.pop()
        key = (canonicalize_name(requirement.name), extra)
        if key in seen:
            continue
        seen.add(key)
        for text in metadata.requires(requirement.name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(needed, wanted) for wanted in ("", *needed.extras)]
    return {package for package, _ in seen}


def test_everything_that_make_installs_is_pinned_to_the_installed_version() -> None:
    metadata_ = project()
    extras = metadata_["optional-dependencies"]
    assert isinstance(extras, dict)
    dependencies = metadata_["dependencies"]
    assert isinstance(dependencies, list)
    roots = [*dependencies, *extras["dev"]]
    modules = {"gpu": "torch", "train": "tokenizers", "cluster": "distributed"}
    for extra, module in {**modules, "crosshair": "hypothesis_crosshair_provider"}.items():
        if importlib.util.find_spec(module) is not None:
            roots += extras[extra]
    needed = {name for name in closure([Requirement(text) for text in roots]) if not name.startswith(CUDA_LIBRARIES)}
    assert len(needed) > 25
    pinned = pins()
    assert {package: metadata.version(package).split("+")[0] for package in needed} == {
        package: pinned.get(package) for package in needed
    }


def test_the_gpu_extra_is_pinned_and_stays_an_extra() -> None:
    metadata_ = project()
    extras, dependencies = metadata_["optional-dependencies"], metadata_["dependencies"]
    assert isinstance(extras, dict) and isinstance(dependencies, list)
    weights, torch, triton = (Requirement(text) for text in extras["gpu"])
    assert weights.name == "safetensors" and weights.specifier.contains(pins()["safetensors"])
    assert (torch.name, str(torch.specifier)) == ("torch", f"=={pins()['torch']}")
    assert triton.name == "triton" and triton.specifier.contains(pins()["triton"])
    assert [str(Requirement(text).specifier) for text in extras["flashinfer"]] == ["==0.7.4"]
    heavy = ("torch", "triton", "safetensors", "flashinfer")
    assert not [text for text in [*dependencies, *extras["dev"]] if any(name in text for name in heavy)]


def test_the_command_line_works_where_torch_and_dask_do_not() -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'triton', 'safetensors', 'tokenizers', 'dask', 'distributed'):\n"
        "    sys.modules[name] = None  # an import of it fails\n"
        "import kvtwin\n"
        "kvtwin.main()\n"
    )
    line = [sys.executable, "-c", script, "run", "hello", "--json"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"runs"' in done.stdout


@pytest.mark.parametrize("extra", ["cluster", "crosshair", "train"])
def test_the_other_extras_are_pinned_and_stay_extras(extra: str) -> None:
    metadata_ = project()
    extras, dependencies = metadata_["optional-dependencies"], metadata_["dependencies"]
    assert isinstance(extras, dict) and isinstance(dependencies, list)
    (wanted,) = (Requirement(text) for text in extras[extra])
    assert wanted.specifier.contains(pins()[canonicalize_name(wanted.name)])
    assert not [text for text in [*dependencies, *extras["dev"]] if wanted.name in text]


def test_nobody_but_lint_and_tests_installs_dask() -> None:
    for target, wanted in {"run": False, "fuzz": False, "bench": False, "test-core": True, "test": True}.items():
        done = dry_run(target)
        assert ("'.[cluster]'" in done.stdout) == wanted, target


def test_nobody_but_lint_and_tests_installs_torch() -> None:
    """``make run`` on a machine without an environment installs what kvtwin needs, and no more."""
    for target, wanted in {"run": False, "bench": False, "test-core": False, "lint": True, "test-gpu": True}.items():
        done = dry_run(target)
        assert ("'.[gpu,train]'" in done.stdout) == wanted, target


@pytest.mark.parametrize("target", TARGETS)
def test_make_knows_the_target(target: str) -> None:
    done = dry_run(target)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_second_call_installs_nothing() -> None:
    """The stamp of the environment that runs this test is newer than what it was made from."""
    stamp = ROOT / ".venv" / "installed"
    done = subprocess.run(["make", "--question", "setup"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode == 0) == (
        stamp.exists()
        and all(
            stamp.stat().st_mtime >= (ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt")
        )
    )


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^exec make test$", script.read_text(), re.MULTILINE)
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


def test_python_is_one_that_the_project_declares() -> None:
    assert sys.version_info >= (3, 11)
    assert project()["requires-python"] == ">=3.11"
