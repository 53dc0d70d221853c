"""Faults of keys and publication: what a cached page is said to hold."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.keys import EvidenceCut, PaddedShift, RawKeys, TrimOnly
from model.rules.layout import Index, Pairing
from model.rules.lookahead import Lookahead
from model.rules.publish import Publish

ENTRIES = (
    fault(
        "raw-keys",
        {"keys": RawKeys()},
        "unified",
        ("sglang#10846", "sglang#11231"),
        ("KEY", "REUSE"),
        "reports/o04",
        "Accepted length 2.26 with the cache on, 2.39 with it off.",
    ),
    fault(
        "trim-only",
        {"keys": TrimOnly()},
        "unified",
        ("found here: match back-off at a branch on a page end",),
        ("KEY", "REUSE"),
        "faults/trim_only",
        "One drafter cell per branch point belongs to the branch that came first.",
    ),
    fault(
        "placeholder-lookahead",
        {"lookahead": Lookahead.PLACEHOLDER},
        "unified",
        ("sglang#26329", "sglang#26800", "TensorRT-LLM#18093"),
        ("KEY", "PUB"),
        "reports/o05",
        "The same prompt drafts differently when it was prefilled in chunks.",
    ),
    fault(
        "node-coverage",
        {"index": Index("node-coverage", exact=False)},
        "unified",
        ("TensorRT-LLM#17122",),
        ("KEY", "INIT"),
        "reports/o18",
        "A hit claims more of a page than was ever computed into it.",
    ),
    fault(
        "publish-unwritten",
        {"publish": Publish("everything", only_written=False)},
        "paired-22",
        ("seed 000: commit gate",),
        ("PUB", "INIT"),
        "faults/publish_unwritten",
        "A later hit drafts from pages that nobody wrote.",
    ),
    fault(
        "evidence-cut",
        {"keys": EvidenceCut()},
        "joint-backoff",
        ("TensorRT-LLM: match back-off of a limited claim",),
        ("REUSE", "FRONT"),
        "faults/evidence_cut",
        "Two pools that agree claim less than either holds.",
    ),
    fault(
        "publish-tail",
        {"keys": PaddedShift()},
        "joint-18093",
        ("TensorRT-LLM#18093, review: the last D positions",),
        ("KEY", "PUB", "INIT", "REUSE", "OWN"),
        "faults/publish_tail",
        "A prompt that goes on with a certain token drafts from another answer's cell.",
    ),
    fault(
        "coverage-as-whole-block",
        {"index": Index("coverage-as-whole-block", whole=True)},
        "unified",
        ("semantics: prune by page coverage",),
        ("KEY", "INIT", "REUSE"),
        "faults/coverage_as_whole_block",
        "A hit claims the rest of a page that was published for its start.",
    ),
    fault(
        "always-paired",
        {"pairing": Pairing("whatever-has-a-pool", always=True)},
        "unified",
        ("semantics: a drafter of unknown lookahead never pairs",),
        ("KEY",),
        "faults/always_paired",
        "A small draft model loses acceptance behind every branch that lies on a page end.",
    ),
    fault(
        "keys-shifted-though-unpaired",
        {"pairing": Pairing("keys-of-a-pair", keys_unpaired=True)},
        "target-21",
        ("TensorRT-LLM#18093, review",),
        ("REUSE",),
        "faults/keys_shifted_though_unpaired",
        "A run whose drafter does not pair loses its lookahead on every hit.",
    ),
    fault(
        "branch-no-publish",
        {"publish": Publish("written-not-at-branch", fills_branch=False)},
        "paired-22",
        ("seed 000: branch point",),
        ("REUSE",),
        "faults/branch_no_publish",
        "Every request behind a shared prefix recomputes a window, not only the first.",
    ),
)
