"""Replays with the weights of a folder: what the scenario takes over from them, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_backend.acceptance.recorded import measured
from gpu_backend.acceptance.weights import fitted, kind_in, models_of, open_pair
from gpu_backend.al.pair import load
from gpu_backend.modules.saver import save
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from gpu_backend.replay.result import NATURAL, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from property_tests.gpu_room.test_replay_natural import PAIR, scenario_of
from scenarios import catalog
from scenarios.errors import InputError
from sim.rulespec import find

FEW = replace(TINY, vocabulary=5, positions=96)  # words, so that random drafts are right now and then
REFUSED = {
    "no-drafter": (
        "drafter",
        None,
        "target and drafter in it, found no drafter, nor drafter-dspark, drafter-eagle3 or drafter-mtp",
    ),
    "kind": ("drafter", {"speculators_model_type": "eagle3"}, "speculators_model_type: expected 'dflash' or"),
    "another-target": ("drafter", {"hidden_size": 32}, "hidden_size: expected the target's 64, found 32"),
    "heads": ("drafter", {"num_key_value_heads": 4}, "num_key_value_heads: expected the target's 2, since"),
}


@pytest.fixture(scope="session")
def pair_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of seeded random weights in the layout that training leaves: K = 2, a window of 12."""
    folder = tmp_path_factory.mktemp("pair")
    drafter = drafter_for(FEW, block=3, window=12)
    save(folder / "target", random_target(FEW, 3, drafter.taps), FEW)
    save(folder / "drafter", random_drafter(drafter, 3), drafter)
    return folder


def with_weights(name: str, folder: Path, device: torch.device, **order: Any) -> Replayed:
    """Replay a scenario of the catalog with the weights of a folder."""
    scenario = catalog.load(name)
    wanted = ReplayOrder(device.type, acceptance=NATURAL, weights=str(folder), **order)
    return replay(scenario, find(scenario.build), wanted)


def test_the_weights_bring_vocabulary_drafts_window_and_range(device: torch.device, pair_folder: Path) -> None:
    replayed = with_weights("smoke/hello", pair_folder, device, exact=True)
    assert replayed.findings == () and replayed.exit_code == 0
    config = replayed.result.config
    assert (config.vocabulary, config.drafter.drafts, config.drafter.window) == (5, 2, 12)
    assert config.draft[0].window == 12 and config.limits.max_seq_len == 96
    assert config.limits.extra_tokens == 1, "a block has its anchor beside its drafts"
    assert replayed.result.notes[:2] == [
        "vocabulary 5 of the weights, not the scenario's 4096",
        "drafts 2 of the weights, not the scenario's 3",
    ]
    assert replayed.workers[0].context_rows > 0 and replayed.workers[0].ties == 0


def test_a_dspark_drafter_runs_in_a_scenario_of_dflash_and_the_notes_tell(device: torch.device, tmp_path: Path) -> None:
    drafter = drafter_for(FEW, block=2, window=12, logits_start=0, markov_rank=4)
    save(tmp_path / "target", random_target(FEW, 3, drafter.taps), FEW)
    save(tmp_path / "drafter", random_drafter(drafter, 3), drafter)
    replayed = with_weights("smoke/hello", tmp_path, device, exact=True)
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.result.config.drafter.kind == "dspark" and replayed.result.config.drafter.drafts == 2
    assert replayed.result.notes[0] == "the drafter's kind dspark of the weights, not the scenario's dflash"


def test_a_scenario_takes_the_drafter_of_its_kind_where_the_folder_has_one(tmp_path: Path, pair_folder: Path) -> None:
    for name in ("target", "drafter"):
        (tmp_path / name).symlink_to(pair_folder / name)
    assert open_pair(tmp_path, kind_in(tmp_path, "dspark")).drafter.kind == "dflash"
    own = drafter_for(FEW, block=2, window=12, logits_start=0, markov_rank=4)
    save(tmp_path / "drafter-dspark", random_drafter(own, 3), own)
    assert open_pair(tmp_path, kind_in(tmp_path, "dspark")).drafter == own
    assert open_pair(tmp_path, kind_in(tmp_path, "dflash")).drafter.kind == "dflash"
    for kind, part in (("dspark", "drafter-dspark"), ("dflash", "drafter")):
        pair = load(tmp_path, torch.device("cpu"), exact=True, kind=kind)
        assert pair.drafter.config.kind == kind and pair.drafts == 2
        assert pair.sha256.keys() == {"target/model.safetensors", f"{part}/model.safetensors"}, "and no other kind's"
    with pytest.raises(InputError, match=r"drafter-mtp in it, found no drafter-mtp beside drafter and drafter-dspark$"):
        open_pair(tmp_path, "mtp")
    with pytest.raises(InputError, match=r"weights: expected a drafter of kind mtp in drafter-mtp, found dflash"):
        fitted(catalog.load("smoke/mtp_chain"), open_pair(tmp_path, kind_in(tmp_path, "mtp")))


