"""What a replay carries out besides the kernels' own answers, and what of a build runs on the engine only."""

from __future__ import annotations

import enum
from dataclasses import fields

from gpu_backend.answers import CARRIED_OUT, NotCarriedOut
from model.builds import Build
from model.rules.device import Addressing, Padding, Rebase, Trim
from model.rules.slots import Slots

REPLAYED: dict[enum.Enum, str] = {
    Rebase.READS: "stores take a table that is shifted by the base",
    Rebase.WRITES: "checks take a table that is shifted by the base",
    Addressing.ADJACENT: "stores take a table whose pages follow the first one written",
    Trim.REJECTED: "lengths lose what the rule takes back too many",
    Padding.LAST_CELL: "a padding row marks the last cell of every pool",
    Padding.STALE_ROW: "a padding row reads what its position was left, and writes nothing",
    Padding.REQUEST_SLOT: "a padding row moves the lengths of row slot 0",
}


def require_replayable(build: Build) -> None:
    """``NotCarriedOut`` where an answer of ``build`` that acts on the device is one that the replay has no code for."""
    rules = build.rules.device()
    for rule in fields(rules):
        answer = getattr(rules, rule.name)
        if answer not in CARRIED_OUT and answer not in REPLAYED:
            word = getattr(answer, "value", answer)
            raise NotCarriedOut(
                f"build {build.name} is engine only: the device does not carry out {rule.name} = {word}"
            )
    if type(build.rules.slots) is not Slots:
        name = type(build.rules.slots).__name__
        raise NotCarriedOut(f"build {build.name} is engine only: its slots rule is a class of its own, {name}")
