"""Faults of the index: what becomes of a page's key when the page is released, replaced or evicted."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.layout import Index

ENTRIES = (
    fault(
        "superseded-key-kept",
        {"index": Index("superseded-key-kept", supersedes=False)},
        "unified",
        ("vllm#49125",),
        ("PUB", "REF"),
        "reports/o72",
        "Index and event stream contradict each other; a short hit finds a page that went.",
    ),
    fault(
        "key-of-a-free-page",
        {"index": Index("keys-outlive-pages", keeps=False)},
        "unified",
        ("imp#1050", "kvcached#362"),
        ("REF", "OWN", "PUB"),
        "reports/o73",
        "A key finds a page that somebody else has by now.",
    ),
    fault(
        "hidden-last-holder",
        {"index": Index("released-before-published", joins=False)},
        "unified",
        ("xllm#828", "xllm#829"),
        ("REF",),
        "reports/o76",
        "The count of used pages never falls, until every request is refused.",
    ),
    fault(
        "eviction-zeroes-count",
        {"index": Index("eviction-zeroes-count", counts=False)},
        "unified",
        ("atlas#373",),
        ("REF", "OWN", "PUB", "KEY", "INIT"),
        "reports/o77",
        "A page is handed out again under a running decode.",
    ),
)
