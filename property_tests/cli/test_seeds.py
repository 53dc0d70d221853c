"""``kvtwin seeds``: the figures of the seeds, each under its id, and what may be said of them."""

from __future__ import annotations

from typing import Any

import pytest

from property_tests.cli.conftest import Command

# Every number that follows from the rules, in the order of the table.
EXACT: dict[str, list[object]] = {
    "X1": [655_360, 327_680],
    "X2": [3.72, 1.375],
    "X3": [327_680, 0.8],
    "X4": [64.57, 18.32, 82.89],
    "X5": [8_268, 20_220, 8_192, 20_096],
    "X6": [1, 128],
    "X7": [12_416] * 3,
    "X8": [16_512, 16_570, 12_416, 16_570, 15_877.67],
    "X9": [16_570] * 3,
    "X10": [26_496, 4_397, 30_600, 30_600, 1],
    "X11": ["could not resize to 131015 tokens", 3, "none"],
    "X12": [256, "none", 35, "ADMIT"],
    "X13": ["clean", *["reads released entries"] * 3, *["clean"] * 4, "reads released entries", "clean"],
    "X14": [13, 20, 12, 20, 11, 19, 10, 18],
    "X15": [
        *["11 12 13 14", "11 12 13 99", "H 12 13 14", "KEY"],
        *["12 13 14 15", "12 13 99 98", "H 13 14 15", "KEY"],
    ],
    "X16": [177, 8_193],
    "X17": [14, 12, 16, 20, 20, "safe", "safe", "INIT"],
}
SLOW = {"S2", "S4", "S5", "S8", "S9", "S10"}


def figures(answer: Any) -> dict[str, Any]:
    return {figure["id"]: figure for figure in answer["figures"]}


def test_the_fast_table_is_green_and_every_exact_figure_comes_out(kvtwin: Command) -> None:
    answer = kvtwin("seeds", "--fast", "--json")
    assert answer.code == 0
    table = figures(answer.json())
    assert not SLOW & set(table)
    for name, wanted in EXACT.items():
        figure = table[name]
        assert [part["ours"] for part in figure["parts"]] == wanted, name
        assert {part["verdict"] for part in figure["parts"]} <= {"exact", "in band"}, name
        assert (figure["verdict"], figure["kind"]) == ("reproduced", ["derived"]), name
    assert {name for name in table if name.startswith("X")} == set(EXACT)
    for name, figure in table.items():
        derived_alone = figure["kind"] == ["derived"]
        assert derived_alone or figure["verdict"] != "reproduced", name
        assert figure["parts"] or figure["needs"], name
        assert figure["free"] or derived_alone or not figure["parts"], f"{name}: which input was fitted?"
        for part in figure["parts"]:
            if part["verdict"] == "in band":
                assert part["low"] <= part["ours"] <= part["high"]
    assert {table[name]["verdict"] for name in ("S1", "S3")} == {"open"}
    assert {table[name]["verdict"] for name in ("S6", "S7", "C1")} == {"in band with fitted input"}


def test_capacity_gains_and_table_entries_are_those_of_the_seed(kvtwin: Command) -> None:
    table = figures(kvtwin("seeds", "S6", "C1", "C2", "--json").json())
    ours = {part["what"]: part["ours"] for part in table["S6"]["parts"]}
    assert (ours["TP4: pages of the unified share"], ours["TP2: pages of the unified share"]) == (4_450, 6_082)
    assert ours["TP4: target pages gained, per cent"] == pytest.approx(2.9, abs=0.3)
    assert ours["TP2: target pages gained, per cent"] == pytest.approx(12.9, abs=0.3)
    entries = [part["ours"] for part in table["C1"]["parts"]]
    assert entries[:2] == [65 * 177 * 8_193, 177 * 8_193]
    assert entries[-1] == pytest.approx(3.5 * 64 / 65, abs=0.01)


def test_a_table_names_the_kind_the_free_parameters_and_the_time(kvtwin: Command) -> None:
    answer = kvtwin("seeds", "x1", "s1", "s7")
    assert answer.code == 0
    text = " ".join(answer.out.split())
    assert "655,360" in text
    assert "fitted input, derived: the measured points" in text
    assert "S1: not measured here, needs a real drafter: kvtwin al --tier t1" in text
    assert "3 figures in" in text
    assert "1 reproduced, 1 open, 1 in band with fitted input" in text


def test_an_exact_figure_that_differs_fails(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.figures.exact.table_columns", lambda longest, page: longest // page)
    answer = kvtwin("seeds", "X16", "--json")
    assert answer.code == 1
    assert figures(answer.json())["X16"]["verdict"] == "differs"


def test_a_shape_that_leaves_its_band_fails(kvtwin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.figures.shapes.affine_error", lambda points: 0.1)
    answer = kvtwin("seeds", "S7")
    assert answer.code == 1
    assert "out of band" in answer.out


def test_a_figure_that_nothing_measures_is_neither_green_nor_failed(kvtwin: Command) -> None:
    assert kvtwin("seeds", "S1", "S3").code == 3


def test_an_unknown_figure_is_named_with_the_nearest_one(kvtwin: Command) -> None:
    answer = kvtwin("seeds", "X18")
    assert answer.code == 2
    assert "expected a figure (did you mean 'X" in answer.err
    assert "found 'X18'" in answer.err
