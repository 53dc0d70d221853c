"""The drill on the device: faults that harm its tables, lengths, bases, pages or tags are found by its own checks."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.replay.device_faults import DEVICE_FAULTS
from gpu_backend.replay.drills import NAMES, SEEN, drill
from model.faults import FAULTS
from scenarios.errors import InputError

EXAMPLES = [
    "copy-in-place", "raw-keys", "placeholder-lookahead", "count-not-extent", "kept-provisional", "slot-loss-zero",
    "store-at-zero", "standalone-trim", "adjacent-slot", "base-of-an-ended-request", "rebase-reads-only",
    "unrebased-reader", "shared-table-buffer", "padding-last-cell", "lists-of-another-group", "store-before-step",
    "page-ids-for-slots", "no-draft-lookahead-pages",
]  # fmt: skip


@pytest.mark.parametrize("name", [*EXAMPLES, *DEVICE_FAULTS])
def test_the_device_finds_a_fault_by_itself(device: torch.device, name: str) -> None:
    (row,), interrupted = drill([name], device.type)
    assert not interrupted
    assert row.verdict == "caught", f"{row.found} {row.sound} {row.message}"


def test_a_wrong_rule_that_both_memories_carry_out_leaves_them_equal(device: torch.device) -> None:
    (row,), _ = drill(["store-at-zero"], device.type)
    assert row.equal and row.where == "rule"


def test_a_fault_of_the_device_alone_breaks_the_equality(device: torch.device) -> None:
    for name in ("tag-write-skipped", "copy-one-short", "stale-table-buffer"):
        (row,), _ = drill([name], device.type)
        assert not row.equal and row.where == "device"


def test_every_drilled_fault_has_a_name_of_its_own() -> None:
    assert set(SEEN) <= set(FAULTS)
    assert not set(DEVICE_FAULTS) & set(FAULTS)
    assert len(NAMES) == len(SEEN) + len(DEVICE_FAULTS)


def test_a_fault_that_no_device_can_see_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"expected a fault that leaves its mark on a device.*found 'hold-leak'"):
        drill(["hold-leak"], "cpu")
