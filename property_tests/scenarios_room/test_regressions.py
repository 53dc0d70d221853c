"""Failures that were kept: each file in scenarios/regressions shows what it says, and breaks no correct build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from model.builds import BUILDS
from scenarios import catalog
from scenarios.loader import load_scenario
from scenarios.names import find_build
from scenarios.schema import Scenario
from scenarios.user_rules import is_own
from sim.run import run_scenario

KEPT = {name: path for name, path in catalog.paths().items() if name.startswith("regressions/")}
OWN_RULE = "expected the build that took the rule over (CONTRIBUTING.md, A regression), found a rule of one's own:"
CORRECT = tuple(build.name for build in BUILDS.values() if build.correct)


def kept(path: Path) -> Scenario:
    """The scenario of a kept failure; one whose build is not to be had here fails the test in one line."""
    build = str(yaml.safe_load(path.read_text())["build"])
    if is_own(build):
        pytest.fail(f"{path.name}: build: {OWN_RULE} {build}", pytrace=False)
    return load_scenario(path)


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
@pytest.mark.parametrize("name", KEPT)
def test_a_regression_keeps_its_promise(name: str, check: str) -> None:
    scenario = kept(KEPT[name])
    result = run_scenario(scenario, find_build(scenario.build), check=check)
    assert result.missed == []
    if not find_build(scenario.build).correct:
        assert result.violations, "a fault that shows nothing is no regression"


@pytest.mark.parametrize("build", CORRECT)
@pytest.mark.parametrize("name", KEPT)
def test_a_regression_is_silent_on_every_correct_build(name: str, build: str) -> None:
    result = run_scenario(kept(KEPT[name]), find_build(build), check="exhaustive")
    assert result.violations == []
    assert sum(result.checked.values()) > 0


def test_a_regression_is_of_ops_and_says_where_it_comes_from() -> None:
    assert len(KEPT) >= 4
    for path in KEPT.values():
        assert kept(path).op_specs is not None
        assert path.read_text().startswith("# Found by ")


def test_a_regression_that_still_names_a_rule_of_ones_own_says_what_to_do(tmp_path: Path) -> None:
    own = tmp_path / "KEY_0.yaml"
    text = next(iter(KEPT.values())).read_text()
    own.write_text(re.sub(r"^build: .*$", "build: unified+claim=nobody_has:Mine", text, flags=re.MULTILINE))
    with pytest.raises(pytest.fail.Exception) as failed:
        kept(own)
    assert str(failed.value) == f"KEY_0.yaml: build: {OWN_RULE} unified+claim=nobody_has:Mine"
    assert failed.value.pytrace is False


def test_files_in_folders_below_are_regressions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "regressions" / "nightly" / "KEY_0.yaml"
    deep.parent.mkdir(parents=True)
    deep.write_text(next(iter(KEPT.values())).read_text())
    monkeypatch.setattr(catalog, "HOME", tmp_path)
    assert catalog.paths() == {"regressions/nightly/KEY_0": deep}
    assert catalog.resolve("KEY_0") == catalog.resolve("regressions/nightly/KEY_0") == deep
