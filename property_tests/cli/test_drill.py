"""``kvtwin drill``: every fault is caught by the law that has to notice it first, and sound builds are silent."""

from __future__ import annotations

from model.faults import FAULTS
from property_tests.cli.conftest import Command


def test_the_drill_catches_every_fault(kvtwin: Command) -> None:
    answer = kvtwin("drill", "--json")
    assert answer.code == 0
    found = answer.json()
    assert [row["name"] for row in found["faults"]] == list(FAULTS)
    assert found["verdicts"] == {"caught": len(FAULTS), "missed": 0, "wrong invariant": 0, "false alarm": 0}


def test_one_fault_is_drilled_by_name(kvtwin: Command) -> None:
    answer = kvtwin("drill", "--fault", "store-at-zero", "--fault", "raw-keys")
    assert answer.code == 0
    assert "2 caught, 0 missed, 0 wrong invariant, 0 false alarm" in answer.out


def test_an_unknown_fault_is_one_line(kvtwin: Command) -> None:
    answer = kvtwin("drill", "--fault", "store-at-one")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert "'store-at-one'" in answer.err
