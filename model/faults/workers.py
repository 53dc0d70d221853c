"""Faults of several workers: ranks that decide by themselves, and what stands in for a request where there is none."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.ranks import Ranks

ENTRIES = (
    fault(
        "existence-on-one-rank",
        {"ranks": Ranks("existence-by-rank", existence=False)},
        "unified",
        ("vllm-ascend#15505",),
        ("RANK", "PROGRESS"),
        "reports/o75",
        "A hit is announced, another rank lacks its part, and the load fails.",
    ),
    fault(
        "rank-local-load",
        {"ranks": Ranks("own-free-space", device=False)},
        "unified",
        ("sglang#33442",),
        ("RANK", "PROGRESS"),
        "reports/o80",
        "Ranks that differ by one free page load or do not load, and hang in a collective.",
    ),
    fault(
        "host-rank-divergent",
        {"ranks": Ranks("own-host-quota", host=False)},
        "unified",
        ("TensorRT-LLM#17380",),
        ("RANK", "PROGRESS"),
        "reports/o81",
        "A page is in the host tier of some ranks and lost on others; their hits differ.",
    ),
)
