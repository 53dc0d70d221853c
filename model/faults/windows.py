"""Faults of windows: which position a window is kept for, and what lies below it."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.admission import Admission
from model.rules.layout import Edge, Mirror, Retention

ENTRIES = (
    fault(
        "freed-on-hope",
        {"retention": Retention("optimistic-position", edge=Edge.OPTIMISTIC)},
        "unified",
        ("vllm#47728", "vllm#47282"),
        ("WINDOW", "OWN", "INIT", "KEY", "ROLLBACK"),
        "reports/o19",
        "Rejected drafts move the window back over pages that are gone.",
    ),
    fault(
        "freed-by-highest",
        {"retention": Retention("highest-position", edge=Edge.HIGHEST)},
        "unified",
        ("llama.cpp#18720", "llama.cpp#18727"),
        ("WINDOW", "OWN", "INIT", "KEY", "ROLLBACK"),
        "reports/o23",
        "The first token of a verify row attends cells that its last one freed.",
    ),
    fault(
        "window-never-moves",
        {"retention": Retention("never-released", tokens=1 << 30)},
        "unified",
        ("sglang#34924",),
        ("WINDOW",),
        "reports/o22",
        "Windowed use grows with every token and ends in retractions.",
    ),
    fault(
        "draft-view",
        {"mirror": Mirror("draft-view", history=False, whole_prompt=True)},
        "mirror-21281",
        ("seed 002: X11, here inside admission",),
        ("ADMIT",),
        "faults/draft_view",
        "Long prompts run one after the other, though the windows of many fit the drafter's pool.",
    ),
    fault(
        "no-history",
        {
            "mirror": Mirror("target-view-without-history", history=False),
            "admission": Admission("draft-outside-admission", counts_draft=False),
        },
        "mirror-21281",
        ("TensorRT-LLM#21281, history hints",),
        ("ADMIT", "OWN", "INIT", "WINDOW", "SHAPE", "PUB", "FRONT"),
        "faults/no_history",
        "The first chunks run; a later one finds the windowed pool full of what no window needs.",
    ),
)
