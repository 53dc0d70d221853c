"""Faults that one rank of several has, put there on purpose: each must be caught as RANK, and none may hang."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from gpu_backend.parallel.worlds import RankWorld
from model.config import EngineConfig, PoolSize
from model.ops import At, Op, Outcome, Shrink
from scenarios.errors import InputError
from scenarios.names import unknown_name


@dataclass(frozen=True, slots=True)
class Plant:
    """Fault ``name`` of ``rank``; it acts at its op, or sum, number ``at``."""

    name: str
    rank: int
    at: int

    @classmethod
    def parsed(cls, text: str, ranks: int) -> Plant:
        """``NAME``, ``NAME@RANK`` or ``NAME@RANK:AT``; rank 1 and number 12 unless told. Raises InputError."""
        name, _, where = text.partition("@")
        if name not in PLANTS:
            raise InputError("plant", 0, "", unknown_name("a fault of one rank", name, PLANTS, "--help"))
        rank, _, at = where.partition(":")
        try:
            plant = cls(name, int(rank or min(1, ranks - 1)), int(at or 12))
        except ValueError as error:
            raise InputError("plant", 0, "", f"expected NAME@RANK:NUMBER, found {text!r}") from error
        if not 0 <= plant.rank < ranks or plant.at < 1:
            raise InputError("plant", 0, "", f"expected a rank below {ranks} and a number from 1 on, found {text!r}")
        return plant

    def sizes(self, config: EngineConfig) -> EngineConfig:
        """What the rank builds its engine from, whatever was agreed."""
        change = {"fewer-pages": (1, 0), "other-host": (0, -3)}.get(self.name)
        if change is None:
            return config
        pools = {
            name: PoolSize(max(1, size.device_pages - change[0]), max(0, size.host_pages - change[1]))
            for name, size in config.pools.items()
        }
        return replace(config, pools=pools)

    def put(self, world: RankWorld) -> None:
        """Put a fault of ops under ``world``."""
        act = {"skipped-op": _skip, "lost-pages": _lose_pages, "late": _be_late, "dead": _die}.get(self.name)
        if act is None:
            return
        apply, count = world.apply, 0

        def faulty(op: At | Op) -> Outcome:
            nonlocal count
            count += 1
            return act(world, apply, op) if count == self.at else apply(op)

        world.apply = faulty

    def sums(self, reduce: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        """The rank's sum: the fault ``skipped-sum`` leaves one of them out."""
        if self.name != "skipped-sum":
            return reduce
        count = 0

        def faulty(part: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            return part if count == self.at else reduce(part)

        return faulty


Apply = Callable[[At | Op], Outcome]


def _skip(world: RankWorld, apply: Apply, op: At | Op) -> Outcome:
    return Outcome(False, "left out")


def _lose_pages(world: RankWorld, apply: Apply, op: At | Op) -> Outcome:
    """The rank's own tree forgets all that no request holds."""
    for pool in list(world.engine.twin.pools):
        world.lose(Shrink(pool, 0))
    return apply(op)


def _be_late(world: RankWorld, apply: Apply, op: At | Op) -> Outcome:
    assert world.meeting is not None
    time.sleep(1.5 * world.meeting.patience)
    return apply(op)


def _die(world: RankWorld, apply: Apply, op: At | Op) -> Outcome:
    os._exit(1)


PLANTS: dict[str, str] = {
    "fewer-pages": "the rank builds its engine with a page less than was agreed",
    "other-host": "the rank builds its engine with three host pages more than were agreed",
    "lost-pages": "the rank loses what it has cached",
    "skipped-op": "the rank leaves an op out",
    "skipped-sum": "the rank leaves a sum over the ranks out",
    "late": "the rank does not come in time",
    "dead": "the rank's process ends",
}
