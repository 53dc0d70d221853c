"""From the engine part of a scenario to an engine configuration: presets, gaps, bytes."""

from __future__ import annotations

import pytest

from model.builds import BUILDS
from model.config import Drafter, PoolSize, PublishPolicy
from property_tests.scenarios_room.helpers import ONE_REQUEST, parse
from scenarios.budget_build import layout_for
from scenarios.presets import GEOMETRIES

MINIMAX = "geometry: {preset: minimax-m3.1-flash-like, tensor_parallel: %d}\n"


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_preset_is_a_whole_engine(name: str) -> None:
    config = parse(ONE_REQUEST, f"geometry: {name}\n").engine_config()
    assert config.drafter == GEOMETRIES[name].drafter
    assert {lifecycle.pool for lifecycle in config.target + config.draft} == set(config.pools)
    assert all(lifecycle.bytes_per_token > 0 for lifecycle in config.target + config.draft)


@pytest.mark.parametrize(("ranks", "draft", "target"), [(2, 655_360, 3_189_548), (4, 327_680, 2_375_356)])
def test_page_bytes_of_the_seeds_x1_and_s6(ranks: int, draft: int, target: int) -> None:
    scenario = parse(ONE_REQUEST, MINIMAX % ranks)
    assert scenario.page_bytes() == (target, draft)
    (life,) = scenario.engine_config().draft
    assert life.bytes_per_token * 128 == draft
    assert (life.window, life.lookahead) == (4096, 0)


@pytest.mark.parametrize(
    ("preset", "lookahead"), [("tiny", 0), ("tiny-pard", 0), ("tiny-eagle3", 1), ("tiny-mtp-eagle", 1), ("tiny-mtp", 2)]
)
def test_the_lookahead_of_the_draft_layers_follows_the_drafter(preset: str, lookahead: int) -> None:
    (life,) = parse(ONE_REQUEST, f"geometry: {preset}\n").engine_config().draft
    assert life.lookahead == lookahead


def test_a_drafter_without_kv_has_no_pool() -> None:
    config = parse("drafter: {kind: ngram}\n" + ONE_REQUEST).engine_config()
    assert config.draft == ()
    assert set(config.pools) == {"target"}


def test_what_a_scenario_leaves_out_comes_from_the_preset() -> None:
    text = "drafter: {drafts: 5}\nlimits: {max_batch: 2, overlap: false}\npools: {draft: 17}\npolicy: per_request\n"
    config = parse(text + ONE_REQUEST).engine_config()
    assert config.drafter == Drafter("dflash", 5, 8)
    assert (config.limits.max_batch, config.limits.page_size, config.limits.chunk_unit) == (2, 4, 4)
    assert config.limits.run_ahead == 0
    assert config.pools == {"target": PoolSize(128), "draft": PoolSize(17)}
    assert config.policy is PublishPolicy.PER_REQUEST


def test_a_null_window_is_full_attention() -> None:
    config = parse("drafter: {window: null}\n" + ONE_REQUEST).engine_config()
    assert config.drafter.window is None
    assert config.draft[0].window is None


def test_layers_written_out_may_have_windows_and_pools_of_their_own() -> None:
    head = """\
geometry:
  vocabulary: 99
  target:
    - {name: full, layers: 2, kv_heads: 2, head_dim: 8}
    - {name: local, layers: 3, kv_heads: 2, head_dim: 8, dtype: fp8, window: 12, sinks: 4, pool: local}
  draft:
    - {name: near, layers: 1, kv_heads: 2, head_dim: 8}
    - {name: far, layers: 1, kv_heads: 2, head_dim: 8, window: null}
drafter: {kind: dspark, drafts: 3, window: 8}
limits: {page_size: 4}
pools: {target: 9000, local: {device_pages: 30, host_pages: 5}, draft: 9000}
"""
    config = parse(ONE_REQUEST, head).engine_config()
    full, local = config.target
    assert (full.bytes_per_token, local.bytes_per_token) == (2 * 2 * 2 * 8 * 2, 3 * 2 * 2 * 8)
    assert (local.window, local.sinks, local.pool) == (12, 4, "local")
    assert [life.window for life in config.draft] == [8, None]
    assert config.pools["local"] == PoolSize(30, 5)
    assert config.vocabulary == 99


def test_memory_in_bytes_is_split_by_the_layout() -> None:
    text = "memory: {device: 140 GiB, host: 82.89 GiB}\n" + ONE_REQUEST
    scenario = parse(text, MINIMAX % 2)
    unified, paired = (scenario.engine_config(BUILDS[name]) for name in ("unified", "paired-22"))
    assert unified.pools["draft"].device_pages == pytest.approx(6_092, rel=0.04)
    assert unified.pools["draft"].host_pages == 0
    assert paired.pools["draft"].host_pages == pytest.approx(paired.pools["draft"].device_pages, rel=0.01)
    for config in (unified, paired):
        spent = config.pools["target"].device_pages * 3_189_548 + config.pools["draft"].device_pages * 655_360
        assert 0 <= 140 * 2**30 - spent < 3_189_548 + 655_360


def test_the_trailing_page_is_charged_where_the_build_keeps_one() -> None:
    scenario = parse("memory: {device: 140 GiB}\n" + ONE_REQUEST, MINIMAX % 2)
    trailing, plain = (scenario.engine_config(BUILDS[name]).pools["draft"] for name in ("mirror-21281", "target-21"))
    assert (trailing.device_pages, plain.device_pages) == (6_453, 6_271)  # 35 and 34 pages a sequence


def test_a_drafter_that_cannot_pair_is_given_a_pool_of_its_own() -> None:
    rules = BUILDS["unified"].rules
    one_model, dflash = (
        parse(f"drafter: {{kind: {kind}}}\n" + ONE_REQUEST) for kind in ("draft-target-one-model", "dflash")
    )
    assert layout_for(one_model.engine_config(), rules) == "separate"
    assert layout_for(dflash.engine_config(), rules) == "unified"


def test_fused_and_shared_pages_are_counted_as_they_lie() -> None:
    scenario = parse("memory: {device: 64 KiB, host: 6 KiB}\n" + ONE_REQUEST)
    fused, shared = (scenario.engine_config(BUILDS[name]) for name in ("sglang-fused", "vllm-drop-last"))
    assert fused.pools["target"] == fused.pools["draft"] == PoolSize(64 * 1024 // (256 + 128), 16)
    assert shared.pools["target"] == PoolSize(64 * 1024 // 256, 24)
    assert shared.memory is not None
    assert shared.memory.page_bytes == (("target", 256),)


def test_bytes_may_be_numbers() -> None:
    one, other = (parse(f"memory: {{device: {size}}}\n" + ONE_REQUEST) for size in ("1048576", "1 MiB"))
    assert one.engine_config().pools == other.engine_config().pools