def test_a_replay_and_its_trace_say_the_same_of_acceptance(device: torch.device, pair_folder: Path) -> None:
    replayed = with_weights("smoke/conversation", pair_folder, device)
    assert replayed.measured is not None and replayed.trace is not None
    table, totals = replayed.measured.table(), replayed.result.totals
    assert table["verify_steps"] == totals.spec_steps
    assert table["AL"] == round(replayed.acceptance_length or 0, 4) > 1
    assert table["prefilled_tokens"]["target"] == totals.prefilled_tokens
    assert table["placeholder_steps"] == table["requests"] == len(replayed.result.records)
    for record, engine in zip(replayed.measured.records(), replayed.result.records, strict=True):
        assert record["num_accepted_draft_tokens"] == engine.accepted_drafts
        assert record["completion_tokens"] == engine.output_tokens
    again = measured(replayed.trace, find(replayed.trace.build))
    assert again.table() == table


def test_a_request_that_moves_to_another_worker_is_measured_once(device: torch.device) -> None:
    scenario = scenario_of(PAIR)
    replayed = replay(scenario, find(scenario.build), ReplayOrder(device.type, acceptance=NATURAL))
    assert replayed.measured is not None
    table = replayed.measured.table()
    assert table["requests"] == 3 and table["verify_steps"] == replayed.result.totals.spec_steps
    assert [record["completion_tokens"] for record in replayed.measured.records()] == [10, 10, 10]


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be_run_is_refused_by_name(tmp_path: Path, pair_folder: Path, name: str) -> None:
    part, change, said = REFUSED[name]
    for one in ("target", "drafter"):
        if change is None and one == part:
            continue
        (tmp_path / one).mkdir()
        values = json.loads((pair_folder / one / "config.json").read_text())
        if one == part and change is not None:
            values |= change
        (tmp_path / one / "config.json").write_text(json.dumps(values))
    scenario = catalog.load("smoke/hello")
    with pytest.raises(InputError, match=said):
        pair = open_pair(tmp_path)
        models_of(fitted(scenario, pair).engine_config(), pair, torch.device("cpu"), exact=False)


def test_what_does_not_fit_the_weights_is_refused_by_name(pair_folder: Path) -> None:
    pair, cpu = open_pair(pair_folder), torch.device("cpu")
    with pytest.raises(InputError, match="expected the target's windows 8, as the scenario has them, found full att"):
        text = """
geometry:
  target: [{name: target, layers: 2, kv_heads: 1, head_dim: 8, window: 8}]
  draft: [{name: draft, layers: 1, kv_heads: 1, head_dim: 8}]
drafter: {kind: dflash, drafts: 3, window: 8}
limits: {page_size: 4, max_seq_len: 96}
pools: {target: 30, draft: 30}
workload: {sessions: [{prompt: 9, output: 4}]}
"""
        models_of(fitted(scenario_of(text), pair).engine_config(), pair, cpu, exact=False)
    with pytest.raises(InputError, match="needs 109 tokens, max_seq_len is 96"):
        fitted(scenario_of("geometry: tiny\nworkload: {sessions: [{prompt: 100, output: 9}]}\n"), pair).workload()


def test_weights_want_natural_acceptance(device: torch.device, pair_folder: Path) -> None:
    scenario = catalog.load("smoke/hello")
    with pytest.raises(InputError, match="weights: expected natural acceptance beside weights, found forced"):
        replay(scenario, find(scenario.build), ReplayOrder(device.type, weights=str(pair_folder)))
