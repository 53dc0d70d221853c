"""What the prefix tree keeps: fuller siblings, useless blocks, coverage by page, and what a lost page takes along."""

from __future__ import annotations

import pytest

from model.geometry import Lifecycle, ReusePolicy
from model.rules.layout import Index
from model.table import NO_PAGE
from model.tree import Node
from property_tests.model_core.forest import Forest, alive, items, pages_of
from property_tests.model_core.helpers import lifecycle

PROMPT = list(range(10, 30))
OPTIONAL = lifecycle("draft", 8, role="draft", policy=ReusePolicy.OPTIONAL)

# -- partial blocks and their siblings --------------------------------------------------------------------------------


def test_a_fuller_block_takes_the_place_of_its_start_and_keeps_its_pages() -> None:
    forest = Forest(lifecycle(), lifecycle("draft"))
    (partial,) = forest.publish([1, 2])
    assert partial is not None
    kept = list(partial.pages)
    (fuller,) = forest.publish([1, 2, 3, 4], {0: [0], 1: [0]})
    assert fuller is not None
    assert alive([partial, fuller]) == [False, True]
    assert (fuller.pages, fuller.coverage) == (kept, [2, 2])
    assert [pool.node[page] for pool, page in zip(forest.pools, kept, strict=True)] == [fuller, fuller]


def test_of_an_adopted_and_a_new_page_the_one_that_covers_more_stays() -> None:
    forest = Forest(lifecycle(), lifecycle("draft"))
    forest.publish([1, 2, 3])
    (fuller,) = forest.publish([1, 2, 3, 4], {1: [0]})
    assert fuller is not None
    assert fuller.coverage == [4, 3]
    assert [pool.free_count() for pool in forest.pools] == [63, 63]  # the target's partial page went


def test_replacing_a_partial_page_by_a_fuller_one_keeps_its_endpoint() -> None:
    """O18: three tokens in both lifecycles, then the whole block in one of them."""
    forest = Forest(lifecycle(), lifecycle("draft"))
    forest.publish([1, 2, 3])
    forest.publish([1, 2, 3, 4], {1: [0]})
    assert forest.deepest([1, 2, 3, 9, 9]) == 3
    assert forest.deepest([1, 2, 3, 4, 5]) == 3  # four only where every lifecycle covers four
    assert forest.deepest([1, 2, 3, 4, 5], 0) == 4


def test_in_the_other_order_the_start_of_a_block_is_useless_and_promises_nothing() -> None:
    """O18 with the fuller block first: it is no node of its own, and an ordinary commit fills no hole."""
    forest = Forest(lifecycle(), lifecycle("draft"))
    forest.publish([1, 2, 3, 4], {1: [0]})
    assert forest.publish([1, 2, 3]) == [None]
    assert forest.deepest([1, 2, 3, 9, 9]) == 0
    assert forest.deepest([1, 2, 3, 9, 9], 0) == 3


