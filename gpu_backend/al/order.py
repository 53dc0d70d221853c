"""What the experiment is asked and what it tells, as plain values: nothing here needs a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINE, VIOLATED, BAD_INPUT, NOTHING_CHECKED, CRASHED, INTERRUPTED = 0, 1, 2, 3, 4, 130
REPEAT, TWO_TURN, SHORT_TAIL, LONG_TAIL, BRANCH = "repeat", "two-turn", "short-tail", "long-tail", "branch"
PREFIXED = (SHORT_TAIL, LONG_TAIL, BRANCH)  # conditions of a shared prefix
SUSPEND, HOST_LOAD, TRANSFER, AGENTIC = "suspend", "host-load", "transfer", "agentic"
CHUNKED = "chunked"
CONDITIONS: dict[str, str] = {
    REPEAT: "the same prompt again",
    TWO_TURN: "a second turn behind the first prompt, its answer and a short message",
    SHORT_TAIL: "a shared prefix and a tail shorter than the drafter's window",
    LONG_TAIL: "a shared prefix and a tail longer than the drafter's window",
    BRANCH: "a shared prefix and a short tail, where only the ends of conversations keep the drafter's window",
    SUSPEND: "the same prompt again; suspended every few steps, half of them absent until others end",
    HOST_LOAD: "the same prompt again, its pages in the host tier",
    TRANSFER: "prefilled on one worker, decoded on another",
    AGENTIC: "conversations of three turns on system prompts that several of them share",
    CHUNKED: "all but the last token of a prompt that was prefilled in chunks, of which one ends where reuse does",
}
WHOLE = (REPEAT, SUSPEND, HOST_LOAD, TRANSFER)  # conditions of the same requests, which have one cold run
CORRECT, HISTORICAL, FAULT = "correct", "historical", "fault"
IDENTICAL, DECLARED, BROKEN = "identical", "less context", "VIOLATION"  # less: as the rules of the build say
RESTARTED = "preempted"  # the traces that differ are those of preempted requests
# Of wrong rules, beside the hits of the default build where those were measured.
FREE, NOISE, COSTS, REFUSED = "costs nothing", "within noise", "costs", "error"
GAINS = "more than sound"  # what is accepted is then not what the target would have said
LENGTHS = (16, 32, 64, 128, None)  # generated tokens that the changes look at; None for all
JUDGED = (16, 128, None)  # those by which a fault is said to cost something, beside its first step
# Faults of what a cell knows of the tokens behind it: a drafter without lookahead has none of them.
AHEAD = ("placeholder-lookahead", "raw-keys")
# Faults of a build's reuse that acceptance may show, and the conditions under which it does.
SHOWN: dict[str, tuple[str, ...]] = {
    "restored-prefix-read": (REPEAT, TWO_TURN, SHORT_TAIL, HOST_LOAD),
    "store-at-zero": (REPEAT, SHORT_TAIL),
    "count-not-extent": (REPEAT,),
    "kept-provisional": (REPEAT,),
    "freed-on-hope": (REPEAT,),
    "freed-by-highest": (REPEAT,),
    "no-draft-lookahead-pages": (REPEAT,),
    "adjacent-slot": (REPEAT,),
    "copy-in-place": (SHORT_TAIL,),
    "claim-plus1": (BRANCH,),
    "target-cursor": (BRANCH,),
    "rebase-reads-only": (BRANCH,),
    "restore-missed": (BRANCH,),
    "slot-loss-zero": (SUSPEND,),
    "no-trail": (SUSPEND,),
    "batch-row-kept": (SUSPEND,),
    "drafts-lost-when-absent": (SUSPEND,),
    "target-only-loads": (HOST_LOAD,),
    "page-ids-for-slots": (HOST_LOAD,),
    "draft-pool-left-out": (TRANSFER,),
    "gen-init-local": (TRANSFER,),
    **dict.fromkeys(AHEAD, (CHUNKED,)),
    "publish-tail": (REPEAT,),
}
WINDOWED = ("dflash", "dspark")  # kinds that keep their context in slots with a base, and read a window of it
# Faults of such slots and windows: a drafter that attends all of its context has neither.
SLOTS = frozenset(SHOWN) - {
    *AHEAD, "kept-provisional", "publish-tail", "no-draft-lookahead-pages", "adjacent-slot", "copy-in-place",
    "target-only-loads", "page-ids-for-slots", "draft-pool-left-out",
}  # fmt: skip
EXPERIMENTS = ("unified-nowindow",)  # builds beside the correct ones, by default
T1_FOLDER = Path(__file__).parents[1] / "weights" / "t1"


def faults_for(kind: str, faults: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``faults`` that a kind of drafter can have."""
    return tuple(name for name in faults if kind in WINDOWED or name not in SLOTS)


def faults_shown(conditions: Sequence[str]) -> tuple[str, ...]:
    """Those of the default faults that acceptance may show under one of ``conditions``."""
    return tuple(name for name, shown in SHOWN.items() if not set(conditions).isdisjoint(shown))


def shown_by(fault: str, conditions: Sequence[str]) -> Sequence[str]:
    """Those of ``conditions`` that concern a fault; all where nobody said which do, or none of them does."""
    return [name for name in conditions if name in SHOWN.get(fault, CONDITIONS)] or conditions


@dataclass(frozen=True, slots=True)
class Order:
    """``builds`` run under all ``conditions``, ``faults`` under those of them that concern them.

    All that is done for each of ``drafters``, by default every kind that lies in the folder.
    ``weights`` is the folder of a pair, ``None`` tier T0. ``prompts`` requests of a condition generate ``tokens`` each;
    ``None`` for what suits the device. Everything runs once for each rule of ``sampling``, named as in replays.
    ``calibrate``: the sim's acceptance model is fitted from it.
    """

    weights: Path | None
    builds: tuple[str, ...]
    faults: tuple[str, ...]
    conditions: tuple[str, ...] = tuple(CONDITIONS)
    prompts: int | None = None
    tokens: int | None = None
    device: str | None = None
    exact: bool = True
    graphs: bool | None = None
    sampling: tuple[str, ...] = ("greedy",)
    temperature: float = 1.0
    seed: int = 0
    calibrate: bool = False
    drafters: tuple[str, ...] | None = None
    spans: int | None = None  # windows that a whole prompt is long; four, or what the requests of a dialogue have


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a kind of drafter was not measured to its end, in one line, and the exit code of that."""

    line: str
    code: int


@dataclass(frozen=True, slots=True)
class Told:
    """What came out: ``arms`` and ``hits`` are rows, ``cold`` the figures of the cold runs, both by kind of
    drafter, how drafts were judged, and condition.

    ``pair`` says what was measured: hashes of weights and prompts, device, decoding; ``drafters`` what is each kind's
    own. ``calibrations``, by kind: text of the model's file, rows of predictions, error.
    ``failed``: kinds that were refused or crashed while others had runs to tell of.
    """

    pair: dict[str, Any]
    arms: list[dict[str, Any]]
    hits: list[dict[str, Any]]
    cold: dict[str, dict[str, dict[str, Any]]]
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    calibrations: dict[str, dict[str, Any]] = field(default_factory=dict)
    drafters: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 if a correct build broke a law, 130 after Ctrl-C, 4 if a kind crashed, 2 if one was refused, 3 if no trace
        was owed, else 0."""
        if any(arm["laws"] for arm in self.arms):
            return VIOLATED
        if self.interrupted:
            return INTERRUPTED
        if self.failed:
            return max(failure.code for failure in self.failed.values())
        return FINE if any(arm["owed"] for arm in self.arms) else NOTHING_CHECKED
