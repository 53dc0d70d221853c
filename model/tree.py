"""The prefix tree of one manager: which blocks of which prompts are cached, and how deep a prompt matches.

A node is one block of tokens below its parent's; each lifecycle has its own page there (or none) and that page's
coverage, the number of leading tokens of the block that it really holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.geometry import Lifecycle, ReusePolicy, cdiv
from model.pages import PagePool
from model.rules.keys import KeyView
from model.rules.layout import Index
from model.table import NO_PAGE


class Node:
    """One cached block. ``items`` are its key items as int64 bytes, ``length`` how many of them it has."""

    __slots__ = (
        "alive",
        "behind",
        "children",
        "coverage",
        "items",
        "key",
        "length",
        "ordinal",
        "pages",
        "parent",
        "partials",
    )

    def __init__(self, key: int, parent: Node | None, items: bytes, length: int, columns: int) -> None:
        self.key = key
        self.parent = parent
        self.ordinal = -1 if parent is None else parent.ordinal + 1
        self.items = items
        self.length = length
        self.pages = [NO_PAGE] * columns
        self.coverage = [0] * columns
        self.behind = [b""] * columns  # per page, the publisher's key items behind its coverage (lookahead only)
        self.children: dict[int, Node] = {}
        self.partials = 0  # children shorter than a page
        self.alive = True


class Match(NamedTuple):
    """Path of nodes that agree with a prompt for ``tokens`` tokens; the last one may agree only in part."""

    nodes: list[Node]
    tokens: int


class PrefixTree:
    """Tree of blocks of ``page_size`` tokens with one page column per lifecycle."""

    def __init__(
        self,
        page_size: int,
        lifecycles: Sequence[Lifecycle],
        pools: Sequence[PagePool],
        partial_children: int,
        rule: Index,
    ) -> None:
        self.rule = rule
        self.page_size = page_size
        self.lifecycles = tuple(lifecycles)
        self.pools = tuple(pools)
        self.partial_children = partial_children
        self.index: dict[int, Node] = {}
        self.grown = 0  # blocks and pages that entered the tree so far
        self.roots: dict[int, Node] = {}
        for pool in self.pools:
            assert pool.tree is None or pool.tree is self, f"two managers share pool {pool.name!r}"
            pool.tree = self
            pool.lose = self.lose

    def root(self, seed: int) -> Node:
        """Root of the scope named by ``seed``."""
        node = self.roots.get(seed)
        if node is None:
            node = self.roots[seed] = Node(seed, None, b"", 0, len(self.lifecycles))
        return node

    # -- match ---------------------------------------------------------------------------------------------------

    def match(self, seed: int, keys: Sequence[int], items: memoryview, length: int, partial: bool = True) -> Match:
        """Longest cached prefix of a prompt of ``length`` key items, full blocks by key, then ``partial``ly one block.

        ``keys`` are the keys of its full blocks, ``items`` its key items as a memoryview of int64.
        """
        size, index = self.page_size, self.index
        nodes: list[Node] = []
        for key in keys[: length // size]:
            node = index.get(key)
            if node is None:
                break
            nodes.append(node)
        matched = len(nodes) * size
        parent = nodes[-1] if nodes else self.roots.get(seed)
        few = parent is not None and 0 < len(parent.children) < self.partial_children
        if partial and parent is not None and few and matched < length:
            wanted = items[matched : min(length, matched + size)].tobytes()
            best, common = self._best_child(parent, wanted)
            if best is not None:
                nodes.append(best)
                matched += common
        return Match(nodes, matched)

    @staticmethod
    def _best_child(parent: Node, wanted: bytes) -> tuple[Node | None, int]:
        best: Node | None = None
        best_rank: tuple[int, int] = (0, 0)
        for child in parent.children.values():
            common = _common_items(child.items, wanted)
            if common:
                covered = sum(min(common, coverage) for coverage in child.coverage)
                if (common, covered) > best_rank:
                    best, best_rank = child, (common, covered)
        return best, best_rank[0]

    def deepest(self, match: Match, end: int, columns: Sequence[int], keys: KeyView, boundary: bool = False) -> int:
        """Deepest endpoint ``<= end`` at which every lifecycle in ``columns`` covers what the query there reads.

        The fixed point of pruning: what must be covered depends on the endpoint itself. ``boundary`` allows page
        boundaries only.
        """
        size = self.page_size
        covered = {column: self._coverage(match.nodes, column, keys) for column in columns}
        holes = {column: _last_holes(covered[column], size) for column in columns}
        starts = {column: _gap_starts(covered[column]) for column in columns}
        while end > 0:
            if boundary and end % size:
                end -= end % size
                continue
            lower = end
            for column in columns:
                lower = self._prune_once(covered[column], holes[column], starts[column], column, lower)
            if lower == end:
                return end
            end = lower
        return 0

    def _coverage(self, nodes: list[Node], column: int, keys: KeyView) -> list[int]:
        """Tokens of each block that lifecycle ``column`` holds for this reader.

        A page's last cells depend on ``lookahead`` tokens behind its coverage; they count only as far as the reader
        goes on like the publisher did.
        """
        covered = [node.coverage[column] for node in nodes]
        if self.rule.whole:
            covered = [self.page_size if tokens else 0 for tokens in covered]
        span = self.lifecycles[column].lookahead
        if span and keys.checks_evidence:
            for ordinal, node in enumerate(nodes):
                if covered[ordinal]:
                    own = keys.behind(ordinal, covered[ordinal], span)
                    agreed = span if own == node.behind[column] else _common_items(own, node.behind[column])
                    if agreed < span or len(own) < 8 * span:
                        covered[ordinal] = max(0, covered[ordinal] - span + min(agreed, len(own) // 8))
        return covered

    def _prune_once(self, covered: list[int], holes: list[int], starts: list[int], column: int, end: int) -> int:
        """Endpoint left when lifecycle ``column`` is checked once at ``end``, last block first."""
        if end <= 0:
            return 0
        size = self.page_size
        lifecycle = self.lifecycles[column]
        begin, stale = lifecycle.read_from(end) // size, 0
        if lifecycle.window is not None:
            stale = lifecycle.sink_blocks(size)
        last = cdiv(end, size) - 1
        needed = end - last * size
        # A window of one token reads no page at a page end, so a gap does not reach down over page ends either.
        if covered[last] < needed and (begin <= last or last < stale):
            first = last if covered[last] or lifecycle.window == 1 else starts[last]
            return first * size + covered[last]
        hole = holes[last - 1] if last else -1
        if hole >= begin:
            return hole * size + covered[hole] if covered[hole] else starts[hole] * size
        if stale and hole >= 0:  # sinks are read too; only they matter below the window
            first = holes[min(stale, last) - 1] if min(stale, last) else -1
            if first >= 0:
                return first * size + covered[first]
        return end

    # -- publication ---------------------------------------------------------------------------------------------

    def find(self, key: int) -> Node | None:
        """The node with this key, if it is cached."""
        return self.index.get(key)

    def insert(self, parent: Node, key: int, items: bytes, length: int) -> Node | None:
        """Node for a block below ``parent``: the cached one, or a new one; ``None`` if a sibling makes it useless.

        A block shorter than a page that is the start of a sibling is useless. A longer block takes the place of a
        partial sibling that is its start and adopts that sibling's pages with their own, smaller coverage.
        """
        node = self.index.get(key)
        if node is not None:
            return node
        if length < self.page_size and self.longer(parent, items) is not None:
            return None
        node = Node(key, parent, items, length, len(self.lifecycles))
        self.index[key] = node
        self.grown += 1
        starts = [child for child in parent.children.values() if child.length < length] if parent.partials else []
        parent.children[key] = node
        if length < self.page_size:
            parent.partials += 1
        for sibling in starts:
            if items.startswith(sibling.items):
                self._adopt(node, sibling)
        return node

    @staticmethod
    def longer(parent: Node, items: bytes) -> Node | None:
        """A block below ``parent`` that starts with ``items``, if there is one."""
        return next((child for child in parent.children.values() if child.items.startswith(items)), None)

    def grow(self, parent: Node, keys: KeyView, first: int, end: int) -> list[Node]:
        """New nodes for full blocks ``[first, end)`` below ``parent``, which is new and has no children."""
        size, index, columns = self.page_size, self.index, len(self.lifecycles)
        items = keys.items[first * size : end * size].tobytes()
        width = 8 * size
        nodes: list[Node] = []
        for place, key in enumerate(keys.keys[first:end]):
            node = Node(key, parent, items[place * width : (place + 1) * width], size, columns)
            index[key] = parent.children[key] = node
            nodes.append(node)
            parent = node
        self.grown += len(nodes)
        return nodes

    def _adopt(self, node: Node, sibling: Node) -> None:
        for column, page in enumerate(sibling.pages):
            if page != NO_PAGE:
                if self.rule.supersedes:
                    sibling.pages[column] = NO_PAGE
                node.pages[column] = page
                node.coverage[column] = self.rule.adopted(sibling.coverage[column], node.length)
                node.behind[column] = sibling.behind[column]
                self.pools[column].attach(page, node, column)
        if self.rule.supersedes:
            self._unlink(sibling)

    def set_page(self, node: Node, column: int, page: int, coverage: int, behind: bytes = b"") -> bool:
        """Cache ``page`` at ``node`` if it covers more than what is there; returns whether it does now."""
        old = node.pages[column]
        if old != NO_PAGE:
            if node.coverage[column] >= coverage:
                return False
            node.pages[column] = NO_PAGE
            self.pools[column].detach(old)
        self.grown += 1
        node.pages[column] = page
        node.coverage[column] = coverage
        node.behind[column] = behind
        self.pools[column].attach(page, node, column)
        return True

    # -- loss ----------------------------------------------------------------------------------------------------

    def lose(self, node: Node, column: int) -> None:
        """Drop the page of one lifecycle; what becomes unreachable by it goes too.

        A full-attention or sink page takes the whole subtree along. A windowed page leaves its node; nodes without
        pages and children are pruned upwards.
        """
        lifecycle = self.lifecycles[column]
        page = node.pages[column]
        node.pages[column] = NO_PAGE
        node.coverage[column] = 0
        self.pools[column].detach(page)
        required = lifecycle.policy is ReusePolicy.REQUIRED
        sink = node.ordinal < lifecycle.sink_blocks(self.page_size)
        if required and (lifecycle.window is None or sink):
            self._remove_subtree(node)
        else:
            self._prune_up(node)

    def _remove_subtree(self, top: Node) -> None:
        parent = top.parent
        if not top.children:
            for column, page in enumerate(top.pages):
                if page != NO_PAGE:
                    top.pages[column] = NO_PAGE
                    top.coverage[column] = 0
                    self.pools[column].detach(page)
            self._unlink(top)
            if parent is not None and not parent.children:
                self._prune_up(parent)
            return
        stack = [top]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            for column, page in enumerate(node.pages):
                if page != NO_PAGE:
                    node.pages[column] = NO_PAGE
                    node.coverage[column] = 0
                    self.pools[column].detach(page)
            node.children.clear()
            node.alive = False
            node.parent = None
            if self.index.get(node.key) is node:
                del self.index[node.key]
        if parent is not None:
            if parent.children.pop(top.key, None) is not None and top.length < self.page_size:
                parent.partials -= 1
            self._prune_up(parent)
            self._forget_root(parent)

    def discard_empty(self, node: Node) -> None:
        """Remove a new node that got no page, and what its removal leaves empty."""
        self._prune_up(node)

    def _prune_up(self, node: Node | None) -> None:
        while node is not None and node.parent is not None and not node.children:
            if any(page != NO_PAGE for page in node.pages):
                return
            parent = node.parent
            self._unlink(node)
            node = parent

    def _unlink(self, node: Node) -> None:
        parent = node.parent
        node.alive = False
        if self.index.get(node.key) is node:
            del self.index[node.key]
        if parent is not None and parent.children.pop(node.key, None) is not None and node.length < self.page_size:
            parent.partials -= 1
        node.parent = None
        self._forget_root(parent)

    def _forget_root(self, root: Node | None) -> None:
        """Drop the root of a scope that caches nothing any more."""
        if root is not None and root.ordinal < 0 and not root.children and self.roots.get(root.key) is root:
            del self.roots[root.key]


def _last_holes(covered: list[int], size: int) -> list[int]:
    """For each block, the last block up to it that is covered for less than a whole page (-1: none)."""
    last, result = -1, []
    for ordinal, tokens in enumerate(covered):
        if tokens < size:
            last = ordinal
        result.append(last)
    return result


def _gap_starts(covered: list[int]) -> list[int]:
    """For each block, the first block of the run of uncovered ones that ends there (itself if it is covered)."""
    result: list[int] = []
    for ordinal, tokens in enumerate(covered):
        result.append(result[-1] if ordinal and not tokens and not covered[ordinal - 1] else ordinal)
    return result


def _common_items(left: bytes, right: bytes) -> int:
    """Number of equal leading int64 items of two byte strings."""
    low, high = 0, min(len(left), len(right)) // 8
    if left[: high * 8] == right[: high * 8]:
        return high
    if left[:8] != right[:8]:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if left[: middle * 8] == right[: middle * 8]:
            low = middle
        else:
            high = middle - 1
    return low
