"""REUSE and AL: what the memory holds is read off its cells, and a lost hit or a hidden window is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from model.builds import BUILDS
from model.config import PublishPolicy
from model.invariants import holdings
from model.invariants.holdings import PromptHoldings
from model.joint import Column
from model.ops import World
from property_tests.laws.worlds import CORRECT, random_world
from property_tests.model_core.helpers import codes, config, serve, spec, world

PROMPT = list(range(10, 42))


def covers(held: PromptHoldings, columns: Sequence[Column], end: int) -> bool:
    """Brute force: every cell that the query at ``end`` reads lies in the covered part of its block."""
    page = held.page_size
    for column in columns:
        life, covered = column.lifecycle, held.covered[column.index]
        low = life.read_from(end)
        sinks = min(end, life.sink_blocks(page) * page)
        first = low // page * page  # pages are claimed whole, down to the one that the window begins in
        wanted = [*range(sinks), *range(first, end)]
        if any(position % page >= covered[position // page] for position in wanted):
            return False
    return True


@pytest.mark.parametrize("seed", range(300, 330))
def test_the_deepest_endpoint_is_that_of_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In random worlds, for target and both, at every end of every prompt that is claimed."""
    seen: list[PromptHoldings] = []
    construct = PromptHoldings.__init__

    def noted(held: PromptHoldings, *arguments: object) -> None:
        construct(held, *arguments)  # pyright: ignore[reportArgumentType]
        seen.append(held)
        twin = serving.engine.twin
        target = [column for column in twin.columns if not column.draft]
        for columns in (target, list(twin.columns)):
            for end in range(0, held.limit + 1, 3):
                fits = [e for e in range(1, end + 1) if covers(held, columns, e)]
                wanted = max((e for e in fits if held.partial or e % held.page_size == 0), default=0)
                assert held.deepest(columns, end, False, False) == wanted
                whole = max((e for e in fits if e % held.page_size == 0), default=0)
                assert held.deepest(columns, end, False, True) == whole
                assert held.deepest(columns, end, True, False) <= wanted

    monkeypatch.setattr(PromptHoldings, "__init__", noted)
    serving, driver = random_world(seed, CORRECT[seed % len(CORRECT)])
    assert driver.run()
    assert bool(seen) == (serving.config.policy is not PublishPolicy.NONE)
    if seen:
        assert any(any(covered) for held in seen for covered in held.covered)


@pytest.mark.parametrize("seed", range(340, 352))
def test_blocks_looked_at_one_by_one_and_all_at_once_hold_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of few known blocks is read cell by cell, one of many by arrays: the two are one answer."""
    compared = 0
    construct = PromptHoldings.__init__

    def both(held: PromptHoldings, *arguments: object) -> None:
        nonlocal compared
        found = []
        for few in (0, 1 << 30):
            monkeypatch.setattr(holdings, "FEW", few)
            construct(held, *arguments)  # pyright: ignore[reportArgumentType]
            found.append((held.covered, held.holes, held.last, held.several))
        assert found[0] == found[1]
        compared += any(map(any, held.covered))

    monkeypatch.setattr(PromptHoldings, "__init__", both)
    serving, driver = random_world(seed, CORRECT[seed % len(CORRECT)])
    assert driver.run()
    assert compared or serving.config.policy is PublishPolicy.NONE


def forgetful(build: str, check: str) -> World:
    """A served prompt whose first block the target's index no longer finds, though its page is cached."""
    serving = world(config(), build, check=check)
    serve(serving, spec(0, PROMPT))
    tree = serving.engine.twin.target.tree
    node = next(node for node in tree.index.values() if node.ordinal == 0)
    del tree.index[node.key]
    return serving


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
@pytest.mark.parametrize("build", ["unified", "paired-22", "target-21", "joint-18093", "sglang-fused"])
def test_a_hit_that_the_index_forgot_is_noticed(build: str, check: str) -> None:
    serving = forgetful(build, check)
    serve(serving, spec(1, PROMPT))
    lost = [violation for violation in serving.violations if violation.code == "REUSE"]
    assert [violation.request for violation in lost] == [1]
    assert "claims less" in lost[0].message


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
def test_a_hidden_window_is_noticed_at_the_first_drafter_pass_only(check: str) -> None:
    """A repeat of 32 tokens whose drafter cells were lost, on the build that claims without them."""
    serving = world(config(), "unified-nowindow", check=check)
    serve(serving, spec(0, PROMPT))
    serving.engine.twin.pools["draft"].evict_down_to(0)
    serve(serving, spec(1, PROMPT, 20))
    assert [violation.code for violation in serving.violations] == ["AL"]
    assert serving.docket.evaluations["AL"] == 2


def test_a_build_that_promises_nothing_of_its_window_is_not_asked_for_it() -> None:
    serving = world(config(), "target-21")
    serve(serving, spec(0, PROMPT))
    serve(serving, spec(1, PROMPT, 8))
    assert serving.docket.evaluations["AL"] == 0
    assert serving.docket.evaluations["REUSE"] == 2
    assert codes(serving) == set()


def test_the_experiment_without_the_window_is_historical_for_its_acceptance() -> None:
    assert BUILDS["unified-nowindow"].must_fire == ("AL",)


@pytest.mark.parametrize("build", ["unified", "paired-22", "joint-18093", "sglang-fused"])
def test_a_request_without_the_drafter_is_promised_what_the_target_holds_under_its_keys(build: str) -> None:
    serving = world(config(), build)
    serve(serving, spec(0, PROMPT))
    serve(serving, spec(1, PROMPT, drafts=False))
    assert serving.engine.records[1].cached_tokens == len(PROMPT) - 1
    assert (serving.docket.evaluations["REUSE"], serving.docket.evaluations["AL"]) == (2, 1)
    assert codes(serving) == set()
