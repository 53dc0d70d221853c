"""A second memory that carries out one engine's stream beside the tagged one, such as a device's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from model.copies import Copy
    from model.plan import StepPlan
    from model.wire import Leg


class Follower(Protocol):
    """What a world tells whoever follows its stream; each call comes after the world's own memory did the same.

    ``queued`` are the oldest records that no settled plan has carried, as the world's memory is told of them.
    """

    def dispatched(self, plan: StepPlan) -> None:
        """A plan went out."""

    def failed(self, bindings: list[tuple]) -> None:
        """A forward failed: these bindings of row slots were made for it and are taken back."""

    def settled(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        """The oldest plan in flight ended with so many tokens for each generation row, and the engine knows."""

    def warmed(self, plan: StepPlan) -> None:
        """A plan of dummies ran before any request."""

    def interleaved(self, records: list[tuple]) -> None:
        """Records that no plan carries run behind every plan that went out before them."""

    def landed(self, copy: Copy, queued: list[tuple]) -> None:
        """A copy between the tiers arrived."""

    def lost(self, copy: Copy, void: Sequence[int], queued: list[tuple]) -> None:
        """A copy failed, and the rows of ``void`` owners with it."""

    def received(self, legs: Sequence[Leg], source: Follower, owner: int) -> None:
        """Pages of ``owner`` arrived from another worker, whose follower is ``source``."""

    def drained(self, records: list[tuple]) -> None:
        """The run is over; ``records`` are the last ones."""
