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


def test_faults_are_drilled_by_name_like_scenarios_are_run(kvtwin: Command) -> None:
    named, optional = kvtwin("drill", "store-at-zero", "raw-keys"), kvtwin("drill", "raw-keys", "--fault", "no-trail")
    assert (named.code, optional.code) == (0, 0)
    assert "2 caught, 0 missed, 0 wrong invariant, 0 false alarm" in named.out
    assert "raw-keys" in optional.out and "no-trail" in optional.out


def test_a_fault_that_is_named_twice_is_drilled_once(kvtwin: Command) -> None:
    found = kvtwin("drill", "raw-keys", "--fault", "raw-keys", "--json").json()
    assert [row["name"] for row in found["faults"]] == ["raw-keys"]


def test_an_unknown_fault_is_one_line(kvtwin: Command) -> None:
    for given in (["--fault", "store-at-one"], ["store-at-one"]):
        answer = kvtwin("drill", *given)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        assert "'store-at-one'" in answer.err


def test_checks_that_look_only_at_what_changed_can_be_drilled(kvtwin: Command) -> None:
    answer = kvtwin("drill", "resume-keeps-locks", "aborted-load-kept", "--check", "incremental", "--json")
    assert answer.code == 0
    assert {row["first"] for row in answer.json()["faults"]} == {"REF"}


def test_a_drill_without_checks_is_refused(kvtwin: Command) -> None:
    answer = kvtwin("drill", "raw-keys", "--check", "off")
    assert answer.code == 2
    assert "incremental" in answer.err
