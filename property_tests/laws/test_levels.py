"""The levels of checking agree: they look at one world, decide nothing in it, and find the same when it is spoiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from model.builds import BUILDS
from model.eviction import PageState
from model.invariants import Docket, Violation
from model.invariants.reference import ReferenceLaw
from model.ops import CHECKS, World
from model.pages import PagePool
from property_tests.laws.healthy import finish, healthy, pool_of
from property_tests.laws.worlds import CORRECT, random_world
from scenarios import catalog
from sim.run import run_scenario

TOYS = ("smoke/disturbed", "smoke/pressure", "smoke/host_tier", "smoke/conversation", "smoke/mtp_chain", "reports/o24")
Corruption = Callable[[World], PagePool]


# -- digests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", ["unified", "paired-22", "target-21"])
@pytest.mark.parametrize("name", TOYS)
def test_a_toy_scenario_runs_alike_at_every_level(name: str, build: str) -> None:
    runs = {check: run_scenario(catalog.load(name), BUILDS[build], check=check) for check in CHECKS}
    assert len({run.decision_digest for run in runs.values()}) == 1
    assert runs["incremental"].memory_digest == runs["exhaustive"].memory_digest
    assert runs["off"].memory_digest == "not computed"
    assert [run.violations for run in runs.values()] == [[], [], []]


@pytest.mark.parametrize("seed", range(7000, 7036))
def test_a_random_world_runs_alike_at_every_level(seed: int) -> None:
    build = CORRECT[seed % len(CORRECT)]
    worlds = {}
    for check in CHECKS:
        worlds[check], driver = random_world(seed, build, tight=seed % 3 == 0, check=check)
        assert driver.run()
    assert len({world.decision_digest() for world in worlds.values()}) == 1
    assert worlds["incremental"].memory_digest() == worlds["exhaustive"].memory_digest()
    assert [world.violations for world in worlds.values()] == [[], [], []]
    assert sum(worlds["off"].docket.evaluations.values()) == 0


def test_a_thorough_level_evaluates_each_law_at_least_as_often() -> None:
    counts = {}
    for check in ("incremental", "exhaustive"):
        world, driver = random_world(7001, "unified", check=check)
        driver.run()
        counts[check] = world.docket.evaluations
    assert set(counts["incremental"]) | {"MAP"} == set(counts["exhaustive"])  # rows are compared every 64 iterations
    assert all(counts["exhaustive"][code] >= times for code, times in counts["incremental"].items())


# -- two implementations of REF ----------------------------------------------------------------------------------------


def judged(world: World, bulk: bool) -> list[Violation]:
    """What a fresh judge of page references says, by the loop or by numpy."""
    docket = Docket()
    ReferenceLaw(world.engine.twin, docket, lambda owner: owner).check(0, bulk=bulk)
    assert docket.evaluations["REF"] == 1
    return docket.violations


def places(violations: list[Violation]) -> list[tuple[str, int]]:
    """Pool and page of each violation."""
    return [(violation.pool, violation.page) for violation in violations]


def page_in(pool: PagePool, state: PageState) -> int:
    """Some page of ``pool`` in ``state``."""
    return next(page for page in range(pool.total) if pool.state[page] == state)


def _lock_too_many(world: World) -> PagePool:
    pool = pool_of(world)
    pool.locks[page_in(pool, PageState.LOCKED)] += 1
    return pool


def _lock_too_few(world: World) -> PagePool:
    pool = pool_of(world, "draft")
    pool.locks[page_in(pool, PageState.LOCKED)] -= 1
    return pool


def _hold_on_a_free_page(world: World) -> PagePool:
    pool = pool_of(world)
    pool.holds[page_in(pool, PageState.FREE)] += 1
    return pool


def _state_of_a_locked_page(world: World) -> PagePool:
    pool = pool_of(world)
    pool.state[page_in(pool, PageState.LOCKED)] = PageState.HELD
    return pool


def _free_page_called_droppable(world: World) -> PagePool:
    pool = pool_of(world)
    pool.state[page_in(pool, PageState.FREE)] = PageState.DROPPABLE
    return pool


def _free_page_that_a_node_caches(world: World) -> PagePool:
    pool = pool_of(world)
    cached = next(page for page in range(pool.total) if pool.node[page] is not None)
    pool.node[page_in(pool, PageState.FREE)] = pool.node[cached]
    return pool


def _locked_page_on_the_free_list(world: World) -> PagePool:
    pool = pool_of(world)
    pool.free_ids.append(page_in(pool, PageState.LOCKED))
    return pool


def _free_page_listed_twice(world: World) -> PagePool:
    pool = pool_of(world, "draft")
    pool.free_ids.append(pool.free_ids[0])
    return pool


def _free_page_not_listed(world: World) -> PagePool:
    pool = pool_of(world)
    pool.free_ids.pop()
    return pool


def _counter_of_droppable_pages(world: World) -> PagePool:
    pool = pool_of(world)
    pool.droppable -= 1
    return pool


def _droppable_page_whose_node_died(world: World) -> PagePool:
    pool = pool_of(world)
    finish(world)
    node = pool.node[page_in(pool, PageState.DROPPABLE)]
    assert node is not None
    node.alive = False
    return pool


def _droppable_page_in_no_ring(world: World) -> PagePool:
    pool = pool_of(world)
    finish(world)
    pool.rings.stamp[page_in(pool, PageState.DROPPABLE)] = -1
    return pool


CORRUPTIONS: tuple[Corruption, ...] = (
    _lock_too_many,
    _lock_too_few,
    _hold_on_a_free_page,
    _state_of_a_locked_page,
    _free_page_called_droppable,
    _free_page_that_a_node_caches,
    _locked_page_on_the_free_list,
    _free_page_listed_twice,
    _free_page_not_listed,
    _counter_of_droppable_pages,
    _droppable_page_whose_node_died,
    _droppable_page_in_no_ring,
)


@pytest.mark.parametrize("build", ["paired-22", "unified"])
@pytest.mark.parametrize("spoil", CORRUPTIONS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_loop_and_bulk_find_the_same_in_a_spoiled_pool(spoil: Corruption, build: str) -> None:
    world = healthy(build)
    pool = spoil(world)
    by_loop, by_bulk = judged(world, bulk=False), judged(world, bulk=True)
    assert pool.name in {violation.pool for violation in by_loop}
    assert places(by_loop) == places(by_bulk)


@pytest.mark.parametrize("host", [0, 12])
@pytest.mark.parametrize("seed", range(7100, 7112))
def test_loop_and_bulk_are_silent_on_healthy_pools(seed: int, host: int) -> None:
    world, driver = random_world(seed, CORRECT[seed % len(CORRECT)], tight=bool(host))
    for turn in range(60):
        driver.turn()
        if turn % 10 == 0:
            assert judged(world, bulk=False) == judged(world, bulk=True) == []
