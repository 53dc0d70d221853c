"""A prefix tree on its own pools, filled prompt by prompt with pages that cover what a test says."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from model.geometry import Lifecycle
from model.pages import PagePool
from model.rules.keys import KeysRule
from model.rules.layout import Index
from model.table import NO_PAGE
from model.tree import Match, Node, PrefixTree
from property_tests.model_core.helpers import view


class Forest:
    """A tree with pages of 4 tokens. Prompts are lists of token ids."""

    def __init__(
        self,
        *lives: Lifecycle,
        pages: int = 64,
        partial_children: int = 32,
        keys: KeysRule | None = None,
        index: Index | None = None,
    ) -> None:
        self.lives = lives
        self.pools = [PagePool(life.pool, place, pages) for place, life in enumerate(lives)]
        self.tree = PrefixTree(4, lives, self.pools, partial_children, index or Index())
        self.keys = keys
        self.span = max(life.lookahead for life in lives)

    def view(self, prompt: Sequence[int]):
        return view(prompt, lookahead=self.span, rule=self.keys)

    def publish(self, prompt: Sequence[int], covered: Mapping[int, Sequence[int]] | None = None) -> list[Node | None]:
        """Cache a prompt; ``covered[column]`` are the tokens that each block's page covers, all of them by default."""
        keys, nodes = self.view(prompt), []
        parent = self.tree.root(keys.seed)
        for block in range(-(-keys.length // 4)):
            length = min(4, keys.length - 4 * block)
            node = self.tree.insert(parent, keys.key(block, length), keys.block_items(block, length), length)
            nodes.append(node)
            if node is None:
                break
            for column, pool in enumerate(self.pools):
                tokens = length if covered is None or column not in covered else covered[column][block]
                if tokens:
                    page = pool.grant(1)
                    behind = keys.behind(block, tokens, self.lives[column].lookahead)
                    self.tree.set_page(node, column, page[0], tokens, behind)
                    pool.release_locked(page)
            parent = node
        return nodes

    def match(self, prompt: Sequence[int], limit: int | None = None) -> Match:
        """The match of a prompt of which the last token is always computed."""
        keys = self.view(prompt)
        return self.tree.match(keys.seed, keys.keys, keys.items, keys.lookup(limit))

    def matched(self, prompt: Sequence[int]) -> int:
        """Tokens of a prompt followed by one that nobody has, as far as the tree has them."""
        return self.match([*prompt, 4095]).tokens

    def deepest(self, prompt: Sequence[int], *columns: int, boundary: bool = False) -> int:
        """Endpoint that these lifecycles (all by default) cover for a prompt, after the trim by the lookahead."""
        keys = self.view(prompt)
        match = self.match(prompt)
        which = columns or tuple(range(len(self.lives)))
        return self.tree.deepest(match, keys.trim(match.tokens), which, keys, boundary)

    def lose(self, node: Node | None, column: int = 0) -> None:
        """The pool of a lifecycle takes a node's page."""
        assert node is not None
        self.tree.lose(node, column)

    def cached_pages(self, column: int = 0) -> int:
        """Pages of one pool that are cached and held by nobody."""
        return self.pools[column].droppable


def alive(nodes: Sequence[Node | None]) -> list[bool]:
    """Which nodes are still in the tree."""
    return [node is not None and node.alive for node in nodes]


def pages_of(node: Node | None) -> list[bool]:
    """Which lifecycles have a page at a node."""
    assert node is not None
    return [page != NO_PAGE for page in node.pages]


def items(*ids: int) -> bytes:
    """Key items as the tree keeps them."""
    return array("q", ids).tobytes()
