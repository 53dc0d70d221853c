"""Chain drafters: their folders, what of other folders is refused, and what a pass over pages computes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import drafter_config_of, load_pair
from gpu_backend.modules.saver import save
from gpu_backend.modules.tier0 import TINY, chain_for, random_drafter, random_target
from gpu_backend.modules.weights import SINGLE
from scenarios.errors import InputError

TARGET = replace(TINY, layers=6)
KINDS = {
    "eagle3": chain_for(TARGET, "eagle3", drafts=5),
    "eagle3 in a window": chain_for(TARGET, "eagle3", drafts=3, window=24, taps=(0, 2)),
    "mtp-eagle": chain_for(TARGET, "mtp-eagle", drafts=3),
    "mtp": chain_for(TARGET, "mtp", drafts=2, depth=2),
    "mtp of a llama": replace(chain_for(TARGET, "mtp", drafts=3, depth=3), qk_norm=False),
}


def put(folder: Path, config: DrafterConfig) -> Path:
    save(folder / "target", random_target(TARGET, 3, config.taps), TARGET)
    save(folder / "drafter", random_drafter(config, 3), config)
    return folder / "drafter"


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_a_saved_chain_is_loaded_as_it_was(tmp_path: Path, config: DrafterConfig) -> None:
    target, drafter = load_pair(put(tmp_path, config).parent / "target", tmp_path / "drafter", "cpu")
    assert drafter.config == config and target.taps == config.taps
    wanted = random_drafter(config, 3).state_dict()
    assert drafter.state_dict().keys() == wanted.keys()
    assert all(torch.equal(found, wanted[name]) for name, found in drafter.state_dict().items())
    with pytest.raises(TypeError, match=f"expected a drafter that drafts in blocks, found {config.kind}"):
        in_blocks(drafter)


def test_tensors_have_the_names_of_eagle3_checkpoints(tmp_path: Path) -> None:
    found = load_file(put(tmp_path, replace(KINDS["eagle3"], qk_norm=False)) / SINGLE)
    layer = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
             "mlp.up_proj", "mlp.down_proj", "input_layernorm", "hidden_norm", "post_attention_layernorm"]  # fmt: skip
    assert set(found) == {"fc.weight", "norm.weight", *(f"midlayer.{name}.weight" for name in layer)}
    assert found["midlayer.self_attn.q_proj.weight"].shape == (64, 128) and found["fc.weight"].shape == (64, 192)


def test_taps_may_stand_at_the_top_and_without_any_are_those_that_engines_take(tmp_path: Path) -> None:
    deep = replace(TARGET, layers=12)
    folder = put(tmp_path, KINDS["eagle3"])
    change(folder, "num_target_layers", 12)
    change(folder, "eagle_config", ...)
    assert drafter_config_of(folder, deep).taps == (1, 5, 8)
    change(folder, "eagle_aux_hidden_state_layer_ids", [0, 3])
    assert drafter_config_of(folder, deep).taps == (0, 3)


def change(folder: Path, key: str, value: Any) -> None:
    """Set ``key``, dotted, of the configuration; ``...`` removes it."""
    values = json.loads((folder / "config.json").read_text())
    *above, last = key.split(".")
    inner = values
    for name in above:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    (folder / "config.json").write_text(json.dumps(values))


REFUSED = [
    ("eagle3", "draft_vocab_size", 32, "reduced draft vocabularies are not supported"),
    ("eagle3", "norm_before_residual", True, "a residual behind its norm: not supported, expected false, found True"),
    ("eagle3", "eagle_config.norm_before_residual", True, "a residual behind its norm: not supported"),
    ("eagle3", "norm_before_fc", True, "a norm ahead of fc: not supported"),
    ("eagle3", "fc_norm", True, "norms of the tapped states (EAGLE 3.1): not supported"),
    ("eagle3", "eagle_config.use_aux_hidden_state", False, "a drafter without tapped layers: not supported"),
    ("eagle3", "speculators_model_type", "eagle3", "the speculators packaging is not supported"),
    ("eagle3", "attention_bias", True, "biases are not supported"),
    ("eagle3", "target_hidden_size", 128, "expected the drafter's own 64, found 128"),
    ("eagle3", "num_hidden_layers", 2, "expected 1, found 2"),
    ("eagle3", "num_speculative_tokens", ..., "expected a value, found none"),
    ("eagle3", "hidden_size", 128, "expected the target's 64, found 128"),
    ("eagle3", "num_target_layers", 36, "expected the target's 6, found 36"),
    ("eagle3", "rope_scaling", {"rope_type": "yarn"}, "rope scaling 'yarn' is not supported"),
    ("eagle3", "eagle_config.parallel_draft_step", 4, "parallel drafting: not supported, expected 1, found 4"),
    (
        "eagle3",
        "speculative_tokens",
        4,
        "unknown to EAGLE3's packaging, expected no such key (num_speculative_tokens is",
    ),
    ("eagle3", "eagle_config.taps", [1], "unknown to EAGLE3's packaging, expected no such key"),
    ("mtp", "eagle_config", {}, "unknown to the packaging of MTP, expected no such key"),
    ("mtp", "num_nextn_predict_layers", 3, ""),
    ("mtp", "num_speculative_tokens", 5, "expected 2, a draft of each module, found 5"),
    ("mtp", "num_nextn_predict_layers", ..., "expected a value, found none"),
]


@pytest.mark.parametrize(("kind", "key", "value", "line"), REFUSED, ids=[f"{row[0]} {row[1]}" for row in REFUSED])
def test_a_chain_is_refused_by_name(tmp_path: Path, kind: str, key: str, value: Any, line: str) -> None:
    folder = put(tmp_path, KINDS[kind])
    change(folder, key, value)
    with pytest.raises(InputError) as refused:
        drafter_config_of(folder, TARGET)
    field = "num_speculative_tokens" if not line else key
    assert str(refused.value).startswith(f"{folder / 'config.json'}: {field}: {line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("taps", "place"), [([1, 5], "[1]: expected a layer below the last (5), found 5"),
                                             ([2, 1], ": expected layers in their order, each once")])  # fmt: skip
def test_layers_that_cannot_be_tapped_are_refused(tmp_path: Path, taps: list[int], place: str) -> None:
    folder = put(tmp_path, KINDS["eagle3"])
    change(folder, "eagle_config.eagle_aux_hidden_state_layer_ids", taps)
    with pytest.raises(InputError) as refused:
        drafter_config_of(folder, TARGET)
    assert f"eagle_config.eagle_aux_hidden_state_layer_ids{place}" in str(refused.value)


def test_a_head_of_its_own_has_no_place(tmp_path: Path) -> None:
    folder = put(tmp_path, KINDS["eagle3"])
    save_file(load_file(folder / SINGLE) | {"lm_head.weight": torch.zeros(512, 64)}, folder / SINGLE)
    with pytest.raises(InputError, match=r"lm_head\.weight: the configuration has no place for this tensor"):
        load_pair(tmp_path / "target", folder, "cpu")


def test_a_chain_of_several_modules_has_a_draft_each() -> None:
    with pytest.raises(ValueError, match="expected a layer a module and, of several modules, a draft each"):
        random_drafter(chain_for(TARGET, "mtp", drafts=5, depth=2), 3)
    assert isinstance(random_drafter(KINDS["mtp"], 3), Chain)
