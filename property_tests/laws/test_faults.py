"""Each fault breaks its law, first and on its own scenario; without the fault the same scenario is silent.

A law that no fault breaks first has not been shown to be able to fail.
"""

from __future__ import annotations

from functools import cache

import pytest

from model.builds import BUILDS
from model.faults import FAULTS, Fault
from model.invariants import INVARIANTS
from scenarios import catalog
from sim.result import RunResult
from sim.run import run_scenario

TINY = 40  # pages of a pool that a scenario which shows a fault may have
OF_A_STEP = {"SHAPE"}  # the first violation speaks of a whole step: no request, no pool
OF_A_REQUEST = {"STATE", "METRIC", "PROGRESS", "RANK"}  # it names a request, but pages of no pool are concerned
OF_A_SPLIT = {"budget"}  # rules that were applied before there was any request
OF_NOBODY = ("dummy", "warm-up", "without a request")  # rows that belong to no request, or to one that is over
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


@cache
def run(fault: Fault, build: str | None = None, check: str = "exhaustive") -> RunResult:
    """The fault's own scenario on its faulty build, or on the named one."""
    return run_scenario(catalog.load(fault.scenario), BUILDS[build] if build else fault.build, check=check)


@every_fault
def test_a_fault_breaks_its_own_law_first(fault: Fault) -> None:
    first = run(fault).violations[0]
    assert first.code == fault.fires[0]
    assert first.step >= 0


@every_fault
def test_the_first_violation_says_where_to_look(fault: Fault) -> None:
    result = run(fault)
    first = result.violations[0]
    assert first.message
    of_nobody = fault.rule in OF_A_SPLIT or any(words in first.message for words in OF_NOBODY)
    if first.code not in OF_A_STEP and not of_nobody:
        assert first.request in {record.request_id for record in result.records}
    if first.code not in OF_A_STEP | OF_A_REQUEST:
        assert first.pool in result.config.pools
    if first.code in {"INIT", "KEY"}:
        assert first.page >= 0
        assert first.expected.startswith("tag ")
    if first.code in {"OWN", "INIT", "KEY", "PUB", "WINDOW"}:
        assert first.position >= 0


@every_fault
def test_what_follows_is_announced(fault: Fault) -> None:
    may = catalog.load(fault.scenario).expect.for_build(f"fault:{fault.name}").may
    assert set(run(fault).codes) <= {*fault.fires, *may}


@every_fault
def test_the_base_build_is_silent_on_the_same_scenario(fault: Fault) -> None:
    assert BUILDS[fault.base].correct
    result = run(fault, fault.base)
    assert result.violations == []
    assert result.missed == []
    assert result.checked[fault.fires[0]] > 0, "the law was not even evaluated"


@every_fault
def test_checks_that_look_only_at_what_changed_catch_it_too(fault: Fault) -> None:
    assert run(fault, check="incremental").violations[0].code == fault.fires[0]


@every_fault
def test_the_scenario_names_the_law_and_is_tiny(fault: Fault) -> None:
    scenario = catalog.load(fault.scenario)
    expected = scenario.expect.for_build(f"fault:{fault.name}")
    assert fault.fires[0] in (expected.violations or ())
    assert max(size.device_pages for size in scenario.engine_config().pools.values()) <= TINY


def test_every_law_is_the_first_to_notice_some_fault() -> None:
    assert {fault.fires[0] for fault in FAULTS.values()} == set(INVARIANTS)


def test_a_fault_changes_nothing_but_the_rules_that_it_names() -> None:
    for fault in FAULTS.values():
        base, faulty = BUILDS[fault.base].rules.named(), fault.build.rules.named()
        changed = {rule for rule in base if base[rule] != faulty[rule]}
        assert changed == {rule for rule, _ in fault.changes}, fault.name
