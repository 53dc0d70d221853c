"""Endpoints of conversations: which windows stay published once a conversation has moved on.

Under the per_conversation policy a windowed lifecycle is reusable where a turn's context ended. Only the last
``keep`` endpoints of a conversation stay; an older one is dropped when the next turn's context is complete, page by
page, unless another kept endpoint shares the page or somebody holds it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from model.eviction import PageState

if TYPE_CHECKING:
    from model.manager import Manager
    from model.sequence import SequenceCache
    from model.tree import Node

Endpoint = list[tuple["Node", int, int]]  # node, column, page


class Turns:
    """Endpoints that one manager keeps."""

    def __init__(self, manager: Manager, keep: int) -> None:
        self.manager = manager
        self.keep = keep
        self.endpoints: dict[int, deque[Endpoint]] = {}
        # Kept endpoints that contain a page; with its node, since an evicted page may serve another prompt next.
        self._shared: Counter[tuple[Node, int, int]] = Counter()
        self.windowed = [column for column, life in enumerate(manager.lifecycles) if life.window is not None]

    def ended(self, sequence: SequenceCache) -> None:
        """The context of a turn is complete and published: keep its endpoint, drop the oldest one beyond ``keep``."""
        endpoint: Endpoint = []
        for column in self.windowed:
            cached = self.manager.pools[column].node
            for page in sequence.tables[column].pages:
                node = cached[page]
                if node is not None:
                    endpoint.append((node, column, page))
                    self._shared[node, column, page] += 1
        kept = self.endpoints.setdefault(sequence.conversation, deque())
        kept.append(endpoint)
        if len(kept) > self.keep:
            self._drop(kept.popleft())

    def _drop(self, endpoint: Endpoint) -> None:
        for node, column, page in endpoint:
            self._shared[node, column, page] -= 1
            if self._shared[node, column, page]:
                continue
            del self._shared[node, column, page]
            droppable = self.manager.pools[column].state[page] == PageState.DROPPABLE
            if droppable and node.alive and node.pages[column] == page:
                self.manager.tree.lose(node, column)
