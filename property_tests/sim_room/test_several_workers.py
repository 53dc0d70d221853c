"""Scenarios of several workers: who runs what, what the result gathers, traces of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.builds import BUILDS
from model.ops import At, Submit, Warmup
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.optrace import Trace, load_trace, save_trace
from sim.replay import replay_trace
from sim.run import run_scenario

RANKS = """
geometry: tiny
workers: {kind: tensor_parallel, count: 3, pools: [{target: 40}, {target: 36}]}
pools: {target: 60, draft: 24}
workload:
  concurrency: 2
  prefixes: {shared: 10}
  sessions: [{name: work, copies: 4, prompt: [shared, 9], output: 6}]
acceptance: {forced: [2, 1, 3]}
"""


def ranks(text: str = RANKS):
    return parse_scenario(text, "ranks.yaml", Path())


def test_tensor_parallel_ranks_run_every_request_with_the_pools_of_the_smallest() -> None:
    result = run_scenario(ranks(), BUILDS["unified"], check="exhaustive")
    assert result.violations == []
    assert result.exit_code == 0
    assert [record.state for record in result.records] == ["finished"] * 4
    targets = [use for use in result.occupancy if use.name.startswith("target@")]
    assert [use.name for use in targets] == ["target@0", "target@1", "target@2"]
    assert {use.device_pages for use in targets} == {36}
    assert len({use.peak for use in targets}) == 1
    assert result.checked["RANK"] > 0


def test_ranks_serve_like_a_single_worker_of_their_size() -> None:
    alone = RANKS.replace("workers: {kind: tensor_parallel, count: 3, pools: [{target: 40}, {target: 36}]}\n", "")
    one = run_scenario(ranks(alone.replace("target: 60", "target: 36")), BUILDS["paired-22"])
    many = run_scenario(ranks(), BUILDS["paired-22"])
    assert many.totals == one.totals
    assert many.records == one.records
    assert many.duration_ns == one.duration_ns


def test_a_trace_of_ranks_repeats_their_run(tmp_path: Path) -> None:
    scenario, build = catalog.load("reports/o75"), BUILDS["unified"]
    first = run_scenario(scenario, build, record_ops=True)
    digests = {"decision_digest": first.decision_digest, "memory_digest": first.memory_digest}
    workers = scenario.topology()
    ops = tuple(first.ops)
    trace = Trace("o75", "unified", 0, "incremental", scenario.engine_config(), ops, **digests, workers=workers)
    save_trace(tmp_path / "ops.jsonl", trace)
    again = replay_trace(load_trace(tmp_path / "ops.jsonl"), build)
    assert again.missed == []
    assert again.records == first.records
    assert again.decision_digest == first.decision_digest


@pytest.mark.parametrize(
    ("change", "to", "says"),
    [
        ("count: 3", "count: 1", "workers"),
        ("{target: 36}", "{swa: 36}", "expected a pool of draft, target, found 'swa'"),
        ("count: 3", "count: 2, gate: 1", "gate"),
        ("[{target: 40}, {target: 36}]", "[{}, {}, {}, {}]", "expected pools of at most 3 workers, found 4"),
        ("tensor_parallel", "pipeline_parallel", "workers"),
    ],
)
def test_workers_that_no_run_can_have_are_refused_in_one_line(change: str, to: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        ranks(RANKS.replace(change, to))
    assert says in str(refused.value)
    assert str(refused.value).startswith("ranks.yaml:3: ")


def test_an_op_names_only_workers_that_exist() -> None:
    ops = "geometry: tiny\nops:\n  - {op: submit, request: 0, prompt: 8, output: 2, worker: 1}\n"
    with pytest.raises(InputError, match=r"ops.yaml:3: ops\[0\].worker: expected worker only where"):
        parse_scenario(ops, "ops.yaml", Path())


FLEET = """
geometry: tiny
workers: {kind: attention_dp, count: 2, gate: 2}
pools: {target: 40, draft: 24}
limits: {graph_batches: [1, 2, 4]}
workload:
  sessions:
    - {name: first, prompt: 9, output: 6}
    - {name: second, prompt: 12, output: 6}
    - {name: third, prompt: 15, output: 6, arrival_s: 0.01, worker: 1}
acceptance: {forced: [2, 1, 3]}
"""


def test_sessions_go_to_the_ranks_of_a_fleet_in_turn_or_to_the_one_they_name() -> None:
    scenario = ranks(FLEET)
    topology = scenario.topology()
    assert topology is not None
    result = run_scenario(scenario, BUILDS["paired-22"], check="exhaustive", keep_events=True, record_ops=True)
    assert result.exit_code == 0
    submitted = [op.worker for op in result.ops if isinstance(op, At) and isinstance(op.op, Submit)]
    assert submitted == [0, 1, 1]
    assert [record.state for record in result.records] == ["finished"] * 3
    assert result.totals.finished == 3
    assert len(result.logs) == 2
    assert result.checked["RANK"] > 0


def test_a_trace_of_a_fleet_repeats_its_run(tmp_path: Path) -> None:
    scenario, build = ranks(FLEET), BUILDS["unified"]
    first = run_scenario(scenario, build, record_ops=True)
    digests = {"decision_digest": first.decision_digest, "memory_digest": first.memory_digest}
    config, workers = scenario.engine_config(), scenario.topology()
    ops = (Warmup(2, 20), *first.ops)
    trace = Trace("fleet", "unified", 0, "incremental", config, tuple(first.ops), **digests, workers=workers)
    save_trace(tmp_path / "ops.jsonl", trace)
    again = replay_trace(load_trace(tmp_path / "ops.jsonl"), build)
    assert again.missed == []
    assert again.records == first.records
    save_trace(tmp_path / "warm.jsonl", Trace("fleet", "unified", 0, "incremental", config, ops, workers=workers))
    warm = replay_trace(load_trace(tmp_path / "warm.jsonl"), build)
    assert warm.violations == []
    assert warm.decision_digest != first.decision_digest
    assert warm.totals == first.totals, "dummies are in no statistics"


@pytest.mark.parametrize(
    ("change", "to", "says"),
    [
        ("worker: 1}", "worker: 2}", "expected a rank below 2, found 2"),
        ("kind: attention_dp, count: 2, gate: 2", "kind: tensor_parallel", "expected worker only where a fleet serves"),
    ],
)
def test_a_session_names_only_ranks_that_exist(change: str, to: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        ranks(FLEET.replace(change, to))
    assert str(refused.value).startswith("ranks.yaml:10: workload.sessions[2].worker: ")
    assert says in str(refused.value)
