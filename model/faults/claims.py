"""Faults of claims: how deep a request starts, and what it takes over."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.admission import Admission
from model.rules.claim import TargetCursor
from model.rules.copy import WriteInPlace
from model.rules.prune import LastManagerWins, PruneThenTrim
from model.rules.slots import Slots

ENTRIES = (
    fault(
        "restored-prefix-read",
        {"slots": Slots("prefix-not-hidden", hides_prefix=False)},
        "target-21",
        ("vllm#47930", "vllm#47926"),
        ("INIT", "FRONT"),
        "reports/o01",
        "Accepted length falls to about 1 as soon as prefix caching is on.",
    ),
    fault(
        "target-cursor",
        {"claim": TargetCursor(), "admission": Admission("unclipped", clips=False)},
        "paired-22",
        ("TensorRT-LLM#18280", "TensorRT-LLM#18093"),
        ("FRONT", "PUB", "INIT", "OWN", "KEY"),
        "reports/o02",
        "A repeated prompt drops acceptance from 0.19 to 0.03; nothing crashes.",
    ),
    fault(
        "backoff-after-prune",
        {"prune": PruneThenTrim()},
        "joint-backoff",
        ("vllm#17398",),
        ("WINDOW", "INIT", "OWN", "FRONT", "KEY"),
        "reports/o11",
        "A windowed group reads a page that was released before the hit.",
    ),
    fault(
        "last-manager-wins",
        {"prune": LastManagerWins()},
        "joint-backoff",
        ("TensorRT-LLM#10875",),
        ("WINDOW", "INIT", "PUB", "OWN", "FRONT", "KEY"),
        "reports/o15",
        "Accuracy falls with mixed windows, depending on the order of the groups.",
    ),
    fault(
        "copy-in-place",
        {"copy": WriteInPlace()},
        "unified",
        ("TensorRT-LLM KVCacheManagerV2: partial-page copy",),
        ("OWN", "PUB", "KEY", "INIT"),
        "faults/copy_in_place",
        "Two requests that share a prompt start spoil each other's last page.",
    ),
)
