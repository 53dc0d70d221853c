"""Every answer that acts on the device: a wrong rule is carried out by both memories alike, whatever harm it does."""

from __future__ import annotations

import enum
from typing import get_type_hints

import pytest
import torch

from gpu_backend.answers import CARRIED_OUT
from gpu_backend.replay.supported import REPLAYED
from model.faults import FAULTS
from model.rules.device import DeviceRules
from property_tests.gpu_room.replaying import follow

WRONG = [
    "count-not-extent", "no-draft-lookahead-pages", "placeholder-lookahead", "kept-provisional",
    "shared-table-buffer", "rebase-reads-only", "unrebased-reader", "adjacent-slot", "standalone-trim",
    "padding-last-cell", "padding-stale-row", "dummy-slot-shared",
]  # fmt: skip
# Under gen-init-local and batch-row-kept two rows of one step write the same cells. The model lets one row follow the
# other; a device runs them at once, and what it leaves is whichever came last.
RACING = ["gen-init-local", "batch-row-kept"]


def answers(build_rules: DeviceRules) -> set[enum.Enum]:
    """The answers of a build, rule by rule."""
    return {getattr(build_rules, rule) for rule in get_type_hints(DeviceRules)}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_leaves_both_memories_equal(device: torch.device, name: str) -> None:
    fault = FAULTS[name]
    _, followers = follow(fault.scenario, device, build=f"fault:{name}")
    for follower in followers:
        assert follower.digest == follower.world.log.memory.digest()
        assert follower.counts.events > 0


@pytest.mark.parametrize("name", RACING)
def test_rows_that_race_for_a_cell_are_found_by_the_devices_own_checks(device: torch.device, name: str) -> None:
    _, followers = follow(FAULTS[name].scenario, device, build=f"fault:{name}")
    found = {finding.code for follower in followers for finding in follower.counts.findings}
    assert {"OWN", "INIT"} <= found


def test_the_replay_knows_every_answer_and_these_faults_give_all_wrong_ones() -> None:
    rules = get_type_hints(DeviceRules)
    known = {member for answer in rules.values() if issubclass(answer, enum.Enum) for member in answer}
    assert known == CARRIED_OUT.keys() | REPLAYED.keys()
    given = set[enum.Enum]().union(*(answers(FAULTS[name].build.rules.device()) for name in WRONG))
    assert given == known
