"""What the scripts of a page are given, without a browser: times that can be drawn, values that can be sorted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from property_tests.cli.conftest import Command


def test_a_run_without_a_clock_is_drawn_by_its_iterations(kvtwin: Command, tmp_path: Path) -> None:
    """Nobody said how long an iteration takes: it counts as a millisecond, and the page says so."""
    assert kvtwin("compare", "ops", "--builds", "unified", "--out", "out").code == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "unified: an iteration counts as 1 ms" in page
    (data,) = re.findall(r'<script type="application/json" id="data-0">(.*?)</script>', page)
    timeline = json.loads(data)["timeline"]
    assert timeline["length"].strip("A=") and timeline["begin"].strip("A=")  # packed zeros are As


def test_every_value_that_a_table_is_sorted_by_is_a_number_to_a_browser(kvtwin: Command, tmp_path: Path) -> None:
    """One of the lifecycles has no window, and JavaScript knows no 'inf'."""
    assert kvtwin("compare", "hello", "--builds", "unified", "--out", "out").code == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "an iteration counts as 1 ms" not in page
    values = re.findall(r'data-value="([^"]*)"', page)
    assert len(values) > 20
    assert all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", value) for value in values)
    assert len(re.findall(r'data-value="[^"]*">all<', page)) == 1
