"""Faults of claims: how deep a request starts, and what it takes over."""

from __future__ import annotations

from model.faults.base import fault
from model.rules.admission import Admission
from model.rules.claim import DropLastPage, RecomputeTail, TargetCursor, WindowedPair
from model.rules.copy import WriteInPlace
from model.rules.keys import TargetTrims
from model.rules.layout import Layout, Retention, Shape
from model.rules.prune import LastManagerWins, PruneThenTrim
from model.rules.slots import Slots

ENTRIES = (
    fault(
        "restored-prefix-read",
        {"slots": Slots("prefix-not-hidden", hides_prefix=False)},
        "target-21",
        ("vllm#47930", "vllm#47926", "sglang#19796", "sglang#19897"),
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
        ("WINDOW", "INIT", "OWN", "FRONT", "KEY", "REUSE"),
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
        ("OWN", "PUB", "KEY", "INIT", "FLIGHT"),
        "faults/copy_in_place",
        "Two requests that share a prompt start spoil each other's last page.",
    ),
    fault(
        "fallback-cursor",
        {"admission": Admission("cursor-kept-on-fallback", rewinds_on_fallback=False)},
        "joint-backoff",
        ("TensorRT-LLM: paired context admission",),
        ("FRONT", "INIT", "OWN", "WINDOW", "KEY", "PUB"),
        "faults/fallback_cursor",
        "After a claim that was given up the first tokens of a prompt are never computed.",
    ),
    fault(
        "target-first-no-limit",
        {"admission": Admission("own-matches", limits=False)},
        "joint-backoff",
        ("TensorRT-LLM#18093, review", "TensorRT-LLM#18280"),
        ("FRONT", "INIT", "OWN", "KEY", "PUB", "ADMIT"),
        "faults/target_first_no_limit",
        "Each pool starts where its own tree ends, and the drafter reads what it never computed.",
    ),
    fault(
        "backoff-zero-one-pool",
        {"keys": TargetTrims(), "admission": Admission("own-matches", limits=False)},
        "joint-backoff",
        ("TensorRT-LLM: pairing needs back-off in both managers",),
        ("FRONT", "KEY", "INIT", "OWN", "PUB", "ADMIT"),
        "faults/backoff_zero_one_pool",
        "The drafter's pool is a lookahead ahead of the cursor after every hit.",
    ),
    fault(
        "claim-plus1",
        {"claim": WindowedPair("one-token-deeper", extra=1)},
        "unified",
        ("semantics: fresh-mirror limit",),
        ("REUSE", "AL"),
        "faults/claim_plus1",
        "Nothing: the claim is a token deeper than the rule and still safe.",
    ),
    fault(
        "claim-plus2",
        {"claim": WindowedPair("two-tokens-deeper", extra=2)},
        "unified",
        ("semantics: fresh-mirror limit",),
        ("AL", "REUSE"),
        "faults/claim_plus2",
        "The first drafts of a hit see a window that lacks its oldest token.",
    ),
    fault(
        "optional-partial-claim",
        {"claim": WindowedPair("last-page-suffices", complete=False)},
        "unified",
        ("seed 003: OPTIONAL status is all or nothing",),
        ("WINDOW", "OWN", "INIT", "KEY", "REUSE"),
        "faults/optional_partial_claim",
        "A hit drafts over blocks that were never there.",
    ),
    fault(
        "drop-on-every-pass",
        {"claim": DropLastPage("drop-on-every-pass", every_pass=True)},
        "unified",
        ("vllm#32802", "vllm#39171", "vllm#33270"),
        ("REUSE", "WINDOW"),
        "reports/o12",
        "With several groups valid hits shrink to nothing.",
    ),
    fault(
        "common-multiple-drop",
        {"claim": DropLastPage("aligned-after-drop", align=4)},
        "unified",
        ("vllm-ascend#9247",),
        ("REUSE",),
        "reports/o13",
        "32,768 matched tokens become 16,384.",
    ),
    fault(
        "group-veto",
        {"layout": Layout("draft-vetoes", Shape.UNIFIED, draft_required=True)},
        "unified",
        ("vllm#48455", "vllm#48459", "vllm#57032"),
        ("REUSE",),
        "reports/o14",
        "The hit rate is 0 as soon as the drafter has a group of its own.",
    ),
    fault(
        "boundary-only-retention",
        {"retention": Retention("window-without-lookahead", lookahead=False)},
        "joint-backoff",
        ("local-inference-lab/vllm#556", "found here: windows are stored as W + D"),
        ("REUSE", "OWN", "WINDOW", "INIT", "PUB"),
        "reports/o16",
        "0 hit tokens of 16,897, although everything was cached; a chain of modules rewrites cells whose page is gone.",
    ),
    fault(
        "tail-unaligned",
        {"claim": RecomputeTail("recompute-tail-unaligned", aligned=False)},
        "recompute-tail",
        ("TensorRT-LLM: recompute of the speculative tail",),
        ("AL", "REUSE"),
        "faults/tail_unaligned",
        "A hit drafts without the oldest part of its window.",
    ),
)
