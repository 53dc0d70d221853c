"""Faults of scopes and key width: what the key of a page leaves out."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.keys import NarrowKeys
from model.rules.scope import ScopeKey

ENTRIES = (
    fault(
        "untyped-scope",
        {"scope": ScopeKey("untyped", typed=False)},
        "unified",
        ("vllm#44701", "vllm#44706"),
        ("KEY",),
        "reports/o70",
        "A request without an adapter is served from an adapter's cache.",
    ),
    fault(
        "narrow-keys",
        {"keys": NarrowKeys()},
        "unified",
        ("LMCache#4086", "LMCache#4783", "openvino.genai#3722"),
        ("KEY", "PUB", "REUSE"),
        "reports/o71",
        "Once in a while a prompt is answered as if it were another one.",
    ),
    fault(
        "stale-target-weights",
        {"scope": ScopeKey("target-weights-not-keyed", target_weights=False)},
        "unified",
        ("lmdeploy#4917",),
        ("KEY",),
        "reports/o74",
        "After a weight update hits mix old prefixes with new weights.",
    ),
    fault(
        "stale-draft-weights",
        {"scope": ScopeKey("draft-weights-not-keyed", draft_weights=False)},
        "unified",
        ("lmdeploy#4917",),
        ("KEY",),
        "reports/o74",
        "After an update of the drafter alone the accepted length falls on hits.",
    ),
)
