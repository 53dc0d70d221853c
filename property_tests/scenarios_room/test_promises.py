"""Every shipped scenario keeps its promises: on its own build, on each build and each fault that it speaks of.

Toy scenarios run with every check after every step; those of real sizes with the incremental ones.
"""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from model.faults import FAULTS
from scenarios import catalog
from scenarios.names import find_build
from sim.run import run_scenario

TOYS = ("reports/", "faults/", "smoke/", "seeds/x14", "seeds/x15", "seeds/x17")
# seconds each: `make bench` runs them
LONG = ("workloads/common", "workloads/agent_layers", "seeds/s05", "seeds/s09", "seeds/s10")
AGENTIC = ("unified", "paired-22")  # the builds that run the agentic replay here


def promises() -> list[tuple[str, str]]:
    """Name of a scenario and name of a build that it says something about."""
    found = []
    for name in catalog.paths():
        if not name.startswith(LONG):
            scenario = catalog.load(name)
            builds = dict.fromkeys((scenario.build, *scenario.expect.by_build))
            found += [(name, build) for build in builds if name != "workloads/agentic" or build in AGENTIC]
    return found


@pytest.mark.parametrize(("name", "build"), promises())
def test_a_scenario_keeps_its_promise(name: str, build: str) -> None:
    check = "exhaustive" if name.startswith(TOYS) else "incremental"
    result = run_scenario(catalog.load(name), find_build(build), check=check)
    assert result.missed == []
    assert result.checked, "no law was evaluated"


# Builds whose drafter draws on the target's pool need larger pools than the toys give.
OWN_POOLS = [build.name for build in BUILDS.values() if build.correct and not build.rules.layout.shares_pool]


@pytest.mark.parametrize("build", OWN_POOLS)
@pytest.mark.parametrize("name", [name for name in catalog.paths() if name.startswith(TOYS)])
def test_no_correct_build_breaks_a_law_on_a_toy(name: str, build: str) -> None:
    result = run_scenario(catalog.load(name), BUILDS[build], check="exhaustive")
    assert [violation.message for violation in result.violations] == []


def test_the_first_seed_is_red_on_the_build_before_pairing() -> None:
    scenario = catalog.load("seeds/x05_repeat")
    assert "target-only" not in scenario.expect.by_build
    assert run_scenario(scenario, find_build("unified")).missed == []
    result = run_scenario(scenario, find_build("target-only"))
    assert set(result.codes) & {"INIT", "FRONT"}


def test_every_fault_has_a_scenario_that_expects_it() -> None:
    silent = []
    for fault in FAULTS.values():
        scenario = catalog.load(fault.scenario)
        expected = scenario.expect.by_build.get(f"fault:{fault.name}")
        if expected is None or not set(expected.violations or ()) & set(fault.fires):
            silent.append(fault.name)
    assert silent == []
