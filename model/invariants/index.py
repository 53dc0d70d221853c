"""PUB of the index: keys, nodes and pages describe one set; a page is cached under one key."""

from __future__ import annotations

from collections.abc import Callable

from model.invariants.base import Docket, Violation
from model.joint import Twin
from model.manager import Manager
from model.pages import PagePool
from model.table import NO_PAGE
from model.tree import Node


class IndexLaw:
    """Judge of the prefix trees of one engine; ``tenant`` names the request that a page was last granted to."""

    def __init__(self, twin: Twin, docket: Docket, tenant: Callable[[PagePool, int], int]) -> None:
        self.twin, self.docket, self.tenant = twin, docket, tenant

    def check(self, step: int) -> None:
        """Look at every cached node: its key finds it, its parent knows it, and its pages are cached as its own."""
        for manager in self.twin.managers:
            self.docket.count("PUB")
            pools = manager.tree.pools
            cached, columns = [pool.node for pool in pools], [pool.column for pool in pools]
            for key, node in manager.tree.index.items():
                parent = node.parent
                linked = node.alive and parent is not None and parent.children.get(key) is node
                for column, page in enumerate(node.pages):
                    if page != NO_PAGE:
                        if linked and cached[column][page] is node and columns[column][page] == column:
                            continue
                        self._unknown(manager, node, column, step)

    def _unknown(self, manager: Manager, node: Node, column: int, step: int) -> None:
        """Report the page of a node that is not cached as the node's own."""
        page, pool = node.pages[column], manager.tree.pools[column]
        other = pool.node[page]
        self.docket.report(
            Violation(
                "PUB",
                "a key finds a page that is not cached under it",
                self.tenant(pool, page),
                pool.name,
                page,
                node.ordinal * manager.page_size,
                step,
                expected=f"one key: {node.length} tokens of block {node.ordinal}",
                found="a page without a key" if other is None else f"the page of {other.length} tokens",
            )
        )
