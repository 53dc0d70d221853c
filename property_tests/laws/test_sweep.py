"""Sweeps: correct builds break no law wherever rules compose, faults are found, and what is found can be repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model.builds import BUILDS
from model.faults import resolve_build
from model.ops import Settle, Submit, Suspend, World
from property_tests.laws.worlds import CORRECT
from scenarios.loader import parse_scenario
from sim.regression import scenario_yaml
from sim.run import run_scenario
from sim.sweep.case import Case, Drive, Wait, run_case
from sim.sweep.grids import GRIDS
from sim.sweep.grids.orders import interleavings
from sim.sweep.run import KEPT, Order, points, sweep
from sim.sweep.toy import Toy, ask, own, shared

EVERY = 12  # of the fast combinations: a few hundred of each grid
PER_GRID = {name: Order((name,), CORRECT, every=EVERY) for name in GRIDS}


@pytest.mark.parametrize("grid", GRIDS)
def test_no_correct_build_breaks_a_law_in_a_grid_that_reaches_what_it_is_for(grid: str) -> None:
    swept = sweep(PER_GRID[grid])
    assert [(finding.build, finding.point, finding.violation.message) for finding in swept.findings] == []
    assert swept.unasked() == []
    assert swept.reached(grid)["refused requests"] == 0
    assert swept.done == swept.planned == len(points(grid, False, EVERY)) * len(CORRECT)
    assert all(tally.checks for tally in swept.tallies)


def test_every_axis_of_a_grid_varies_what_runs() -> None:
    for grid in GRIDS.values():
        fast, full = grid.points(False), grid.points(True)
        for found, axes in ((fast, grid.fast), (full, grid.full)):
            assert found, grid.name
            for axis, values in axes.items():
                assert {point[axis] for point, _ in found} == set(values), (grid.name, axis)
        assert len(full) > 5 * len(fast)


def test_the_full_axes_hold_what_a_sweep_is_asked_for() -> None:
    full = {name: grid.full for name, grid in GRIDS.items()}
    assert set(full["windows"]["window"]) == {None, *range(1, 13)}
    assert set(full["lengths"]["page"]) == {2, 4, 8} == set(full["lookahead"]["page"])
    assert set(full["lookahead"]["chain"]) == {1, 2, 3}
    assert set(full["chunks"]["unit"]) == set(range(1, 9))
    assert set(full["orders"]["requests"]) == {2, 3}
    assert set(full["suspend"]["role"]) == {"", "target", "draft"}


def test_interleavings_are_all_the_orders_that_can_come() -> None:
    assert interleavings(1, 3, run_ahead=0) == ["ads"]
    assert interleavings(1, 4, run_ahead=1) == ["adds", "adsd"]
    assert interleavings(2, 3, run_ahead=0) == ["aad", "ada", "ads"]
    words = interleavings(3, 7, run_ahead=1)
    assert len(words) == len(set(words))
    for word in words:
        flying = [word[:end].count("d") - word[:end].count("s") for end in range(8)]
        assert min(flying) == 0 and max(flying) <= 2


def test_a_part_of_the_combinations_is_spread_over_all_axes() -> None:
    whole, part = points("recycling", False, 1), points("recycling", False, 5)
    assert len(whole) / 8 < len(part) < len(whole) / 3
    for axis in GRIDS["recycling"].fast:
        assert {point[axis] for point, _ in part} == {point[axis] for point, _ in whole}


def test_processes_change_nothing_about_what_is_found() -> None:
    order = Order(("lengths", "lookahead"), ("unified", "fault:raw-keys"), every=6)
    alone, together = sweep(order, workers=1), sweep(order, workers=2)
    assert alone.tallies == together.tallies
    assert alone.findings


def test_ctrl_c_keeps_what_was_found() -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 4:
            raise KeyboardInterrupt

    swept = sweep(Order(("lengths",), ("fault:copy-in-place", "unified")), progress=stop)
    assert swept.interrupted
    assert 0 < swept.done < swept.planned
    assert swept.findings


@pytest.mark.parametrize(
    ("fault", "grid"),
    [
        ("raw-keys", "lookahead"),
        ("copy-in-place", "lengths"),
        ("trim-only", "prompts"),
        ("placeholder-lookahead", "chunks"),
        ("slot-loss-zero", "suspend"),
        ("evict-target-only", "suspend"),
        ("no-draft-rollback", "forwards"),
        ("late-output", "recycling"),
    ],
)
def test_a_fault_is_found_and_its_scenario_repeats_it(fault: str, grid: str, tmp_path: Path) -> None:
    swept = sweep(Order((grid,), (f"fault:{fault}",)))
    assert swept.findings
    finding = swept.findings[0]
    text = finding.scenario
    result = run_scenario(
        parse_scenario(text, "found.yaml", tmp_path), resolve_build(finding.build), check="exhaustive"
    )
    assert result.violations[0] == finding.violation
    assert text.startswith(f"# {finding.violation.code}: ")


def test_few_scenarios_of_one_law_are_kept_and_all_are_counted() -> None:
    swept = sweep(Order(("lengths",), ("fault:copy-in-place",), every=2))
    assert len(swept.findings) == KEPT * len(swept.tallies[0].broken)
    assert sum(swept.tallies[0].broken.values()) > 5 * KEPT


def test_a_scenario_of_ops_loads_to_the_same_engine_and_ops(tmp_path: Path) -> None:
    toy = Toy(page=2, window=None, sinks=0, swa=5, extra=1, host=3, run_ahead=0, chunked=False, vocabulary=3)
    result = run_case(Case(toy, (ask(0, shared(5)), Drive(), ask(1, shared(4), own(1, 2)), Drive())), BUILDS["unified"])
    text = scenario_yaml("a toy", "two lines\nin one", "unified", result.config, result.ops)
    loaded = parse_scenario(text, "toy.yaml", tmp_path)
    read = loaded.engine_config()
    assert loaded.ops() == result.ops
    assert (read.limits, read.drafter, read.pools, read.policy) == (
        result.config.limits,
        result.config.drafter,
        result.config.pools,
        result.config.policy,
    )
    lives = [[replace(life, bytes_per_token=0, lookahead=0) for life in side] for side in (read.target, read.draft)]
    assert lives == [list(result.config.target), list(result.config.draft)]
    digests = []
    for config in (read, result.config):
        world = World(config, BUILDS["unified"])
        for op in result.ops:
            world.apply(op)
        digests.append((world.decision_digest(), world.memory_digest()))
    assert digests[0] == digests[1]


def test_a_script_says_when_a_step_settles_and_the_case_what_it_accepts() -> None:
    script = (ask(0, shared(4), output=9), Drive(3), Settle(()), Wait(), Suspend(0), Drive())
    ops = run_case(Case(Toy(), script, accepts=(3, 1)), BUILDS["paired-22"]).ops
    assert isinstance(ops[0], Submit)
    settled = [op.accepted for op in ops if isinstance(op, Settle)]
    assert settled[0] == ()
    assert [count for counts in settled for count in counts][:4] == [3, 1, 3, 1]


def test_hardly_any_pages_are_still_enough_for_one_request() -> None:
    specs = (ask(0, shared(9), output=5), Drive(), ask(1, own(1, 4), output=2), Drive())
    tight = run_case(Case(Toy(), specs, slack=0), BUILDS["paired-22"])
    assert not tight.reached["refused requests"]
    assert tight.reached["finished"] == 2
    least = {name: size.device_pages for name, size in tight.config.pools.items()}
    short = replace(
        tight.config,
        pools={name: replace(size, device_pages=least[name] - 1) for name, size in tight.config.pools.items()},
    )
    assert not World(short, BUILDS["paired-22"], check="off").apply(specs[0]).applied
