"""Attention-DP ranks in lock step: who pads, what a dummy owns and when it goes, who waits for whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.events import FIELDS, Kind
from model.fleet import Fleet
from model.geometry import Lifecycle
from model.ops import At, Cancel, Dispatch, Fail, Settle, Submit
from model.rules.dummy import Dummy
from model.tokens import Segment

LIMITS = Limits(4, 4, 32, 128, 4, extra_tokens=2, stall_passes=12)


def fleet(build: str = "paired-22", ranks: int = 2, gate: int = 0, target: int = 24, **limits: object) -> Fleet:
    config = EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", 8),),
        drafter=Drafter("dspark", 3, 8),
        limits=replace(LIMITS, **limits),  # pyright: ignore[reportArgumentType]
        pools={"target": PoolSize(target), "draft": PoolSize(24)},
        vocabulary=4096,
    )
    return Fleet([config] * ranks, BUILDS[build], check="exhaustive", gate=gate)


def ask(request_id: int, prompt: int = 10, output: int = 6) -> Submit:
    return Submit(RequestSpec(request_id, (Segment(request_id, prompt),), output, 900 + request_id))


def settle(ranks: Fleet, rank: int) -> bool:
    rows = ranks.workers[rank].engine.plans[0].generation
    return ranks.apply(At(rank, Settle((1,) * len(rows)))).applied


def held(ranks: Fleet, rank: int) -> list[int]:
    return [use.locked + use.held for use in ranks.workers[rank].occupancy()]


def test_an_idle_rank_runs_a_dummy_along_with_a_cache_in_both_pools() -> None:
    ranks = fleet()
    assert ranks.apply(At(0, ask(0))).applied
    plans = ranks.apply(Dispatch()).plans
    assert [len(plan.context) if plan else -1 for plan in plans] == [1, 0]
    assert [len(plan.dummies) if plan else -1 for plan in plans] == [0, 1]
    assert held(ranks, 1) == [2, 2]  # 1 token, 2 extra ones and a verify row of 4
    assert plans[1] is not None
    assert plans[1].dummies[0].slot == LIMITS.max_batch
    assert settle(ranks, 1)
    assert held(ranks, 1) == [0, 0]
    assert ranks.workers[1].totals().decode_rows == 0
    assert ranks.violations == []


def test_the_fleet_waits_for_its_slowest_rank() -> None:
    ranks = fleet(run_ahead=0)
    ranks.apply(At(0, ask(0)))
    assert ranks.apply(Dispatch()).applied
    assert settle(ranks, 0)
    assert "oldest iteration of some rank" in ranks.apply(Dispatch()).why
    assert settle(ranks, 1)
    assert ranks.apply(Dispatch()).applied


def test_no_rank_forwards_alone() -> None:
    ranks = fleet()
    ranks.apply(At(0, ask(0)))
    assert ranks.apply(At(0, Dispatch())).why == "dispatch concerns all ranks, not one"
    assert ranks.apply(At(0, Fail())).why == "fail concerns all ranks, not one"
    assert ranks.apply(ask(1)).why == "submit names no worker"
    assert ranks.apply(At(2, ask(1))).why == "there is no worker 2"


@pytest.mark.parametrize("op", [Dispatch(skip=True), Fail()])
def test_a_step_that_does_not_run_gives_growth_and_dummies_of_all_ranks_back(op: Dispatch | Fail) -> None:
    ranks = fleet()
    ranks.apply(At(0, ask(0)))
    assert ranks.apply(Dispatch()).applied
    assert settle(ranks, 0)
    assert settle(ranks, 1)
    before = [held(ranks, rank) for rank in range(2)]
    for _ in range(3):
        outcome = ranks.apply(op)
        assert outcome.applied
        assert not any(outcome.plans)
        assert [held(ranks, rank) for rank in range(2)] == before
        assert [world.engine.dummies.live for world in ranks.workers] == [{}, {}]
    assert ranks.violations == []


def test_a_benchmark_gate_lets_no_step_run_until_all_requests_are_there() -> None:
    ranks = fleet(gate=2)
    ranks.apply(At(0, ask(0)))
    for _ in range(20):  # longer than the patience of the law: a shut gate is no livelock
        assert ranks.apply(Dispatch()).why == "the benchmark gate is shut"
        assert held(ranks, 0) == held(ranks, 1) == [0, 0]
    ranks.apply(At(1, ask(1)))
    assert all(ranks.apply(Dispatch()).plans)
    ranks.apply(At(1, Cancel(1)))
    assert all(ranks.apply(Dispatch()).plans), "an open gate stays open"
    assert ranks.violations == []


def test_requests_have_to_fit_beside_the_dummies_in_flight() -> None:
    # 10 + 6 tokens, 2 extra ones and drafts of 3 verify rows take 7 pages; dummies in flight 2.
    assert fleet(target=9).apply(At(0, ask(0))).applied
    assert "needs up to 9 pages of pool 'target', which has 8" in fleet(target=8).apply(At(0, ask(0))).why


def test_a_rank_that_cannot_have_a_dummys_pages_keeps_the_step_back_and_is_not_blamed() -> None:
    ranks = fleet(target=10, run_ahead=1)
    ranks.apply(At(0, ask(0, 20, 1)))
    ranks.apply(At(1, ask(1, 20, 1)))
    assert all(ranks.apply(Dispatch()).plans)
    ranks.workers[0].engine.twin.pools["target"].grant(3)  # somebody else takes what is left
    assert settle(ranks, 1)
    ranks.apply(At(1, ask(2)))
    assert ranks.apply(Dispatch()).why == "rank 0 has nothing to queue"
    assert "PROGRESS" not in {violation.code for violation in ranks.violations}


def test_ranks_that_wait_for_ever_are_reported_once_their_patience_is_over() -> None:
    ranks = fleet()
    for world in ranks.workers:
        world.engine.rules = replace(world.engine.rules, dummy=Dummy("target-only", draft=False))
    ranks.apply(At(0, ask(0)))
    for _ in range(LIMITS.stall_passes):
        assert not ranks.apply(Dispatch()).applied
    reports = [violation for violation in ranks.violations if violation.code == "PROGRESS"]
    assert any("12 steps of the fleet in a row were skipped" in report.message for report in reports)


def test_dummies_and_padding_are_told_with_as_many_fields_as_their_kinds_name() -> None:
    quiet = fleet(graph_batches=(4,))
    ranks = Fleet([world.config for world in quiet.workers], quiet.build, check="exhaustive", keep_events=True)
    ranks.apply(At(0, ask(0)))
    for _ in range(3):
        ranks.apply(Dispatch())
        assert settle(ranks, 0) and settle(ranks, 1)
    busy, idle = (world.log for world in ranks.workers)
    decided, done = dict(idle.decisions.records()), dict(idle.memory.records())
    assert dict(busy.decisions.records())[Kind.PADDING] == (3,), "a row of its own in a graph for four"
    assert len(decided[Kind.DUMMY]) == len(FIELDS[Kind.DUMMY])
    assert len(done[Kind.MEM_DUMMY]) >= len(FIELDS[Kind.MEM_DUMMY]) - 1