@pytest.mark.parametrize("orders", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_a_match_does_not_depend_on_the_order_of_publication(orders: tuple[int, ...]) -> None:
    forest = Forest(lifecycle())
    prompts = ([1, 2], [1, 2, 3, 4, 5, 6], [1, 2, 3])
    for place in orders:
        forest.publish(prompts[place])
    assert [forest.matched(tail) for tail in ([1, 2, 9], [1, 2, 3, 9], [1, 2, 3, 4, 5, 9])] == [2, 3, 5]
    assert len(forest.tree.index) == 2


def test_a_node_that_trusts_its_length_promises_what_its_page_does_not_hold() -> None:
    """The fault of O18: coverage kept by node and not by page."""
    forest = Forest(lifecycle(), lifecycle("draft"), index=Index("node", exact=False))
    forest.publish([1, 2, 3])
    forest.publish([1, 2, 3, 4], {1: [0]})
    assert forest.deepest([1, 2, 3, 4, 5]) == 4


def test_only_the_start_of_a_block_is_replaced_and_not_a_different_end() -> None:
    forest = Forest(lifecycle())
    (other,) = forest.publish([1, 9])
    forest.publish([1, 2, 3, 4])
    assert alive([other]) == [True]
    assert forest.matched([1, 9]) == 2


def test_a_partial_block_grows_through_ever_fuller_ones() -> None:
    forest = Forest(lifecycle())
    for length in (1, 2, 3, 4):
        forest.publish([1, 2, 3, 4][:length])
    assert len(forest.tree.index) == 1
    assert forest.tree.root(forest.view([1]).seed).partials == 0
    assert forest.cached_pages() == 1


def test_a_block_that_is_cached_already_is_the_same_node() -> None:
    forest = Forest(lifecycle())
    first = forest.publish(PROMPT)
    assert forest.publish(PROMPT) == first
    assert forest.cached_pages() == 5  # the second one's pages covered no more and were dropped


def test_a_node_keeps_the_page_that_covers_more() -> None:
    forest = Forest(lifecycle())
    (node,) = forest.publish([1, 2, 3, 4], {0: [2]})
    assert node is not None
    small = node.pages[0]
    forest.publish([1, 2, 3, 4])
    assert node.coverage == [4]
    assert node.pages[0] != small
    assert forest.cached_pages() == 1


# -- lost pages -------------------------------------------------------------------------------------------------------


def test_a_lost_full_attention_page_takes_every_block_behind_it() -> None:
    forest = Forest(lifecycle())
    nodes = forest.publish(PROMPT)
    branch = forest.publish([*PROMPT[:12], 1, 2, 3])
    forest.lose(nodes[2])
    assert alive(nodes) == [True, True, False, False, False]
    assert alive(branch) == [True, True, False, False]
    assert forest.matched(PROMPT) == 8
    assert forest.cached_pages() == 2


def test_a_lost_windowed_page_leaves_its_block() -> None:
    forest = Forest(lifecycle(window=4))
    nodes = forest.publish(PROMPT)
    forest.lose(nodes[1])
    assert alive(nodes) == [True] * 5
    assert forest.matched(PROMPT) == 20
    assert forest.deepest([*PROMPT, 1]) == 20  # the window at 20 does not reach down there
    assert forest.deepest(PROMPT[:9]) == 4


@pytest.mark.parametrize(("block", "left"), [(0, 0), (1, 1), (2, 5)])
def test_a_lost_sink_page_takes_the_blocks_behind_it(block: int, left: int) -> None:
    forest = Forest(lifecycle(window=4, sinks=6))
    nodes = forest.publish(PROMPT)
    forest.lose(nodes[block])
    assert sum(alive(nodes)) == left


@pytest.mark.parametrize("life", [OPTIONAL, lifecycle("draft", policy=ReusePolicy.OPTIONAL)])
def test_a_lost_optional_page_disturbs_nobody_else(life: Lifecycle) -> None:
    forest = Forest(lifecycle(), life)
    nodes = forest.publish(PROMPT)
    forest.lose(nodes[1], 1)
    assert alive(nodes) == [True] * 5
    assert pages_of(nodes[1]) == [True, False]
    assert forest.deepest([*PROMPT, 1], 0) == 20
    assert forest.cached_pages(0) == 5


def test_a_lost_required_page_takes_the_optional_ones_behind_it_along() -> None:
    forest = Forest(lifecycle(), OPTIONAL)
    nodes = forest.publish(PROMPT)
    forest.lose(nodes[3], 0)
    assert [pool.droppable for pool in forest.pools] == [3, 3]


def test_blocks_without_pages_are_pruned_upwards_as_far_as_nothing_hangs_on_them() -> None:
    forest = Forest(lifecycle(window=4))
    nodes = forest.publish(PROMPT, {0: [4, 0, 4, 0, 4]})
    forest.lose(nodes[2])
    assert alive(nodes) == [True] * 5  # a block with a page hangs on it
    forest.lose(nodes[4])
    assert alive(nodes) == [True, False, False, False, False]
    assert len(forest.tree.index) == 1


def test_a_branch_keeps_the_blocks_before_it() -> None:
    forest = Forest(lifecycle(window=4))
    nodes = forest.publish(PROMPT[:12], {0: [0, 0, 4]})
    forest.publish([*PROMPT[:8], 1, 2, 3, 4], {0: [0, 0, 4]})
    forest.lose(nodes[2])
    assert alive(nodes) == [True, True, False]


def test_a_block_that_never_got_a_page_does_not_stay() -> None:
    forest = Forest(lifecycle())
    root = forest.tree.root(forest.view(PROMPT).seed)
    node = forest.tree.insert(root, 77, items(1, 2), 2)
    assert node is not None
    assert (root.partials, len(root.children)) == (1, 1)
    forest.tree.discard_empty(node)
    assert (root.partials, len(root.children), len(forest.tree.index)) == (0, 0, 0)


def test_lost_partial_blocks_are_no_longer_counted() -> None:
    forest = Forest(lifecycle())
    (node,) = forest.publish([1, 2])
    assert node is not None and node.parent is not None
    root = node.parent
    assert root.partials == 1
    forest.lose(node)
    assert root.partials == 0
    assert not root.children


def test_a_run_of_new_blocks_is_what_inserting_them_one_by_one_gives() -> None:
    one, many = Forest(lifecycle()), Forest(lifecycle())
    keys = one.view(PROMPT)
    below = one.publish(PROMPT[:4])[0]
    start = many.publish(PROMPT[:4])[0]
    assert below is not None and start is not None
    parent, expected = below, []
    for block in range(1, 5):
        node = one.tree.insert(parent, keys.key(block, 4), keys.block_items(block, 4), 4)
        assert node is not None
        expected.append(node)
        parent = node
    grown = many.tree.grow(start, many.view(PROMPT), 1, 5)

    def shape(node: Node) -> tuple[object, ...]:
        parent_key = node.parent.key if node.parent is not None else None
        return (node.key, parent_key, node.ordinal, node.items, node.length, node.pages, node.coverage, node.alive)

    assert [shape(node) for node in grown] == [shape(node) for node in expected]
    assert set(many.tree.index) == set(one.tree.index)
    assert grown[0].pages == [NO_PAGE]
