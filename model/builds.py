"""Named rule sets: the states of upstream that can be compared, with their provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.rules.admission import Admission
from model.rules.base import Rules
from model.rules.budget import FUNDING, SLOPES
from model.rules.claim import DropLastPage, JointMinimum, RecomputeTail, TargetOnly, WindowedPair, WithoutWindow
from model.rules.keys import LookaheadHash, ShiftedStream, WholeBlocks
from model.rules.layout import Layout, Mirror, Retention, Shape
from model.rules.publish import BranchWindow, Publish
from model.rules.slots import Slots
from model.rules.transfer import Transfer

DEFAULT_BUILD = "unified"


@dataclass(frozen=True, slots=True)
class Build:
    """A rule set. ``correct``: every law is silent on it; otherwise ``must_fire`` lists the codes it has to break."""

    name: str
    rules: Rules
    summary: str
    provenance: str
    correct: bool = True
    must_fire: tuple[str, ...] = ()


_SEPARATE = Layout("separate", Shape.SEPARATE)
_PAIRED = Layout("paired", Shape.PAIRED)
_UNIFIED = Rules()
_TRAILING = Retention("window-and-trailing-page", pages=1)
_WHOLE_BLOCKS = Publish("whole-blocks", draft_at_endpoint=False, branch=BranchWindow.NEVER, partial_pages=False)
_PAIRED_22 = Rules(layout=_PAIRED, budget=FUNDING, publish=Publish(), retention=_TRAILING)

BUILDS: dict[str, Build] = {
    build.name: build
    for build in (
        Build(
            "target-only",
            Rules(
                layout=_SEPARATE,
                budget=SLOPES,
                claim=TargetOnly(),
                publish=Publish("everything", only_written=False),
                slots=Slots("prefix-not-hidden", hides_prefix=False),
            ),
            "The target's match moves the cursor; the drafter's pool never saw the prefix.",
            "main before #18093",
            correct=False,
            must_fire=("INIT", "FRONT"),
        ),
        Build(
            "target-21",
            Rules(layout=_SEPARATE, budget=SLOPES, claim=TargetOnly("target-only-full-pages", full_pages=True)),
            "Unpaired, full-page claims; the drafter hides what it never saw and drafts from less.",
            "#21 alone (hypothesis of seed 000's 561,484 prefilled tokens)",
        ),
        Build(
            "joint-18093",
            Rules(
                layout=_PAIRED,
                budget=SLOPES,
                keys=ShiftedStream(),
                claim=JointMinimum(),
                publish=Publish("per-chunk", draft_at_endpoint=False, branch=BranchWindow.NEVER),
            ),
            "Two pools under one cursor, both keyed on the stream shifted by the lookahead.",
            "#18093 as proposed (seed 004)",
        ),
        Build(
            "joint-backoff",
            Rules(
                layout=_PAIRED,
                budget=SLOPES,
                claim=JointMinimum(),
                publish=Publish("per-chunk", draft_at_endpoint=False, branch=BranchWindow.NEVER),
            ),
            "Two pools claim the lesser of their matches; matches are trimmed by the lookahead.",
            "what was merged in place of #18093",
        ),
        Build(
            "mirror-legacy",
            Rules(
                layout=_SEPARATE,
                budget=SLOPES,
                claim=TargetOnly(),
                mirror=Mirror("legacy-draft-view", history=False, whole_prompt=True),
                admission=Admission("draft-outside-admission", counts_draft=False),
            ),
            "The mirror is sized for the whole prompt at once, outside admission; a windowed pool cannot hold it.",
            "main before #21281 (seed 002)",
            correct=False,
            must_fire=("ADMIT",),
        ),
        Build(
            "mirror-21281",
            Rules(layout=_SEPARATE, budget=SLOPES, claim=TargetOnly(), retention=_TRAILING),
            "An unpaired mirror sized from the request's history, with a page of retention below its window.",
            "#21281 (seed 002)",
        ),
        Build(
            "recompute-tail",
            Rules(layout=_SEPARATE, budget=SLOPES, claim=RecomputeTail(), retention=_TRAILING),
            "Unpaired; a hit is rewound so that the drafter's window runs through the target again.",
            "recompute of the speculative tail, upstream",
        ),
        Build(
            "paired-22",
            _PAIRED_22,
            "Paired pools: fresh mirrors up to a window before the end, branch windows published once.",
            "#22, paired draft reuse (seed 000)",
        ),
        Build(
            "paired-22-nobranch",
            replace(
                _PAIRED_22,
                claim=WindowedPair("windowed-pair-no-branch", branch=False),
                publish=Publish("written-no-branch", branch=BranchWindow.NEVER),
            ),
            "paired-22 without the branch window: every request behind a shared prefix recomputes a window.",
            "#22 without its branch point",
        ),
        Build(
            "paired-22-draft-first",
            replace(_PAIRED_22, claim=WindowedPair("draft-match-first", draft_first=True)),
            "paired-22 in which any endpoint that both pools cover wins, however much deeper a fresh mirror could go.",
            "hypothesis of the warm-up of seed 003 (S5)",
            correct=False,
        ),
        Build(
            "unified-page",
            replace(_UNIFIED, claim=WindowedPair("windowed-pair-page-boundary", boundary=True)),
            "One manager hosts both; the drafter's window counts only where it ends on a page.",
            "unified layout before its partial-endpoint commit (seed 003)",
        ),
        Build(
            "unified-nowindow",
            replace(_UNIFIED, claim=WithoutWindow()),
            "The experiment that claims the target's match without the drafter's window: only acceptance suffers.",
            "experiment of seed 003: acceptance length 3.219 instead of 3.722",
            correct=False,
            must_fire=("AL",),
        ),
        Build(
            "unified",
            _UNIFIED,
            "One manager hosts both; the drafter's window is reused wherever it is complete.",
            "unified layout at its head (seed 003)",
        ),
        Build(
            "unified-target-sent",
            replace(_UNIFIED, transfer=Transfer("target-pages-only", drafts=False)),
            "Unified; between workers only the target's pages travel, and a slot hides the prompt from the drafter.",
            "TensorRT-LLM#17371: the draft pool was no part of the prefill-to-decode transfer",
        ),
        Build(
            "vllm-drop-last",
            Rules(
                layout=Layout("draft-group-in-shared-pool", Shape.UNIFIED, draft_required=True, shares_pool=True),
                keys=WholeBlocks(),
                claim=DropLastPage(),
                publish=_WHOLE_BLOCKS,
            ),
            "A draft group in the target's pool; whole blocks only, and the last matched one is dropped.",
            "vLLM without lookahead keys; with a lookahead drafter a branch on a page end shares a cell",
            correct=False,
            must_fire=("KEY",),
        ),
        Build(
            "vllm-lookahead",
            Rules(
                layout=Layout("optional-draft-group-in-shared-pool", Shape.UNIFIED, shares_pool=True),
                keys=LookaheadHash(),
                claim=WindowedPair("window-tail-replay", boundary=True, branch=False),
                publish=_WHOLE_BLOCKS,
            ),
            "Block hashes cover the next tokens; a hit is kept and the drafter's window tail is replayed.",
            "vLLM with lookahead block hashes and bounded replay",
        ),
        Build(
            "sglang-fused",
            Rules(
                layout=Layout("fused-page", Shape.UNIFIED, draft_required=True, fused=True),
                keys=ShiftedStream(),
                claim=JointMinimum(),
                publish=Publish("per-chunk", draft_at_endpoint=False, branch=BranchWindow.NEVER),
            ),
            "The drafter's bytes lie in the target's page, under keys that see one token ahead.",
            "SGLang's fused lanes and bigram keys",
        ),
    )
}
