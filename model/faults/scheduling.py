"""Faults of admission and scheduling: what a pass takes, promises and undoes."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.admission import Accounting, Admission, Suspension
from model.rules.scheduling import Chunking

ENTRIES = (
    fault(
        "hold-leak",
        {"admission": Admission("claims-kept", frees_failed_first=False)},
        "unified",
        ("TensorRT-LLM#19202",),
        ("ROLLBACK", "PROGRESS"),
        "reports/o33",
        "Nobody is admitted although most pages are only cached.",
    ),
    fault(
        "no-draft-rollback",
        {"admission": Admission("draft-keeps-growth", reverts_draft=False)},
        "paired-22",
        ("TensorRT-LLM#18093, review",),
        ("ROLLBACK", "SHAPE"),
        "faults/no_draft_rollback",
        "Each skipped forward leaves the drafter's pool a little fuller.",
    ),
    fault(
        "draft-outside-admission",
        {"admission": Admission("target-only", counts_draft=False)},
        "paired-22",
        ("TensorRT-LLM#18660",),
        ("ADMIT", "SHAPE", "OWN", "INIT", "WINDOW"),
        "faults/draft_outside_admission",
        "A mirror's resize fails after admission and takes all ranks down.",
    ),
    fault(
        "chunk-floored-to-nothing",
        {"chunking": Chunking("floored-to-nothing", keeps_partial=False)},
        "unified",
        ("TensorRT-LLM scheduler V2: chunk end after a hit",),
        ("PROGRESS",),
        "faults/chunk_floored_to_nothing",
        "A hit inside a page waits for ever; the server looks idle.",
    ),
    fault(
        "discounted-budget",
        {"chunking": Chunking("charged-after-discount", charges_executed=False)},
        "unified",
        ("TensorRT-LLM#13318", "TensorRT-LLM#13351"),
        ("SHAPE",),
        "faults/discounted_budget",
        "A step runs more tokens than max_num_tokens and the event loop dies.",
    ),
    fault(
        "evict-target-only",
        {"suspension": Suspension("target-only", both=False)},
        "paired-22",
        ("TensorRT-LLM#18093, review",),
        ("REF",),
        "faults/evict_target_only",
        "A suspended request keeps its drafter pages locked.",
    ),
    fault(
        "recompute-counted",
        {"accounting": Accounting("hits-with-recompute", recompute_apart=False)},
        "unified",
        ("vllm#25780", "vllm#25787"),
        ("METRIC",),
        "faults/recompute_counted",
        "30 % reuse is reported on prompts that share nothing.",
    ),
    fault(
        "no-draft-lookahead-pages",
        {"admission": Admission("no-block-pages", covers_block=False)},
        "paired-22",
        ("vllm#42971",),
        ("OWN", "PUB", "INIT", "KEY", "FRONT", "ADMIT", "WINDOW"),
        "reports/o49",
        "The accepted length of other requests falls slowly with load.",
    ),
)
