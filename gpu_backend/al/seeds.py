"""What the seeds report of acceptance under reuse, beside what was measured here (seed_figures: S1, S2, S3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpu_backend.al.order import AGENTIC, BRANCH, REPEAT, WINDOWED, Told

LOST, PAIRED, UNIFIED, BARE = "mirror-21281", "paired-22", "unified", "unified-nowindow"
DFLASH = "dflash"
FEWEST = 16  # requests over which a bootstrap tells anything
FULL_PAGES = "target-21"  # what the seed's prefilled tokens before pairing are put down to, as a hypothesis
Row = dict[str, Any]


def lines(told: Told) -> list[str]:
    """One for each figure whose builds ran; each says whether order and direction are the seed's."""
    found, known = [], [row for row in told.arms if row["AL_change"] is not None]
    for kind, decodings in told.cold.items():
        for decoding in decodings if kind in WINDOWED else ():  # the seeds' drafter is one of them
            own = [row for row in known if (row["drafter"], row["decoding"]) == (kind, decoding)]
            of = {(row["condition"], row["build"]): row for row in own}
            name = decoding if kind == DFLASH else f"{kind}, {decoding}"
            found += [
                *_lost(name, decoding, of),
                *_t2(told.pair.get("release", ""), decoding, of),
                *_agentic(name, of),
                *_bare(name, of),
            ]
    return found


def _lost(name: str, decoding: str, of: dict[tuple[str, str], Row]) -> Iterator[str]:
    """S1, and the sampled warm pass: a hit whose drafter begins with nothing, and one on paired pools."""
    lost, paired = of.get((REPEAT, LOST)), of.get((REPEAT, PAIRED))
    if lost is None or paired is None:
        return
    seed = "-9.4 %, paired -0.9 %" if decoding == "greedy" else "-5.8/-7.7 % sampled, then +1.6 %"
    holds = lost["AL_high"] < 0 and paired["AL_low"] <= 0 <= paired["AL_high"]
    yield (
        f"S1 ({name}): lost drafter context on a hit {_change(lost)}, paired {_change(paired)} "
        f"(seed: {seed}): {_word(holds, lost)}"
    )


def _t2(release: str, decoding: str, of: dict[tuple[str, str], Row]) -> Iterator[str]:
    """S1's loss on T2's target: requests of 512 tokens and 128 greedy ones behind them."""
    lost = of.get((REPEAT, LOST))
    if not release or lost is None or decoding != "greedy":
        return
    found = ", ".join(f"{name} {lost[f'{name}_change']:+.1%}" for name in ("AL16", "AL128"))
    holds = lost["AL128_high"] < 0
    yield (
        f"T2 ({release}): lost drafter context on a hit {found} (experiment with another drafter of this target: "
        f"AL16 -26.3 %, AL128 -8.8 %, from 2.59 to 2.36; the seed's own figure: -9.4 %): {_word(holds, lost)}"
    )


def _agentic(name: str, of: dict[tuple[str, str], Row]) -> Iterator[str]:
    """S2: conversations of agents, before reuse of the drafter's context, paired and unified."""
    arms = [of.get((AGENTIC, build)) for build in (FULL_PAGES, PAIRED, UNIFIED)]
    lost, paired, unified = arms
    if lost is None or paired is None or unified is None:
        return
    lengths = " -> ".join(f"{row['AL']:.3f}" for row in (lost, paired, unified))
    prefilled = " -> ".join(f"{row['prefilled_target']:,}" for row in (lost, paired, unified))
    holds = (
        lost["AL_high"] < 0 <= min(paired["AL_high"], unified["AL_high"])
        and unified["prefilled_target"] < lost["prefilled_target"]
    )
    yield (
        f"S2 ({name}): {FULL_PAGES}, {PAIRED}, {UNIFIED}: AL {lengths} (seed: 3.037 -> 3.203 -> 3.287), prefilled "
        f"{prefilled} (seed: 561,484 -> 535,300): {_word(holds, lost)}"
    )


def _bare(name: str, of: dict[tuple[str, str], Row]) -> Iterator[str]:
    """S3: the experiment that claims the target's match without the drafter's window."""
    bare, whole = of.get((BRANCH, BARE)), of.get((BRANCH, UNIFIED))
    if bare is None or whole is None:
        return
    holds = bare["AL_high"] < 0 or bare["AL16_high"] < 0
    yield (
        f"S3 ({name}): claims without the drafter's window: AL {bare['AL']:.3f} instead of {whole['AL']:.3f}, "
        f"{_change(bare)}, AL16 {bare['AL16_change']:+.1%} (seed: 3.219 instead of 3.722, -13.5 %): "
        f"{_word(holds, bare)}"
    )


def _change(row: Row) -> str:
    if math.isnan(row["AL_low"]):
        return f"{row['AL_change']:+.1%}"
    return f"{row['AL_change']:+.1%} [{100 * row['AL_low']:+.1f}, {100 * row['AL_high']:+.1f}]"


def _word(holds: bool, row: Row) -> str:
    if row["hits"] < FEWEST:
        return f"{row['hits']} requests are too few to tell"
    return "the same direction, clear of noise" if holds else "NOT shown here"
