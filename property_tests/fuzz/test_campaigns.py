"""The campaign of the suite: every driver over all correct builds, the same programs each time. No law may break.

Other programs: ``make fuzz``. A failure here is told with its smallest program and the command that keeps it.
"""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from property_tests.fuzz import shards
from property_tests.fuzz.order import Order
from property_tests.fuzz.session import command_of
from sim.findings import ShardResult

CORRECT = tuple(build.name for build in BUILDS.values() if build.correct)
SEED = 20
LAWS = 5  # that every layer evaluates at least
SHARD = 200  # examples of one test, so that processes share them

# What one shard must reach, or it has not tried what it is there for.
ENGINE = (
    *("hits", "drafter hits", "partial claims", "joint claims", "fresh claims", "recycled pages", "suspensions"),
    *("preemptions", "skipped forwards", "failed forwards", "cancelled", "evictions from target", "deferrals"),
    *("late outputs", "copies to the host", "transfers sent", "tensor-parallel programs", "attention-DP programs"),
)
MACHINES = {"cache": 96, "engine": 96, "sim": 128}  # examples
WANTED = {
    "cache": ("suspension", "offload", "chunk refused", "row refused", "partial claim", "finished"),
    "engine": (
        *("hits", "fresh claims", "suspensions", "recycled pages", "failed forwards", "skipped forwards", "cancelled"),
        *("copies to the host", "late outputs", "plain requests", "verify rows"),
    ),
    "sim": ("hits", "fresh claims", "verify rows", "copies to the host", "failed forwards", "late outputs"),
}


def silent(order: Order, first: int, count: int) -> ShardResult:
    """The sums of a shard that broke no law and evaluated some."""
    result = shards.runner(order)(order, first, count, None)
    told = [
        f"{failure.law} on {failure.minimal.build}: {' '.join(failure.kinds)}: {failure.violation.message}"
        for failure in result.failures
    ]
    assert told == [], f"{command_of(order)} --examples {first + count} --out DIR keeps it"
    assert result.examples == count
    assert sum(1 for times in result.evaluations.values() if times) >= LAWS
    return result


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("driver", ["swarm", "bytes"])
def test_programs_of_the_engine_break_no_law(driver: str, place: int) -> None:
    result = silent(Order(CORRECT, driver, seed=SEED), place * SHARD, SHARD)
    assert [feature for feature in ENGINE if not result.features[feature]] == []


def test_programs_of_realistic_sizes_break_no_law() -> None:
    silent(Order(CORRECT, "swarm", profile="nightly", seed=SEED), 0, 4 * len(CORRECT))


def test_programs_of_the_cache_layer_break_no_law() -> None:
    result = silent(Order(CORRECT, "swarm", "cache", seed=SEED), 0, 600)
    assert result.steps > 10 * result.examples
    assert sum(1 for count in result.features.values() if count) >= 8


@pytest.mark.parametrize("machine", MACHINES)
def test_machines_break_no_law(machine: str) -> None:
    result = silent(Order(CORRECT, "machine", machine, seed=SEED), 0, MACHINES[machine])
    assert result.steps > 5 * result.examples
    assert [feature for feature in WANTED[machine] if not result.features[feature]] == []


def test_a_campaign_on_a_build_that_is_wrong_is_not_silent() -> None:
    order = Order(("fault:raw-keys",), seed=SEED)
    with pytest.raises(AssertionError, match=r"kvtwin fuzz --build fault:raw-keys --driver swarm .* keeps it"):
        silent(order, 0, 20)
