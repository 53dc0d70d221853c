"""The stories of all violations on a page, told from one pass over the events, are those that explain tells alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from model.faults import FAULTS
from property_tests.cli.conftest import Command

# Between them: pages, whole steps, dummies of several workers, a result that settles after its request began again.
CASES = ["adp-dummy-target-only", "recompute-without-output"]


def data(page: Path) -> dict[str, Any]:
    """What the scripts of a page read of its first build."""
    found = re.search(r'<script type="application/json" id="data-0">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("fault", CASES)
def test_a_story_of_many_is_the_story_alone(kvtwin: Command, tmp_path: Path, fault: str) -> None:
    scenario, build = FAULTS[fault].scenario, f"fault:{fault}"
    kvtwin("compare", scenario, "--builds", build, "--out", "page")
    kvtwin("run", scenario, "--build", build, "--out", "run")
    told = data(tmp_path / "page/report.html")["violations"]
    assert len(told["stories"]) == len(told["code"]) > 0
    for number in {1, 2, len(told["code"])} & set(range(1, len(told["code"]) + 1)):
        alone = kvtwin("explain", "run", str(number), "--json").json()
        assert told["stories"][number - 1].splitlines() == alone["story"]
        assert told["laws"][told["code"][number - 1]] == alone["law"]
        assert told["headlines"][number - 1] in kvtwin("explain", "run", str(number)).out


def test_without_checks_there_are_no_stories(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("compare", "hello", "--builds", "target-only", "--check", "off", "--out", "page")
    assert data(tmp_path / "page/report.html")["violations"]["stories"] == []
    assert "Nothing was checked." in (tmp_path / "page/report.html").read_text()
