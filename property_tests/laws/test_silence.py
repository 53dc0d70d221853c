"""A correct build breaks no law: on the shipped scenarios of real sizes, in random worlds, and with hardly any pages.

The toy scenarios run on every correct build in ``scenarios_room/test_promises.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import pytest

from model.builds import BUILDS
from property_tests.laws.worlds import CALM, CORRECT, Driver, random_world
from property_tests.scenarios_room.test_promises import LONG, TOYS, promises
from scenarios import catalog
from sim.run import run_scenario

PROMISED = set(promises())
REAL_SIZES = [
    (name, build)
    for name in catalog.paths()
    for build in CORRECT
    if not name.startswith((*TOYS, *LONG, "workloads/agentic")) and (name, build) not in PROMISED
]
COPYING = (0, 7, 54, 65)  # seeds of roomy worlds whose copies between the tiers take time and get lost
LOOSE = (*range(28, 42), *COPYING)  # seeds of roomy worlds for each build
TIGHT = (*range(100, 106), 70, 113)  # seeds of worlds under pressure for each build, the last two with slow copies
REACHED = (  # counters that must move somewhere, or the worlds have not tried what they are there for
    "cached_tokens",
    "partial_claims",
    "joint_claims",
    "fresh_claims",
    "branch_windows",
    "deferrals",
    "preemptions",
    "suspensions",
    "refused_admissions",
    "recomputed_tokens",
    "late_outputs",
    "skipped_forwards",
    "failed_forwards",
    "cancelled",
    "stores",
    "loads",
    "lost_copies",
)


@pytest.mark.parametrize(("name", "build"), REAL_SIZES)
def test_no_correct_build_breaks_a_law_on_a_scenario_of_real_size(name: str, build: str) -> None:
    result = run_scenario(catalog.load(name), BUILDS[build], check="incremental")
    assert result.violations == []
    assert result.checked


@pytest.mark.parametrize("build", CORRECT)
@pytest.mark.parametrize("seed", LOOSE)
def test_a_random_world_breaks_no_law_and_ends(seed: int, build: str) -> None:
    world, driver = random_world(seed, build)
    assert driver.run()
    assert world.violations == []
    assert all(use.locked == use.held == 0 for use in world.engine.occupancy())


@pytest.mark.parametrize("build", CORRECT)
@pytest.mark.parametrize("seed", TIGHT)
def test_whatever_fits_alone_finishes_under_pressure(seed: int, build: str) -> None:
    world, driver = random_world(seed, build, tight=True)
    assert driver.run()
    assert world.violations == []
    assert {record.state for record in world.engine.records.values()} <= {"finished", "cancelled"}


@pytest.mark.parametrize("build", CORRECT)
def test_without_disturbances_every_accepted_request_finishes(build: str) -> None:
    for seed in (201, 202):
        world, driver = random_world(seed, build, tight=True)
        driver = Driver(world, driver.todo, driver.rng, CALM)
        assert driver.run()
        assert {record.state for record in world.engine.records.values()} == {"finished"}
        assert len(world.engine.records) == len(driver.sent)


def test_the_worlds_reach_what_they_are_there_for() -> None:
    reached: Counter[str] = Counter()
    for seed in LOOSE:
        for build in ("unified", "paired-22"):
            world, driver = random_world(seed, build, check="off")
            driver.run()
            reached.update(asdict(world.engine.totals))
            for use in world.engine.occupancy():
                reached[f"evicted from {use.name}"] += use.evicted
                reached["host tier"] += use.host_pages > 0
    wanted = (*REACHED, "evicted from target", "evicted from draft", "host tier")
    assert [counter for counter in wanted if not reached[counter]] == []
