"""A trace as a scenario file: it loads to the same engine and ops, and does the same, to the digest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.builds import BUILDS
from model.cluster import Cluster
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec, Scope
from model.faults import FAULTS
from model.fleet import Fleet
from model.geometry import Lifecycle, ReusePolicy
from model.ops import At, Cancel, Dispatch, Land, Lose, Settle, Shrink, Submit, Warmup, World
from model.ranks import RankGroup
from model.tokens import Segment
from model.topology import Topology
from property_tests.laws.clusters import random_cluster
from property_tests.laws.pairs import random_pair
from property_tests.laws.worlds import CORRECT, random_world
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from sim.optrace import Trace
from sim.regression import trace_yaml
from sim.rulespec import find
from sim.run import run_scenario

SEEDS = st.integers(0, 1 << 20)
CLUSTER_KINDS: dict[str, type[Cluster]] = {"attention_dp": Fleet, "tensor_parallel": RankGroup}


def plain(config: EngineConfig) -> EngineConfig:
    """``config`` without what no decision depends on."""
    sides = {}
    for side in ("target", "draft"):
        lives = getattr(config, side)
        sides[side] = tuple(replace(life, lookahead=0, bytes_per_token=max(1, life.bytes_per_token)) for life in lives)
    return replace(config, **sides)


def loaded(trace: Trace, **kept: Any) -> Scenario:
    """``trace`` written as a scenario file and read again, with the same engine, workers and ops."""
    scenario = parse_scenario(trace_yaml(trace, **kept), "kept.yaml", Path())
    assert scenario.ops() == list(trace.ops)
    assert plain(scenario.engine_config()) == plain(trace.config)
    topology = scenario.topology()
    if trace.workers is None:
        assert topology is None
    else:
        assert topology is not None
        assert [plain(config) for config in topology.configs] == [plain(config) for config in trace.workers.configs]
        assert (topology.kind, dict(topology.options)) == (trace.workers.kind, dict(trace.workers.options))
    return scenario


def check(world: World | Cluster, workers: Topology | None = None) -> None:
    """What ``world`` did, after its end, is what the file of its ops does."""
    trace = Trace("a failure", world.build.name, 7, world.check, world.config, tuple(world.ops or ()), workers=workers)
    again = run_scenario(loaded(trace), find(trace.build), check=world.check)
    assert again.seed == 7
    assert again.violations == world.violations
    assert (again.decision_digest, again.memory_digest) == (world.decision_digest(), world.memory_digest())


@given(seed=SEEDS, build=st.sampled_from(CORRECT), tight=st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_world_of_one_worker_is_its_file(seed: int, build: str, tight: bool) -> None:
    world, driver = random_world(seed, build, tight=tight, check="incremental")
    driver.run()
    check(world)


@given(seed=SEEDS, fault=st.sampled_from(sorted(FAULTS)))
@settings(max_examples=8, deadline=None)
def test_what_a_fault_breaks_its_file_breaks(seed: int, fault: str) -> None:
    drawn, driver = random_world(seed, FAULTS[fault].base, check="incremental")
    driver.run()
    world = World(drawn.config, FAULTS[fault].build, record_ops=True)
    for op in drawn.ops or ():
        world.apply(op)
    world.drain()
    check(world)


@given(seed=SEEDS, build=st.sampled_from(CORRECT), kind=st.sampled_from(sorted(CLUSTER_KINDS)))
@settings(max_examples=6, deadline=None)
def test_several_ranks_are_their_file(seed: int, build: str, kind: str) -> None:
    driver = random_cluster(seed, build, CLUSTER_KINDS[kind])
    driver.run()
    check(driver.cluster, Topology(kind, tuple(world.config for world in driver.cluster.workers)))


@given(seed=SEEDS, build=st.sampled_from(CORRECT))
@settings(max_examples=6, deadline=None)
def test_a_pair_is_its_file(seed: int, build: str) -> None:
    pair, driver = random_pair(seed, build, check="incremental")
    driver.run()
    options = () if pair.receiver.drafts else (("drafts", False),)
    check(pair, Topology("disaggregated", tuple(world.config for world in pair.workers), options))


# -- what random worlds do not have ------------------------------------------------------------------------------------

CONFIG = EngineConfig(
    target=(Lifecycle("full", "target", "target", bytes_per_token=16), Lifecycle("swa", "swa", "target", 6, 4, 2)),
    draft=(Lifecycle("draft", "draft", "draft", 8, bytes_per_token=4),),
    drafter=Drafter("mtp", 3, 8, 2),
    limits=Limits(4, 2, 6, 90, 8, False, 5, 0.5, 0, 9, 2, False, (1, 3, 8)),
    pools={"target": PoolSize(9, 3), "swa": PoolSize(1), "draft": PoolSize(2, 4)},
    policy=PublishPolicy.PER_CONVERSATION,
    max_num_turns=3,
    vocabulary=3,
    tensor_parallel=2,
    asynchronous_copies=True,
)
OPS = (
    Warmup(1, 5),
    Submit(RequestSpec(4, (Segment(7, 9), Segment(8, 2, 1), Segment.of((2, 0, 1))), 5, (1 << 64) - 1, 2)),
    Submit(RequestSpec(5, (Segment(7, 9),), 1, 0, scope=Scope("a", "b: {", 1, 2), priority=-3, drafts=False)),
    *(Dispatch(), Dispatch(skip=True), Settle(()), Settle((1, 4)), Land(0), Lose(3), Cancel(99), Shrink("swa", 0)),
)


def trace(config: EngineConfig = CONFIG, build: str = "unified", workers: Topology | None = None) -> Trace:
    ops = tuple(At(1, op) if workers else op for op in OPS)
    return Trace("everything at once", build, 0, "incremental", config, ops, workers=workers)


def test_every_field_of_an_engine_can_be_said() -> None:
    # Its limits and pools serve nobody: more drafts than the budget pays, a window that its pool cannot hold.
    loaded(trace())


def test_fields_that_only_several_workers_have_can_be_said() -> None:
    config = replace(CONFIG, asynchronous_copies=False)
    other = replace(config, pools={**config.pools, "swa": PoolSize(7, 1)})
    loaded(trace(config, workers=Topology("attention_dp", (config, other, config), (("gate", 3),))))
    loaded(trace(other, workers=Topology("disaggregated", (other, config), (("drafts", False),))))


def test_memory_is_split_again_where_the_build_splits_it_so_and_told_where_not() -> None:
    text = "geometry: tiny\nbuild: BUILD\nmemory: {device: 4 MiB, host: 1 MiB}\nops: [{op: dispatch}]\n"
    for build in ("unified", "paired-22", "sglang-fused", "vllm-lookahead", "fault:draft-charged-twice"):
        config = parse_scenario(text.replace("BUILD", build), "bytes.yaml", Path()).engine_config()
        assert config.memory is not None
        told = trace_yaml(Trace("bytes", build, 0, "incremental", config, (Dispatch(),)))
        assert "memory: {device: 4194304, host: 1048576}" in told
        assert "pools" not in told.split("memory")[0].split("limits")[1]
        assert parse_scenario(told, "again.yaml", Path()).engine_config() == config
        pools = {name: replace(size, device_pages=size.device_pages - 1) for name, size in config.pools.items()}
        other = replace(config, pools=pools, memory=replace(config.memory, given_share=True))
        again = trace_yaml(Trace("bytes", build, 0, "incremental", other, (Dispatch(),)))
        assert "page_bytes" in again.split("memory: ")[1]
        assert parse_scenario(again, "again.yaml", Path()).engine_config() == other


def test_comments_and_expectations_stand_in_the_file() -> None:
    text = trace_yaml(trace(), ("one\nline", "and another"), {"violations": ["KEY"]})
    assert text.startswith("# one line\n# and another\nsummary: everything at once\n")
    assert loaded(trace(), expect={"violations": ["KEY"]}).expect.violations == ["KEY"]
    assert text.rstrip().endswith("- {op: shrink, pool: swa, pages: 0}")


def test_what_cannot_be_said_is_a_sentence() -> None:
    optional = replace(CONFIG.target[0], policy=ReusePolicy.OPTIONAL)
    with pytest.raises(ValueError, match="no scenario file says that the layers full are optional"):
        trace_yaml(trace(replace(CONFIG, target=(optional,))))
    config = replace(CONFIG, asynchronous_copies=False)
    odd = Topology("attention_dp", (config, replace(config, max_num_turns=1)))
    with pytest.raises(ValueError, match="workers differ in more than their pools"):
        trace_yaml(trace(config, workers=odd))


def test_the_seed_of_a_trace_is_the_seed_of_its_file() -> None:
    seed = Random(1).getrandbits(62)
    assert f"\nseed: {seed}\n" in trace_yaml(replace(trace(), seed=seed))
    assert "\nseed:" not in trace_yaml(trace())
    assert BUILDS[loaded(trace(build="paired-22")).build] is BUILDS["paired-22"]
