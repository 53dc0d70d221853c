"""The link between device and host memory: copies of pages take their bytes over its bandwidth, each way in order.

A copy that may not run yet (a step ahead of it is in flight, an earlier copy uses its slots) holds up those behind it
on its way; the two ways do not hold up each other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random

from simpy import Environment, Event, Store

from model.config import EngineConfig
from model.copies import CopyBook
from model.ops import Land, Lose, World
from sim.cost import NS_PER_S

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """``bytes_per_s`` of one way, ``latency_ns`` ahead of each copy, ``loss``: share of the copies that fail."""

    bytes_per_s: float
    latency_ns: int = 0
    loss: float = 0.0

    def copy_ns(self, size: int) -> int:
        """Time of a copy of ``size`` bytes in nanoseconds; at least one."""
        return max(1, self.latency_ns + round(size * NS_PER_S / self.bytes_per_s))


class HostLink:
    """Carries the copies of one world. ``ended`` fires, and is replaced, whenever one lands or is lost; ``mark`` is
    called just before."""

    def __init__(
        self, env: Environment, world: World, profile: LinkProfile, seed: int, mark: Callable[[], None]
    ) -> None:
        assert world.engine.book is not None
        self.env, self.world, self.profile, self.seed = env, world, profile, seed
        self.book: CopyBook = world.engine.book
        self.mark = mark
        self.ended = env.event()
        self.doomed = [0, 0]  # loads, stores that are lost next, whatever is drawn
        self._moved = env.event()  # a step settled or a copy ended: what waits may look again
        self._seen = 0
        self._page_bytes = page_bytes(world.config)
        self._queues = (Store(env), Store(env))
        for queue in self._queues:
            env.process(self._run(queue))

    def poll(self) -> None:
        """Queue the copies that began since the last call."""
        for number in range(self._seen, self.book.begun):
            copy = self.book.open.get(number)
            if copy is not None:
                self._queues[copy.store].put(number)
        self._seen = self.book.begun

    def settled(self) -> None:
        """A step settled."""
        moved, self._moved = self._moved, self.env.event()
        moved.succeed()

    def holds_up(self, waits: tuple[int, ...]) -> bool:
        """Whether a step that waits for these copies has to wait."""
        return not self.book.open.keys().isdisjoint(waits)

    def _run(self, queue: Store) -> Generator[Event, object, None]:
        refusal = self.world.engine.copy_refusal
        while True:
            number = yield queue.get()
            assert isinstance(number, int)
            while refusal(number):
                yield self._moved
            copy = self.book.open[number]
            name = list(self.world.engine.twin.pools)[copy.pool]
            yield self.env.timeout(self.profile.copy_ns(self._page_bytes[name]))
            self.mark()
            self.world.apply(Lose(number) if self._fails(number, copy.store) else Land(number))
            self.settled()
            ended, self.ended = self.ended, self.env.event()
            ended.succeed()

    def _fails(self, number: int, store: bool) -> bool:
        if self.doomed[store]:
            self.doomed[store] -= 1
            return True
        return self.profile.loss > 0 and Random(f"{self.seed} copy {number}").random() < self.profile.loss


def page_bytes(config: EngineConfig) -> dict[str, int]:
    """Bytes of a page of each pool on one rank."""
    sizes = dict.fromkeys(config.pools, 0)
    for life in (*config.target, *config.draft):
        sizes[life.pool] += life.bytes_per_token * config.limits.page_size
    return sizes
