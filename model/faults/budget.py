"""Faults of the budget: how bytes were split before anything ran."""

from __future__ import annotations

from model.budget import HostShare
from model.faults.base import fault
from model.rules.budget import Budget

ENTRIES = (
    fault(
        "whole-budget-each",
        {"budget": Budget("whole-budget-each", HostShare.FUNDING, splits_device=False)},
        "paired-22",
        ("TensorRT-LLM#12188",),
        ("ADMIT",),
        "reports/o40",
        "Out of memory at the first use of pages that both managers counted as their own.",
    ),
    fault(
        "host-doubled",
        {"budget": Budget("host-doubled", HostShare.FUNDING, splits_host=False)},
        "paired-22",
        ("TensorRT-LLM: host budget given to both managers",),
        ("ADMIT",),
        "faults/host_doubled",
        "The host runs out of pinned memory once both tiers fill up.",
    ),
    fault(
        "share-no-headroom",
        {"budget": Budget("bare-windows", headroom=False)},
        "unified",
        ("seed 003: window-sized share", "seed 000: DFlash headroom"),
        ("ADMIT",),
        "faults/share_no_headroom",
        "With every slot taken, sequences that were admitted wait for pages of the drafter.",
    ),
    fault(
        "window-from-target",
        {"budget": Budget("window-of-the-target", own_window=False)},
        "unified",
        ("TensorRT-LLM: target's window reached the draft cost, 512 tokens charged as 16K",),
        ("ADMIT",),
        "faults/window_from_target",
        "The target's cache is far smaller than planned; the drafter's pool is never full.",
    ),
    fault(
        "trail-uncharged",
        {"budget": Budget("trail-uncharged", HostShare.SLOPES, trail=False)},
        "mirror-21281",
        ("seed 002: trailing page in layout, quota and budget split",),
        ("ADMIT",),
        "faults/trail_uncharged",
        "With every slot taken, one sequence finds no page for its trailing page.",
    ),
)
