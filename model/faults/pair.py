"""Faults of transfers from a prefill to a decode worker: lists, order, start of generation, and what is given back."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.device import Unbacked
from model.rules.transfer import Transfer

ENTRIES = (
    fault(
        "gen-init-local",
        {"transfer": Transfer("slot-local-seed", seeds_in_place=False), "unbacked": Unbacked.PAGE_ZERO},
        "paired-22",
        ("seed 002: generation start-up of a mirror",),
        ("OWN", "PUB", "FRONT", "KEY", "INIT", "WINDOW"),
        "faults/gen_init_local",
        "After a transfer the drafter writes into page 0, whoever has it.",
    ),
    fault(
        "remaining-as-history",
        {"transfer": Transfer("remaining-length", absolute=False)},
        "unified",
        ("TensorRT-LLM#14377",),
        ("FRONT", "SHAPE", "ADMIT"),
        "reports/o46",
        "With a prefix hit on the decode worker the start of generation fails.",
    ),
    fault(
        "tail-on-gen-init",
        {"transfer": Transfer("recompute-tail-applied", keeps_tail=False)},
        "recompute-tail",
        ("TensorRT-LLM: recompute of a speculative tail, on generation start-up",),
        ("FRONT", "INIT", "SHAPE", "METRIC", "ADMIT", "WINDOW", "PUB", "OWN"),
        "faults/tail_on_gen_init",
        "A decode worker rewinds behind a tail that nobody there will compute.",
    ),
    fault(
        "received-into-running-step",
        {"transfer": Transfer("unfenced-destination", waits_for_target=False)},
        "unified",
        ("vllm#45357",),
        ("FLIGHT", "OWN", "KEY", "INIT", "PUB"),
        "reports/o57",
        "Rare wrong answers under load: a step writes over what was just received.",
    ),
    fault(
        "abort-frees-destination",
        {"transfer": Transfer("freed-at-abort", drains=False)},
        "unified",
        ("sglang#35049", "sglang#32564"),
        ("FLIGHT", "OWN", "KEY", "INIT", "PUB"),
        "reports/o58",
        "After an abort another request answers from the aborted one's prompt.",
    ),
    fault(
        "lists-of-another-group",
        {"transfer": Transfer("one-list-for-all-groups", own_lists=False)},
        "unified",
        ("vllm-ascend#13965", "vllm-ascend#11439"),
        ("MAP", "KEY", "INIT", "PUB"),
        "reports/o65",
        "Drafter pages arrive with the bytes of others; sometimes an index error.",
    ),
    fault(
        "draft-pool-left-out",
        {"transfer": Transfer("target-lists-alone", lists_drafts=False)},
        "unified",
        ("TensorRT-LLM#17371",),
        ("AL",),
        "reports/o67",
        "Accepted length -4 % on short chats, -25 % at 30K tokens, on disaggregated serving alone.",
    ),
    fault(
        "attention-tail-alone",
        {"transfer": Transfer("window-without-retention", keeps_retained=False)},
        "unified",
        ("vllm#56449",),
        ("REUSE",),
        "reports/o17",
        "Remote hits are full, but the decode worker's own hit rate never grows.",
    ),
    fault(
        "removed-before-registered",
        {"transfer": Transfer("removed-then-registered", registers_first=False)},
        "unified",
        ("TensorRT-LLM#15018", "TensorRT-LLM#12933"),
        ("REF", "PUB", "KEY", "INIT", "OWN"),
        "reports/o68",
        "Pages that nobody holds stay in the prefix tree; empty answers until a restart.",
    ),
    fault(
        "sent-before-computed",
        {"transfer": Transfer("unfenced-source", waits_for_source=False)},
        "unified",
        ("vllm#46278", "found here: the same order at the start of a transfer"),
        ("FLIGHT", "KEY", "INIT", "PUB"),
        "faults/sent_before_computed",
        "The decode worker answers from pages that the last prefill step had not written.",
    ),
)
