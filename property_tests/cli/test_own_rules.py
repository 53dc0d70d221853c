"""Rules of the user's own wherever a command takes a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

RULE = """\
from model.rules.claim import Claim, WindowedPair

class Deep(WindowedPair):
    def decide(self, view):
        return Claim(view.target, fresh=False)
"""
OWN = "unified+claim=own_deep_rule:Deep"
TYPO = "unified+claim=own_deep_rule:Deeep"


@pytest.fixture(autouse=True)
def rule(kvtwin: Command, tmp_path: Path) -> None:
    """The rule's file in the current directory: every hit is taken whole, whatever the drafter has of it."""
    (tmp_path / "own_deep_rule.py").write_text(RULE)


def test_a_law_that_ones_own_rule_breaks_is_exit_code_1(kvtwin: Command) -> None:
    assert kvtwin("run", "claim_plus2", "--build", OWN).code == 1
    assert kvtwin("run", "hello", "--build", OWN).code == 0
    compared = kvtwin("compare", "claim_plus2", "--builds", f"unified-nowindow,{OWN},unified", "--json")
    assert compared.code == 1
    assert compared.json()["comparisons"][0]["builds"][1]["name"] == OWN
    assert kvtwin("compare", "claim_plus2", "--builds", "unified-nowindow,unified").code == 0


def test_a_trace_of_ops_names_the_rule_that_wrote_it(kvtwin: Command, tmp_path: Path) -> None:
    assert kvtwin("run", "claim_plus2", "--build", OWN, "--out", "kept").code == 1
    again = kvtwin("run", "--ops", "kept/ops.jsonl", "--json")
    assert again.code == 1
    assert again.json()["runs"][0]["build"] == OWN
    assert again.json()["runs"][0]["missed"] == []
    (tmp_path / "own_deep_rule.py").unlink()
    lines = (tmp_path / "kept/ops.jsonl").read_text().replace("own_deep_rule", "own_lost_rule")
    (tmp_path / "kept/ops.jsonl").write_text(lines)
    assert "found none of the name own_lost_rule" in kvtwin("run", "--ops", "kept/ops.jsonl").err


def test_builds_tells_of_ones_own_rule(kvtwin: Command) -> None:
    told = kvtwin("builds", OWN).out
    assert "rules of your own" in told
    assert "nothing is known of it" in told
    assert "claim" in kvtwin("builds", OWN, "target-21").out


def test_sweep_and_capacity_take_ones_own_rule(kvtwin: Command, tmp_path: Path) -> None:
    swept = kvtwin(
        "sweep", "--what", "lengths", "--every", "60", "--builds", OWN, "--workers", "1", "--out", "s", "--json"
    )
    assert swept.code in (0, 1)
    assert swept.json()["builds"] == [OWN]
    assert OWN in kvtwin("capacity", "s06_tp2", "--builds", OWN, "--json").out


@pytest.mark.parametrize(
    "command",
    [
        ("run", "hello", "--build", TYPO),
        ("compare", "hello", "--builds", f"unified,{TYPO}"),
        ("capacity", "s06_tp2", "--builds", TYPO),
        ("sweep", "--builds", TYPO),
        ("builds", TYPO),
    ],
)
def test_a_rule_that_does_not_exist_is_bad_input(kvtwin: Command, command: tuple[str, ...]) -> None:
    answer = kvtwin(*command)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "expected own_deep_rule:Deeep to exist (did you mean 'Deep'?), found no 'Deeep'" in answer.err


@pytest.mark.parametrize(
    ("module", "answer", "told"),
    [
        ("own_wild_rule", "return 1 / 0", "ZeroDivisionError in decide (own_wild_rule, line 5): division by zero"),
        ("own_void_rule", "return None", "AttributeError in "),  # which the model cannot take
    ],
)
def test_a_rule_that_crashes_breaks_a_law_of_its_own(
    kvtwin: Command, tmp_path: Path, module: str, answer: str, told: str
) -> None:
    (tmp_path / f"{module}.py").write_text(RULE.replace("return Claim(view.target, fresh=False)", answer))
    kept = tmp_path / "kept"
    run = kvtwin("run", "hello", "--build", f"unified+claim={module}:Deep", "--out", kept, "--json")
    assert (run.code, run.err) == (1, "")
    (broken,) = run.json()["runs"][0]["violations"]
    assert broken["code"] == "CRASH"
    assert broken["message"].startswith(told)
    again = kvtwin("run", "--ops", kept / "ops.jsonl", "--json")
    assert (again.code, again.json()["runs"][0]["violations"]) == (1, [broken])
    story = kvtwin("explain", kept, "CRASH")
    assert story.code == 0
    assert told in story.out


def test_a_crash_before_anything_runs_names_the_rule_beside_kvtwin(kvtwin: Command, tmp_path: Path) -> None:
    rule = (
        "from model.rules.budget import Budget, HostShare",
        "class Odd(Budget):",
        "    def __init__(self): super().__init__('odd', HostShare.SLOPES)",
        "    def on_device(self, budget, total, target): return 1 / 0",
    )
    (tmp_path / "own_odd_rule.py").write_text("\n".join(rule))
    answer = kvtwin("capacity", "s06_tp2", "--builds", "unified+budget=own_odd_rule:Odd")
    assert (answer.code, answer.out) == (4, "")
    assert "crashed, which is a defect of kvtwin or of own_odd_rule: ZeroDivisionError" in answer.err


def test_a_rule_that_ends_the_process_ends_nothing_well(kvtwin: Command, tmp_path: Path) -> None:
    """``sys.exit(0)`` in a rule is a crash of the rule: exit 0 would read as fine."""
    leaving = RULE.replace("return Claim(view.target, fresh=False)", "print('leaving'); raise SystemExit(0)")
    (tmp_path / "own_leaving_rule.py").write_text(leaving)
    ran = kvtwin("run", "hello", "--build", "unified+claim=own_leaving_rule:Deep")
    assert ran.code == 1
    assert "SystemExit" in ran.out
    for workers in ("1", "2"):
        fuzzed = kvtwin(
            "fuzz", "--rule", "claim=own_leaving_rule:Deep", "--examples", "4", "--workers", workers, "--json"
        )
        # what the rule prints is no part of the document
        assert (fuzzed.code, fuzzed.json()["failures"][0]["law"]) == (1, "CRASH")
