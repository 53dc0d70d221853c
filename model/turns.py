"""Endpoints of conversations: which windows stay published once a conversation has moved on.

Under the per_conversation policy a windowed lifecycle is reusable where a turn's context ended. Only the last
``keep`` endpoints of a conversation stay; an older one is dropped when the next turn's context is complete, page by
page, unless another kept endpoint shares the page or somebody holds it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from model.eviction import DROPPABLE

if TYPE_CHECKING:
    from model.manager import Manager
    from model.sequence import SequenceCache

Endpoint = list[tuple[int, int, int]]  # column, page, tenancy of the page


class Turns:
    """Endpoints that one manager keeps, by conversation, as pages in a tenancy: no branch is kept alive by them."""

    def __init__(self, manager: Manager, keep: int) -> None:
        self.manager = manager
        self.keep = keep
        self.endpoints: dict[int, deque[Endpoint]] = {}
        self._shared: Counter[tuple[int, int, int]] = Counter()  # kept endpoints that contain a page in a tenancy
        self.windowed = [column for column, life in enumerate(manager.lifecycles) if life.window is not None]

    def ended(self, sequence: SequenceCache) -> None:
        """The context of a turn is complete and published: keep its endpoint, drop the oldest one beyond ``keep``."""
        endpoint: Endpoint = []
        for column in self.windowed:
            pool = self.manager.pools[column]
            for page in sequence.tables[column].pages:
                if pool.node[page] is not None:
                    endpoint.append((column, page, pool.tenancy[page]))
        self._shared.update(endpoint)
        kept = self.endpoints.setdefault(sequence.conversation, deque())
        kept.append(endpoint)
        if len(kept) > self.keep:
            self._drop(kept.popleft())

    def _drop(self, endpoint: Endpoint) -> None:
        for entry in endpoint:
            self._shared[entry] -= 1
            if self._shared[entry]:
                continue
            del self._shared[entry]
            column, page, tenancy = entry
            pool = self.manager.pools[column]
            node = pool.node[page]
            if pool.tenancy[page] == tenancy and node is not None and pool.state[page] == DROPPABLE:
                self.manager.tree.lose(node, column)
