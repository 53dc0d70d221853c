"""Whoever packed a drafter: the same weights draft the same logits, and what cannot be run is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.loader import drafter_config_of, load_pair
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.packagings.zlab import default_taps
from gpu_backend.modules.saver import save
from gpu_backend.modules.tier0 import drafter_for, random_drafter, random_target
from property_tests.gpu_room import packed
from property_tests.gpu_room.packed import (
    ANCHORED,
    DFLASH,
    DSPARK,
    FEWER,
    TARGET,
    Pack,
    copies,
    deepspec,
    specforge,
    speculators,
    zlab,
)
from property_tests.gpu_room.pairs import prompt
from property_tests.gpu_room.test_modules_loader import edit, setting
from scenarios.errors import InputError

PACKED: dict[str, tuple[Pack, DrafterConfig]] = {
    "z-lab": (zlab, DFLASH),
    "z-lab, slot 0": (zlab, ANCHORED),
    "SpecForge dflash": (specforge, DFLASH),
    "SpecForge dflash, slot 0": (specforge, ANCHORED),
    "SpecForge dspark": (specforge, DSPARK),
    "DeepSpec dflash": (deepspec, ANCHORED),
    "DeepSpec dspark": (deepspec, DSPARK),
    "speculators dflash": (speculators, DFLASH),
    "speculators dflash, slot 0": (speculators, ANCHORED),
    "speculators dspark": (speculators, DSPARK),
}
FIT = "transformer_layer_config."


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair") / "target"
    save(folder, random_target(TARGET, 3), TARGET)
    return folder


def drafts_of(target: Path, drafter: Path) -> torch.Tensor:
    """Logits of one block behind a prompt."""
    pages = OwnPages(*load_pair(target, drafter, "cpu"), 1, 32, 16)  # pyright: ignore[reportArgumentType]
    pages.prefill(0, prompt(21))
    return pages.draft([0], [7])


@pytest.mark.parametrize(("pack", "config"), PACKED.values(), ids=PACKED)
def test_every_packaging_of_the_same_weights_drafts_the_same_logits(
    tmp_path: Path, target: Path, pack: Pack, config: DrafterConfig
) -> None:
    folder = pack(tmp_path / "theirs", config)
    assert drafter_config_of(folder, TARGET) == config
    save(tmp_path / "ours", random_drafter(config, 3), config)
    assert torch.equal(drafts_of(target, folder), drafts_of(target, tmp_path / "ours"))


@pytest.mark.parametrize(("form", "confidence"), [("vanilla", ""), ("gated", "hidden"), ("rnn", "markov")])
def test_a_saved_head_drafts_what_it_drafted(tmp_path: Path, target: Path, form: str, confidence: str) -> None:
    config = replace(DSPARK, markov=form, confidence=confidence)
    save(tmp_path / "drafter", random_drafter(config, 3), config)
    assert drafter_config_of(tmp_path / "drafter", TARGET) == config
    made = random_target(TARGET, 3, config.taps).ready("cpu"), random_drafter(config, 3).ready("cpu")
    pages = OwnPages(*made, 1, 32, 16)  # pyright: ignore[reportArgumentType]
    pages.prefill(0, prompt(21))
    assert torch.equal(pages.draft([0], [7]), drafts_of(target, tmp_path / "drafter"))


def test_a_reduced_vocabulary_is_mapped_and_its_map_is_checked(tmp_path: Path, target: Path) -> None:
    folder = speculators(tmp_path / "drafter", FEWER)
    assert drafter_config_of(folder, TARGET) == FEWER
    made = random_target(TARGET, 3, FEWER.taps).ready("cpu"), random_drafter(FEWER, 3).ready("cpu")
    pages = OwnPages(*made, 1, 32, 16)  # pyright: ignore[reportArgumentType]
    pages.prefill(0, prompt(21))
    found = drafts_of(target, folder)
    assert torch.equal(pages.draft([0], [7]), found) and int(found.isfinite().sum()) == 3 * 100
    tensors = load_file(folder / "model.safetensors")
    for changed, line in (
        (tensors["d2t"] * 2, "d2t: expected distances to 100 different tokens below 512, found others"),
        (tensors["d2t"] * 0 - torch.arange(100), "d2t: expected distances to 100 different tokens"),
        (tensors["d2t"].float(), "d2t: expected integers, found torch.float32"),
    ):
        save_file(tensors | {"d2t": changed}, folder / "model.safetensors")
        with pytest.raises(InputError, match=line):
            load_pair(target, folder, "cpu")
    with pytest.raises(ValueError, match="no place for a reduced draft vocabulary"):
        save(tmp_path / "ours", made[1], FEWER)


def test_a_slot_too_far_would_draft_other_logits(tmp_path: Path, target: Path) -> None:
    """What reading ``sample_from_anchor`` and the ids of taps is worth."""
    right = drafts_of(target, speculators(tmp_path / "right", DFLASH))
    slots = edit(speculators(tmp_path / "slot", DFLASH), setting("sample_from_anchor", True))
    edit(slots, setting("block_size", 3))
    edit(slots, setting("speculators_config", None))
    taps = edit(speculators(tmp_path / "taps", DFLASH), setting("aux_hidden_state_layer_ids", list(DFLASH.taps)))
    for folder in (slots, taps):
        assert not torch.allclose(drafts_of(target, folder), right, atol=0.01)


def test_the_drafters_own_copies_are_compared_in_their_own_dtype(tmp_path: Path, target: Path) -> None:
    folder = deepspec(tmp_path / "drafter", ANCHORED)
    file = folder / "model.safetensors"
    halves = {name: tensor.bfloat16() for name, tensor in copies().items()}
    save_file(load_file(file) | halves, file)
    assert drafts_of(target, folder).isfinite().all()
    halves["lm_head.weight"][3, 3] += 1
    save_file(load_file(file) | halves, file)
    with pytest.raises(InputError, match=r"lm_head\.weight: expected the target's own values, found others"):
        load_pair(target, folder, "cpu")
    save_file(load_file(file) | {"lm_head.weight": halves["lm_head.weight"][:5]}, file)
    with pytest.raises(InputError, match=r"lm_head.weight: shape: expected the target's \[512, 64\], found \[5, 64\]"):
        load_pair(target, folder, "cpu")


def test_speculators_may_tell_the_anchors_slot_by_the_number_of_drafts(tmp_path: Path) -> None:
    for config in (DFLASH, ANCHORED):
        folder = speculators(tmp_path / str(config.block), config)
        assert drafter_config_of(edit(folder, setting("sample_from_anchor", ...)), TARGET) == config


def test_dspark_of_specforge_drafts_from_its_anchor_unless_it_says_otherwise(tmp_path: Path) -> None:
    folder = edit(specforge(tmp_path / "drafter", DSPARK), setting("dflash_config.shift_label", ...))
    assert drafter_config_of(folder, TARGET) == DSPARK
    assert drafter_config_of(edit(folder, setting("dflash_config.shift_label", False)), TARGET).drafts == 2


def test_heads_may_stand_at_the_top_and_a_loss_of_their_own_means_a_confidence_head(tmp_path: Path) -> None:
    folder = specforge(tmp_path / "drafter", DSPARK)
    for key in ("markov_rank", "markov_head_type", "confidence_head_with_markov"):
        values = json.loads((folder / "config.json").read_text())
        edit(folder, setting(key, values["dflash_config"][key]))
        edit(folder, setting(f"dflash_config.{key}", ...))
    edit(folder, setting("dflash_config.enable_confidence_head", ...))
    edit(folder, setting("dflash_config.confidence_head_alpha", 1.0))
    assert drafter_config_of(folder, TARGET) == DSPARK


@pytest.mark.parametrize(
    ("layers", "taps", "wanted"), [(36, 5, [1, 9, 17, 25, 33]), (8, 1, [4]), (8, 3, [1, 3, 5]), (6, 2, [1, 3])]
)
def test_taps_that_no_file_names_are_those_of_the_reference(layers: int, taps: int, wanted: list[int]) -> None:
    assert default_taps(layers, taps) == wanted


def test_a_file_without_taps_has_the_default_ones(tmp_path: Path) -> None:
    folder = edit(zlab(tmp_path / "drafter", DFLASH), setting("dflash_config.target_layer_ids", ...))
    assert drafter_config_of(folder, TARGET).taps == (1, 3)


QWEN3_8B = replace(
    TARGET, vocabulary=151_936, hidden=4096, layers=36, heads=32, kv_heads=8, head_dim=128, intermediate=12_288,
    positions=40_960, theta=1e6,
)  # fmt: skip
FIVE = drafter_for(QWEN3_8B, layers=5, taps=5, block=16)
SHAPES = {
    "z-lab, 16 with the anchor": (zlab, replace(FIVE, mask_token=151_669), 15),
    "DeepSpec, 7 from the anchor": (deepspec, replace(FIVE, block=7, logits_start=0, mask_token=151_669), 7),
    "speculators, 8 with the anchor": (speculators, replace(FIVE, block=8, mask_token=151_669, drawn=32_000), 7),
}


@pytest.mark.parametrize(("pack", "config", "drafts"), SHAPES.values(), ids=SHAPES)
def test_drafters_of_an_8b_model_are_told_by_their_configuration_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Pack, config: DrafterConfig, drafts: int
) -> None:
    """Taps 1, 9, 17, 25, 33 of 36 layers; no weights are written."""
    monkeypatch.setattr(packed, "tensors_of", lambda config: {"d2t": torch.zeros(config.drawn, dtype=torch.int64)})
    found = drafter_config_of(pack(tmp_path / "drafter", config), QWEN3_8B)
    assert found == config and found.taps == (1, 9, 17, 25, 33) and found.drafts == drafts


REFUSED: dict[str, tuple[Pack, DrafterConfig, str, Any, str]] = {
    "an unknown key": (zlab, DFLASH, "residual_gate", True, "residual_gate: unknown to z-lab's packaging of DFlash"),
    "a misspelt key": (
        zlab, DFLASH, "dflash_config.blok_size", 4,
        "dflash_config.blok_size: unknown to z-lab's packaging of DFlash, expected no such key (dflash_config.block",
    ),
    "two sizes of a block": (zlab, DFLASH, "block_size", 8, "block_size: expected 4, as dflash_config.block_size says"),
    "two words on the anchor": (
        zlab, ANCHORED, "dflash_config.shift_label", False, "dflash_config.shift_label: expected True, as dflash_conf",
    ),
    "latent attention": (specforge, DFLASH, "dflash_config.attention_mode", "mla", "dflash_config.attention_mode: exp"),
    "two words on causality": (
        specforge, DFLASH, "dflash_config.causal", True, "dflash_config.causal: expected False, as is_causal says",
    ),
    "a block that drafts nothing": (zlab, DFLASH, "dflash_config.block_size", 1, "block_size: expected at least 2, so"),
    "biases": (specforge, DFLASH, "attention_bias", True, "attention_bias: biases are not supported"),
    "heads without their name": (
        zlab, DFLASH, "dflash_config.markov_rank", 8,
        "dflash_config.markov_rank: expected the architecture DSparkDraftModel or the projector_type 'dspark' beside",
    ),
    "a head of another form": (
        specforge, DSPARK, "dflash_config.markov_head_type", "lstm",
        "dflash_config.markov_head_type: expected 'vanilla', 'gated' or 'rnn', found 'lstm'",
    ),
    "confidence without a rank": (
        specforge, DSPARK, "dflash_config.markov_rank", 0,
        "dflash_config.markov_rank: expected a rank of at least 1, as the confidence head",
    ),
    "a flag that is none": (
        specforge, DSPARK, "dflash_config.enable_confidence_head", "yes",
        "dflash_config.enable_confidence_head: expected a boolean, found 'yes'",
    ),
    "DFlash2 of DeepSpec": (deepspec, ANCHORED, "selector_rank", 8, "selector_rank: DFlash2 checkpoints are not"),
    "no rank of DeepSpec": (deepspec, ANCHORED, "markov_rank", ..., "markov_rank: expected a value, found none"),
    "windows of DeepSpec": (
        deepspec, ANCHORED, "layer_types", ["sliding_attention"] * 2, "layer_types: expected full_attention throughout",
    ),
    "an unknown key of DeepSpec": (deepspec, DSPARK, "use_gate", 1, "use_gate: unknown to the packaging of DeepSpec"),
    "another drafter of speculators": (
        speculators, DFLASH, "speculators_model_type", "eagle3",
        "speculators_model_type: expected 'dflash' or 'dspark', found 'eagle3'",
    ),
    "domino": (speculators, DFLASH, "projector_type", "domino", "projector_type: expected 'dflash', found 'domino'"),
    "the embedding as a tap": (
        speculators, DFLASH, "aux_hidden_state_layer_ids", [0, 2],
        "aux_hidden_state_layer_ids[0]: expected at least 1, z-lab's layer 0, found 0, the embedding",
    ),
    "the last layer as a tap": (
        speculators, DFLASH, "aux_hidden_state_layer_ids", [2, 6],
        "aux_hidden_state_layer_ids[1]: the target's last layer (6) cannot be tapped",
    ),
    "a tap behind the last": (
        speculators, DFLASH, "aux_hidden_state_layer_ids", [9],
        "aux_hidden_state_layer_ids[0]: expected a layer below 6, found 9",
    ),
    "a mask out of range": (speculators, DFLASH, "mask_token_id", 512, "mask_token_id: expected a token below 512"),
    "more drafts than slots": (
        speculators, DFLASH, "speculators_config.proposal_methods", [{"speculative_tokens": 4}],
        "speculators_config.proposal_methods[0].speculative_tokens: expected at most 3 with sample_from_anchor false",
    ),
    "another word on the anchor": (speculators, DFLASH, "shift_label", True, "shift_label: expected sample_from"),
    "a larger vocabulary": (speculators, DFLASH, "draft_vocab_size", 513, "draft_vocab_size: expected at most transf"),
    "another width of the target": (
        speculators, DFLASH, "target_hidden_size", 128, "target_hidden_size: expected transformer_layer_config.hidden",
    ),
    "an unknown key in the body": (
        speculators, DFLASH, f"{FIT}hc_mult", 4, f"{FIT}hc_mult: unknown to the packaging of speculators",
    ),
    "scaled rotations in the body": (
        speculators, DFLASH, f"{FIT}rope_scaling", {"rope_type": "yarn"}, f"{FIT}rope_scaling: rope scaling 'yarn'",
    ),
    "heads that do not share": (
        speculators, DFLASH, f"{FIT}num_key_value_heads", 3, f"{FIT}num_attention_heads: expected a multiple of",
    ),
    "another width in the body": (speculators, DFLASH, f"{FIT}hidden_size", 128, f"{FIT}hidden_size: expected the"),
    "no body": (speculators, DFLASH, "transformer_layer_config", ..., "transformer_layer_config: expected a value,"),
}  # fmt: skip


@pytest.mark.parametrize(("pack", "config", "path", "value", "line"), REFUSED.values(), ids=REFUSED)
def test_a_drafter_is_refused_by_name(
    tmp_path: Path, pack: Pack, config: DrafterConfig, path: str, value: Any, line: str
) -> None:
    folder = edit(pack(tmp_path / "drafter", config), setting(path, value))
    with pytest.raises(InputError) as refused:
        drafter_config_of(folder, TARGET)
    assert str(refused.value).startswith(f"{folder / 'config.json'}: {line}")
    assert "\n" not in str(refused.value)


def test_a_speculators_file_that_says_nothing_of_the_anchors_slot_is_refused(tmp_path: Path) -> None:
    folder = edit(speculators(tmp_path / "drafter", DFLASH), setting("sample_from_anchor", ...))
    edit(folder, setting("speculators_config", None))
    with pytest.raises(
        InputError, match="sample_from_anchor: expected true or false, or a speculative_tokens of 4 or 3"
    ):
        drafter_config_of(folder, TARGET)


def test_sliding_layers_of_speculators_need_a_word_on_the_rule_of_the_windows_edge(tmp_path: Path) -> None:
    folder = speculators(tmp_path / "drafter", DFLASH)
    for path, value in (
        (f"{FIT}layer_types", ["sliding_attention", "full_attention"]), (f"{FIT}use_sliding_window", True),
        (f"{FIT}sliding_window", 20),
    ):  # fmt: skip
        edit(folder, setting(path, value))
    with pytest.raises(
        InputError, match="window_rule: expected 'query', found none: all slots of a block were trained"
    ):
        drafter_config_of(folder, TARGET)
    found = drafter_config_of(edit(folder, setting("window_rule", "query")), TARGET)
    assert found.windows == (20, None) and found.causal == (True, False)
    edit(folder, setting("sliding_window_non_causal", True))
    assert drafter_config_of(folder, TARGET) == replace(found, causal=())


ODD = (-1, "x", {"a": 1})


@pytest.mark.parametrize("name", ["z-lab", "SpecForge dspark", "DeepSpec dspark", "speculators dspark"])
def test_no_odd_value_of_any_key_is_more_than_a_line(tmp_path: Path, name: str) -> None:
    pack, config = PACKED[name]
    file = pack(tmp_path / "drafter", config) / "config.json"
    told, refused = json.loads(file.read_text()), 0
    for path in _paths(told):
        for odd in ODD:
            changed = json.loads(json.dumps(told))
            setting(path, odd)(changed)
            file.write_text(json.dumps(changed))
            try:
                drafter_config_of(file.parent, TARGET)
            except InputError as error:
                refused += 1
                assert str(error).startswith(f"{file}: ") and "\n" not in str(error)
    assert refused > 40


def _paths(values: dict[str, Any], above: str = "") -> list[str]:
    found = [above + key for key in values]
    for key, value in values.items():
        found += _paths(value, f"{above}{key}.") if isinstance(value, dict) else []
    return found
