"""Faults of what the device carries out: slots, bases, tables, windows, provisional cells."""

from __future__ import annotations

from model.drafter import Seed
from model.faults.base import fault
from model.rules.admission import Epoch
from model.rules.device import Extent, Provisional, TableUpload
from model.rules.layout import Retention
from model.rules.slots import Slots

ENTRIES = (
    fault(
        "batch-row-kept",
        {"epoch": Epoch("row-kept", releases_rows=False)},
        "unified",
        ("TensorRT-LLM#13592",),
        ("STATE", "FRONT", "OWN", "KEY", "INIT", "PUB", "SHAPE", "WINDOW", "MAP"),
        "reports/o24",
        "After a suspension a request advances by its neighbour's accepted count.",
    ),
    fault(
        "shared-table-buffer",
        {"table": TableUpload.SHARED_BUFFER},
        "unified",
        ("TensorRT-LLM#15546",),
        ("MAP", "OWN", "PUB", "INIT", "WINDOW", "KEY"),
        "faults/shared_table_buffer",
        "Under load a step reads the block table of the step after it.",
    ),
    fault(
        "count-not-extent",
        {"extent": Extent.COUNT},
        "unified",
        ("seed 002: decode_draft_block_table",),
        ("OWN", "INIT", "WINDOW", "PUB"),
        "faults/count_not_extent",
        "Once a window has released pages, the block's writes land on one cell.",
    ),
    fault(
        "kept-provisional",
        {"provisional": Provisional.KEPT},
        "unified",
        ("vllm#14649",),
        ("INIT", "PUB"),
        "faults/kept_provisional",
        "8 to 15 % of the accepted length is lost on every output.",
    ),
    fault(
        "late-output",
        {"epoch": Epoch("late-applied", refuses_late=False)},
        "unified",
        ("vllm#49620", "vllm#41190"),
        ("STATE", "SHAPE", "METRIC", "FRONT", "OWN", "INIT", "KEY"),
        "faults/late_output",
        "After a preemption a request skips tokens or addresses pages it lost.",
    ),
    fault(
        "base-not-rolled-back",
        {"slots": Slots("length-only-snapshot", keeps_base=False, parks=False)},
        "paired-22",
        ("seed 002: snapshot and rollback",),
        ("ROLLBACK",),
        "faults/base_not_rolled_back",
        "After a failed forward a slot hides the wrong part of its context.",
    ),
    fault(
        "slot-loss-zero",
        {"slots": Slots("restart-at-zero", parks=False, seed=Seed.ZERO)},
        "paired-22",
        ("seed 000: missed iteration", "seed 002"),
        ("PUB", "FRONT", "WINDOW"),
        "faults/slot_loss_zero",
        "A request that misses one iteration drafts from nothing afterwards.",
    ),
    fault(
        "store-at-zero",
        {"slots": Slots("slot-local-store", stores_in_place=False)},
        "paired-22",
        ("seed 002: store start",),
        ("OWN", "PUB", "FRONT", "WINDOW", "KEY", "INIT"),
        "faults/store_at_zero",
        "A hit's drafter context overwrites the shared prefix pages.",
    ),
    fault(
        "release-early",
        {"retention": Retention("one-token-early", tokens=-1)},
        "unified",
        ("TensorRT-LLM KVCacheManagerV2: window release",),
        ("WINDOW", "OWN", "INIT"),
        "faults/release_early",
        "Acceptance dips whenever the window's edge meets a page edge.",
    ),
)
