"""Named rule sets: the states of upstream that can be compared, with their provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.rules.base import Rules
from model.rules.claim import JointMinimum, TargetOnly, WindowedPair
from model.rules.layout import Layout, Retention, Shape
from model.rules.publish import BranchWindow, Publish
from model.rules.slots import Slots

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
_PAIRED_22 = Rules(layout=_PAIRED, publish=Publish(), retention=Retention("window-and-trailing-page", pages=1))

BUILDS: dict[str, Build] = {
    build.name: build
    for build in (
        Build(
            "target-only",
            Rules(
                layout=_SEPARATE,
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
            Rules(layout=_SEPARATE, claim=TargetOnly("target-only-full-pages", full_pages=True)),
            "Unpaired, full-page claims; the drafter hides what it never saw and drafts from less.",
            "#21 alone (hypothesis of seed 000's 561,484 prefilled tokens)",
        ),
        Build(
            "joint-backoff",
            Rules(
                layout=_PAIRED,
                claim=JointMinimum(),
                publish=Publish("per-chunk", draft_at_endpoint=False, branch=BranchWindow.NEVER),
            ),
            "Two pools claim the lesser of their matches; matches are trimmed by the lookahead.",
            "what was merged in place of #18093",
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
            "unified-page",
            replace(_UNIFIED, claim=WindowedPair("windowed-pair-page-boundary", boundary=True)),
            "One manager hosts both; the drafter's window counts only where it ends on a page.",
            "unified layout before its partial-endpoint commit (seed 003)",
        ),
        Build(
            "unified",
            _UNIFIED,
            "One manager hosts both; the drafter's window is reused wherever it is complete.",
            "unified layout at its head (seed 003)",
        ),
    )
}
