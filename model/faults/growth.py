"""Faults of growth: how many pages a row gets, what is undone afterwards, and what is kept for drafts."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.admission import Admission, Rewind

ENTRIES = (
    fault(
        "reserve-twice",
        {"admission": Admission("twice-the-reserve", reserve=2)},
        "unified",
        ("sglang#32459", "sglang#32574"),
        ("ADMIT", "ROLLBACK"),
        "reports/o39",
        "The hit share falls from 97 % to 40 % though few pages are ever written.",
    ),
    fault(
        "draft-charged-twice",
        {"admission": Admission("draft-charged-twice", charges_once=False)},
        "paired-22",
        ("TensorRT-LLM scheduler V2: growth of a paired draft pool",),
        ("ADMIT", "ROLLBACK"),
        "faults/draft_charged_twice",
        "The drafter's pool runs full at half of the load it was sized for.",
    ),
    fault(
        "one-page-a-step",
        {"admission": Admission("one-page-a-step", counts_pages=False)},
        "unified",
        ("ROCm/ATOM#250",),
        ("ADMIT", "OWN", "INIT", "SHAPE", "WINDOW", "PUB", "ROLLBACK"),
        "reports/o44",
        "With small pages a verify step writes past its last page.",
    ),
    fault(
        "one-token-a-step",
        {"admission": Admission("one-token-a-step", grows_row=False)},
        "unified",
        ("vllm-rbln#1128",),
        ("ADMIT", "OWN", "INIT", "SHAPE", "PUB"),
        "reports/o51",
        "Near a page end the verify window lies in a page that nobody reserved.",
    ),
    fault(
        "padded-rewind",
        {"rewind": Rewind("padded-width", recorded=False)},
        "unified",
        ("TensorRT-LLM#18661", "TensorRT-LLM#19120"),
        ("ADMIT", "OWN", "INIT", "SHAPE", "PUB"),
        "reports/o42",
        "More is taken back than was grown, until a step has no pages left.",
    ),
    fault(
        "tail-not-recorded",
        {"rewind": Rewind("tail-not-recorded", records_tail=False)},
        "unified",
        ("sglang-jax#1147", "sglang#13826", "sglang#31616"),
        ("REF", "PROGRESS"),
        "reports/o43",
        "Each request leaks the pages of its last drafts.",
    ),
    fault(
        "target-not-reverted",
        {"admission": Admission("target-keeps-growth", reverts_target=False)},
        "paired-22",
        ("TensorRT-LLM#18093, review",),
        ("ROLLBACK", "ADMIT"),
        "faults/target_not_reverted",
        "A chunk that the drafter's pool refused leaves its target pages behind.",
    ),
)
