"""What the experiment is asked and what it tells, as plain values: nothing here needs a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINE, VIOLATED, NOTHING_CHECKED, INTERRUPTED = 0, 1, 3, 130
REPEAT, TWO_TURN, SHORT_TAIL, LONG_TAIL, BRANCH = "repeat", "two-turn", "short-tail", "long-tail", "branch"
PREFIXED = (SHORT_TAIL, LONG_TAIL, BRANCH)  # conditions of a shared prefix
SUSPEND, HOST_LOAD, TRANSFER, AGENTIC = "suspend", "host-load", "transfer", "agentic"
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
}
WHOLE = (REPEAT, SUSPEND, HOST_LOAD, TRANSFER)  # conditions of the same requests, which have one cold run
CORRECT, HISTORICAL, FAULT = "correct", "historical", "fault"
IDENTICAL, DECLARED, BROKEN = "identical", "less context", "VIOLATION"  # less: as the rules of the build say
RESTARTED = "preempted"  # the traces that differ are those of preempted requests
FREE, NOISE, COSTS, REFUSED = "costs nothing", "within noise", "costs", "error"
GAINS = "more than cold"  # what is accepted is then not what the target would have said
LENGTHS = (16, 128, None)  # generated tokens that the changes look at; None for all
# Faults of a build's reuse that the acceptance of a DFlash drafter may show, and the conditions under which it does.
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
}
DEFAULT_FAULTS = tuple(SHOWN)
EXPERIMENTS = ("unified-nowindow",)  # builds beside the correct ones, by default
T1_FOLDER = Path(__file__).parents[1] / "weights" / "t1"


def shown_by(fault: str) -> tuple[str, ...]:
    """Conditions that concern a fault; all where nobody said which."""
    return SHOWN.get(fault, tuple(CONDITIONS))


@dataclass(frozen=True, slots=True)
class Order:
    """``builds`` run under all ``conditions``, ``faults`` under those of them that concern them.

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


@dataclass(frozen=True, slots=True)
class Told:
    """What came out: ``arms`` and ``hits`` are rows, ``cold`` the figures of the cold runs by name.

    ``pair`` says what was measured: hashes of weights and prompts, device, decoding.
    """

    pair: dict[str, Any]
    arms: list[dict[str, Any]]
    hits: list[dict[str, Any]]
    cold: dict[str, dict[str, Any]]
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    calibration: dict[str, Any] | None = None  # text of the model's file, rows of predictions, error

    @property
    def exit_code(self) -> int:
        """1 if a correct build broke a law, 3 if no trace was owed, 130 after Ctrl-C, else 0."""
        if any(arm["laws"] for arm in self.arms):
            return VIOLATED
        if self.interrupted:
            return INTERRUPTED
        return FINE if any(arm["owed"] for arm in self.arms) else NOTHING_CHECKED
