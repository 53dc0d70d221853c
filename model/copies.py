"""Copies between the tiers that take time: which are under way, and what each of them has to wait for.

A copy begins when the page changes its tier in the books and ends when it lands or is lost. Between the two its
source still holds the only bytes and its target holds none:

    begun ── after every step dispatched before it (fence) ── after earlier copies that use its slots ──> may land
    a plan whose records or rows name one of its slots ── waits for it ──> may settle
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from model.rules.offload import Offload


class Copy(NamedTuple):
    """One page on its way. ``fence``: last iteration dispatched when it began; ``after``: copies that must end first.

    ``source`` and ``target`` are slots of the pool with index ``pool``; ``store`` says that the target is in the host
    tier, otherwise the copy is a load.
    """

    number: int
    store: bool
    pool: int
    page: int
    source: int
    target: int
    fence: int
    after: tuple[int, ...]

    def __str__(self) -> str:
        return f"copy {self.number}"


class CopyBook:
    """Copies of one engine that began and neither landed nor were lost, by number and by slot."""

    def __init__(self, rule: Offload) -> None:
        self.rule = rule
        self.open: dict[int, Copy] = {}
        self.begun = 0
        self.dispatched = -1  # last iteration that was dispatched
        self._using: dict[tuple[int, int], list[int]] = {}  # (pool, slot) -> open copies from or to it
        self._named: dict[int, None] = {}  # open copies whose slots the records since the last plan name

    def __len__(self) -> int:
        return len(self.open)

    def begin(self, pool: int, page: int, slots: tuple[int, int], store: bool) -> Copy:
        """A page leaves ``slots[0]`` for ``slots[1]``."""
        number = self.begun
        self.begun += 1
        earlier = dict(self._named)
        for slot in slots:
            earlier.update(dict.fromkeys(self._using.get((pool, slot), ())))
        after = tuple(sorted(earlier)) if self.rule.copies_wait else ()
        copy = self.open[number] = Copy(number, store, pool, page, *slots, self.dispatched, after)
        for slot in slots:
            self._using.setdefault((pool, slot), []).append(number)
        return copy

    def named(self, pool: int, slots: Iterable[int]) -> None:
        """Records of the next plan name these slots."""
        if self._using:
            self._named.update(dict.fromkeys(self._users(pool, slots)))

    def waits(self, rows: Iterable[tuple[int, Iterable[int]]]) -> tuple[int, ...]:
        """Copies that the plan being made waits for: those its records named, and those its ``rows`` (pool, slots)
        name. The records of the next plan start anew."""
        named, self._named = self._named, {}
        if self._using:
            for pool, slots in rows:
                named.update(dict.fromkeys(self._users(pool, slots)))
        return tuple(sorted(n for n in named if n in self.open and self.rule.holds_up(self.open[n].store)))

    def refusal(self, number: int, oldest: int | None) -> str:
        """Why copy ``number`` cannot end now, in one sentence; ``oldest`` is the oldest iteration in flight."""
        copy = self.open.get(number)
        if copy is None:
            return f"copy {number} is not under way"
        if oldest is not None and oldest <= copy.fence and self.rule.fenced(copy.store):
            return f"copy {number} waits for iteration {oldest}"
        first = next((other for other in copy.after if other in self.open), None)
        return "" if first is None else f"copy {number} waits for copy {first}"

    def end(self, number: int) -> Copy:
        """The copy landed or was lost."""
        copy = self.open.pop(number)
        for slot in (copy.source, copy.target):
            using = self._using[copy.pool, slot]
            using.remove(number)
            if not using:
                del self._using[copy.pool, slot]
        self._named.pop(number, None)
        return copy

    def loading(self, pool: int, slot: int) -> bool:
        """Whether a load into ``slot`` is under way."""
        return any(not self.open[number].store for number in self._using.get((pool, slot), ()))

    def _users(self, pool: int, slots: Iterable[int]) -> Iterable[int]:
        using = self._using
        for slot in slots:
            yield from using.get((pool, slot), ())
