"""A rule that ends its process is told as its crash, with its program; what else crashes is told with its example."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.builds import BUILDS
from property_tests.fuzz import digest, engine_shards, helpers
from property_tests.fuzz.campaign import Budget, Campaign
from property_tests.fuzz.crew import Alone, Processes
from property_tests.fuzz.engine_shards import mix_of, seed_of
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import Order
from property_tests.fuzz.swarm import play_seed
from property_tests.fuzz.test_campaign_loop import ORDER, campaign
from sim.findings import Crash, Failure
from sim.optrace import Trace

RULE = """\
import os
from model.rules.claim import JointMinimum

class Mine(JointMinimum):
    def decide(self, view):
        os._exit(3)
"""


def test_a_rule_that_ends_its_process_is_a_crash_of_it_with_the_program_up_to_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(failure: Failure) -> str:
        kept.append(failure)
        return "folder"

    (tmp_path / "deadly_claim.py").write_text(RULE)
    monkeypatch.chdir(tmp_path)
    kept: list[Failure] = []
    order = Order(("unified+claim=deadly_claim:Mine",), focus=("claim",))
    done = campaign(1, Processes(1), engine_shards.run_shard, order=order, keep=keep)
    ((failure,), (cause,)) = kept, done.causes
    assert (done.crashes, done.totals.examples, cause.folder) == ([], 1, "folder")
    assert (cause.law, cause.seed) == ("CRASH", seed_of(0, 0))
    assert cause.message == "the process died in Mine.decide (deadly_claim, line 6): exit code 3"
    assert failure.deadly and "Mine.decide" in failure.stack
    assert isinstance(failure.trace, Trace) and failure.trace.ops
    whole = play_seed(seed_of(0, 0), BUILDS["unified"], mix_of("quick", ("claim",)))
    assert list(failure.trace.ops) == whole.ops[: len(failure.trace.ops)]


def test_a_crash_of_kvtwin_names_the_seed_of_its_example_and_the_command_that_comes_to_it() -> None:
    ledger = Ledger(None, ORDER, digest.of_code())
    one = Campaign(ORDER, Budget(examples=16), Alone(), ledger, helpers.crashing_at_13, command="kvtwin fuzz")
    again = "kvtwin fuzz --examples 14"
    assert one.run().crashes == [Crash(13, "ZeroDivisionError: a defect of the harness", seed_of(3, 13), again)]
