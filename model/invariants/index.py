"""PUB of the index: keys, nodes and pages describe one set; a page is cached under one key."""

from __future__ import annotations

from collections.abc import Callable

from model.invariants.base import Docket, Violation
from model.joint import Twin
from model.pages import PagePool
from model.table import NO_PAGE


class IndexLaw:
    """Judge of the prefix trees of one engine; ``tenant`` names the request that a page was last granted to."""

    def __init__(self, twin: Twin, docket: Docket, tenant: Callable[[PagePool, int], int]) -> None:
        self.twin, self.docket, self.tenant = twin, docket, tenant

    def check(self, step: int) -> None:
        """Look at every cached node: its key finds it, its parent knows it, and its pages are cached as its own."""
        for manager in self.twin.managers:
            tree = manager.tree
            self.docket.count("PUB")
            for key, node in tree.index.items():
                linked = node.parent is not None and node.parent.children.get(key) is node
                for column, page in enumerate(node.pages):
                    if page == NO_PAGE:
                        continue
                    pool = tree.pools[column]
                    if linked and node.alive and pool.node[page] is node and pool.column[page] == column:
                        continue
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
