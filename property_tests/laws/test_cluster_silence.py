"""A correct build breaks no law in random fleets and rank groups, and these reach what they are there for."""

from __future__ import annotations

from collections import Counter

import pytest

from model.cluster import Cluster
from model.fleet import Fleet
from model.ranks import RankGroup
from property_tests.laws.clusters import CLUSTERS, random_cluster
from property_tests.laws.worlds import CORRECT

SEEDS = range(4)
kinds = pytest.mark.parametrize("kind", CLUSTERS, ids=["fleet", "ranks"])


@kinds
@pytest.mark.parametrize("build", CORRECT)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_cluster_breaks_no_law_and_ends(seed: int, build: str, kind: type[Cluster]) -> None:
    for tight in (False, True):
        driver = random_cluster(seed, build, kind, tight=tight)
        assert driver.run()
        assert driver.cluster.violations == []
        assert {record.state for record in driver.cluster.records().values()} <= {"finished", "cancelled"}
        assert all(use.locked == use.held == 0 for use in driver.cluster.occupancy())


def test_ranks_of_a_group_stay_equal_to_the_last_digest() -> None:
    for seed in SEEDS:
        group = random_cluster(seed, "unified", RankGroup).cluster
        assert len({world.decision_digest() for world in group.workers}) == 1


def test_the_clusters_reach_what_they_are_there_for() -> None:
    reached: Counter[str] = Counter()
    for seed in range(12):
        driver = random_cluster(seed, "paired-22", Fleet, tight=seed % 2 == 0)
        reached["a warm-up"] += bool(driver.cluster.workers[0].engine.iteration)
        reached["a warm-up without pages"] += bool(driver.cluster.skips)
        while driver.todo or driver.cluster.has_work():
            driver.turn()
            for world in driver.cluster.workers:
                for plan in world.engine.plans:
                    reached["a pad dummy"] += len(plan.dummies)
                    reached["padding"] += plan.padding
                    reached["a chunk beside dummies of other ranks"] += len(plan.context)
        reached["a skipped step"] += driver.cluster.totals().skipped_forwards
        reached["a failed step"] += driver.cluster.totals().failed_forwards
    wanted = (
        "a warm-up",
        "a warm-up without pages",
        "a pad dummy",
        "padding",
        "a chunk beside dummies of other ranks",
        "a skipped step",
        "a failed step",
    )
    assert [what for what in wanted if not reached[what]] == []
