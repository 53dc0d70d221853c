"""Folders in the layout of HF: what is written is read back, and what cannot be run is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import drafter_config_of, load_pair, load_target, target_config_of
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.modules.saver import save
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from gpu_backend.modules.weights import INDEX, SINGLE
from property_tests.gpu_room.pairs import prompt
from scenarios.errors import InputError

SLIDING = replace(TINY, layers=5, windows=(None, 24, None, 24, None))
TARGET = replace(TINY, layers=6)
DRAFTER = drafter_for(TARGET, window=20)
Edit = Callable[[dict[str, Any]], None]


def put(folder: Path, config: TargetConfig | DrafterConfig, **options: Any) -> Path:
    """Random weights of ``config`` in ``folder``."""
    taps = DRAFTER.taps
    made = random_target(config, 3, taps) if isinstance(config, TargetConfig) else random_drafter(config, 3)
    save(folder, made, config, **options)
    return folder


def edit(folder: Path, change: Edit, name: str = "config.json") -> Path:
    """Change a JSON file of ``folder``."""
    values = json.loads((folder / name).read_text())
    change(values)
    (folder / name).write_text(json.dumps(values))
    return folder


def setting(path: str, value: Any) -> Edit:
    """Set the dotted ``path``; ``...`` removes it."""

    def change(values: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for key in above:
            values = values[key]
        if value is ...:
            del values[last]
        else:
            values[last] = value

    return change


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return put(tmp_path / "target", TARGET)


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    return put(tmp_path / "drafter", DRAFTER)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "config",
    [TINY, SLIDING, replace(TINY, tied=True), replace(TINY, qk_norm=False, theta=1e5, eps=1e-5)],
    ids=["qwen", "sliding layers", "tied", "llama"],
)
def test_a_saved_target_is_loaded_as_it_was(tmp_path: Path, config: TargetConfig, dtype: torch.dtype) -> None:
    config = replace(config, dtype=dtype)
    folder = put(tmp_path, config)
    loaded = load_target(folder)
    assert loaded.config == replace(config, windows=config.windows or (None,) * config.layers)
    wanted = random_target(config, 3).state_dict()
    found = loaded.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name].to(dtype), wanted[name].to(dtype)) for name in wanted)


@pytest.mark.parametrize("exact", [False, True])
def test_a_loaded_pair_drafts_what_the_saved_one_drafts(
    device: torch.device, target: Path, drafter: Path, exact: bool
) -> None:
    loaded = load_pair(target, drafter, device, exact=exact)
    assert loaded[0].taps == loaded[1].config.taps == DRAFTER.taps
    assert loaded[1].config == DRAFTER
    made = (
        random_target(TARGET, 3, DRAFTER.taps).ready(device, exact=exact),
        random_drafter(DRAFTER, 3).ready(device, exact=exact),
    )
    tokens = prompt(20)
    drafts = []
    for pair in (loaded, made):
        pages = OwnPages(pair[0], in_blocks(pair[1]), 1, 32, 16)
        logits = pages.prefill(0, tokens)
        drafts.append((logits, pages.draft([0], [int(logits.argmax())])))
    assert torch.equal(drafts[0][0], drafts[1][0])
    assert torch.equal(drafts[0][1], drafts[1][1])


def test_weights_in_several_files_are_found_by_the_index(tmp_path: Path) -> None:
    folder = put(tmp_path, TINY, most_bytes=40_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    assert not (folder / SINGLE).exists()
    wanted = random_target(TINY, 3).state_dict()
    found = load_target(folder).state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_two_windows_do_not_fit_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one window for all sliding layers, found 8 and 24"):
        put(tmp_path / "two", replace(TINY, windows=(24, 8, None)))
    assert not (tmp_path / "two").exists()


def test_a_head_beside_a_tied_one_and_tables_of_old_files_are_ignored(tmp_path: Path) -> None:
    config = replace(TINY, tied=True)
    folder = put(tmp_path, config)
    tensors = load_file(folder / SINGLE)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, folder / SINGLE)
    assert load_target(folder).config.tied


def test_layers_slide_from_max_window_layers_on_where_no_layer_types_say_it(target: Path) -> None:
    edit(target, setting("layer_types", ...))
    edit(target, setting("sliding_window", 40))
    edit(target, setting("max_window_layers", 4))
    assert target_config_of(target).windows == (None,) * 6
    edit(target, setting("use_sliding_window", True))
    assert target_config_of(target).windows == (None,) * 4 + (40,) * 2


def test_keys_of_newer_files(target: Path) -> None:
    edit(target, setting("rope_theta", ...))
    edit(target, setting("rope_parameters", {"rope_type": "default", "rope_theta": 5e5}))
    edit(target, setting("torch_dtype", ...))
    edit(target, setting("dtype", "float16"))
    edit(target, setting("head_dim", ...))
    config = target_config_of(target)
    assert (config.theta, config.dtype, config.head_dim) == (5e5, torch.float16, TARGET.hidden // TARGET.heads)


REFUSED_TARGETS = {
    "another architecture": (
        setting("architectures", ["MambaForCausalLM"]),
        "architectures: expected Qwen3ForCausalLM",
    ),
    "experts": (setting("architectures", ["Qwen3MoeForCausalLM"]), "architectures: expected Qwen3ForCausalLM"),
    "no architecture": (setting("architectures", ...), "architectures: expected a value, found none"),
    "yarn": (setting("rope_scaling", {"rope_type": "yarn", "factor": 4.0}), "rope_scaling: rope scaling 'yarn' is not"),
    "old scaling": (
        setting("rope_scaling", {"type": "linear"}),
        "rope_scaling: rope scaling 'linear' is not supported",
    ),
    "new scaling": (
        setting("rope_parameters", {"rope_type": "llama3", "rope_theta": 5e5}),
        "rope_parameters: rope scaling 'llama3' is not supported",
    ),
    "part of a head": (setting("partial_rotary_factor", 0.5), "partial_rotary_factor: expected 1.0, found 0.5"),
    "quantised": (
        setting("quantization_config", {"quant_method": "awq"}),
        "quantization_config: quantised weights (awq) are not supported",
    ),
    "bias": (setting("attention_bias", True), "attention_bias: biases are not supported"),
    "activation": (setting("hidden_act", "gelu"), "hidden_act: expected 'silu', found 'gelu'"),
    "missing": (setting("hidden_size", ...), "hidden_size: expected a value, found none"),
    "not a number": (setting("vocab_size", "many"), "vocab_size: expected an integer, found 'many'"),
    "a word for a number": (setting("rms_norm_eps", "few"), "rms_norm_eps: expected a number, found 'few'"),
    "no layers": (setting("num_hidden_layers", 0), "num_hidden_layers: expected at least 1, found 0"),
    "uneven heads": (setting("num_key_value_heads", 3), "num_attention_heads: expected a multiple of"),
    "odd head": (setting("head_dim", 24), "head_dim: expected a power of two of at least 16, found 24"),
    "small head": (setting("head_dim", 8), "head_dim: expected a power of two of at least 16, found 8"),
    "float8": (setting("torch_dtype", "float8_e4m3fn"), "torch_dtype: expected 'float32', 'bfloat16' or 'float16'"),
    "another layer": (
        setting("layer_types", ["linear_attention"] * 6),
        "layer_types[0]: expected 'full_attention' or 'sliding_attention', found 'linear_attention'",
    ),
    "no mapping": (setting("rope_parameters", 3), "rope_parameters: expected a mapping, found 3"),
    "a base too small": (setting("rope_theta", 1), "rope_theta: expected more than 1, found 1"),
    "too few layer types": (setting("layer_types", ["full_attention"]), "layer_types: expected 6 entries, one a layer"),
    "sliding without a window": (
        setting("layer_types", ["sliding_attention"] * 6),
        "use_sliding_window: expected the window of the sliding layers, found none",
    ),
}
REFUSED_DRAFTERS = {
    "DFlash2": (setting("selector_rank", 64), "selector_rank: DFlash2 checkpoints are not supported"),
    "DFlash2, nested": (
        setting("dflash_config.conv_kernel_size", 2),
        "dflash_config.conv_kernel_size: DFlash2 checkpoints are not supported",
    ),
    "a head of another projector": (
        setting("dflash_config.projector_type", "domino"),
        "dflash_config.projector_type: expected 'dflash' or 'dspark', found 'domino'",
    ),
    "another architecture": (
        setting("architectures", ["DominoDraftModel"]),
        "architectures: expected DFlashDraftModel, DSparkDraftModel or Qwen3DSparkModel, found 'DominoDraftModel'",
    ),
    "unknown packaging": (
        setting("dflash_config", ...),
        "dflash_config: expected the packaging of z-lab's DFlash, found no such key",
    ),
    "reduced vocabulary": (setting("draft_vocab_size", 32), "draft_vocab_size: reduced draft vocabularies are not"),
    "scaled embeddings": (
        setting("dflash_config.input_embedding_scale", 8.0),
        "dflash_config.input_embedding_scale: expected 1.0, found 8.0",
    ),
    "scaled logits": (setting("output_multiplier", 0.5), "output_multiplier: expected 1.0, found 0.5"),
    "capped logits": (setting("final_logit_softcapping", 30.0), "final_logit_softcapping: expected 0.0, found 30.0"),
    "no window": (setting("sliding_window", None), "sliding_window: expected the window of the sliding layers"),
    "tapped last layer": (
        setting("dflash_config.target_layer_ids", [1, 5]),
        "dflash_config.target_layer_ids[1]: the target's last layer (5) cannot be tapped",
    ),
    "tap behind the last": (
        setting("dflash_config.target_layer_ids", [9]),
        "dflash_config.target_layer_ids[0]: expected a layer below 5, found 9",
    ),
    "no taps": (
        setting("dflash_config.target_layer_ids", []),
        "dflash_config.target_layer_ids: expected at least one entry, found []",
    ),
    "no mask": (
        setting("dflash_config.mask_token_id", ...),
        "dflash_config.mask_token_id: expected a value, found none",
    ),
    "mask out of range": (
        setting("dflash_config.mask_token_id", 512),
        "dflash_config.mask_token_id: expected a token below 512, found 512",
    ),
    "another target": (setting("num_target_layers", 36), "num_target_layers: expected the target's 6, found 36"),
    "another width": (setting("hidden_size", 128), "hidden_size: expected the target's 64, found 128"),
    "another vocabulary": (setting("vocab_size", 4096), "vocab_size: expected the target's 512, found 4096"),
    "block wider than its window": (setting("sliding_window", 3), "sliding_window: expected at least the block's 4"),
    "quantised": (
        setting("quantization_config", {"quant_method": "fp8"}),
        "quantization_config: quantised weights (fp8)",
    ),
}


@pytest.mark.parametrize(("change", "line"), REFUSED_TARGETS.values(), ids=REFUSED_TARGETS)
def test_a_target_is_refused_by_name(target: Path, change: Edit, line: str) -> None:
    edit(target, change)
    with pytest.raises(InputError) as refused:
        target_config_of(target)
    assert str(refused.value).startswith(f"{target / 'config.json'}: {line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("change", "line"), REFUSED_DRAFTERS.values(), ids=REFUSED_DRAFTERS)
def test_a_drafter_is_refused_by_name(drafter: Path, change: Edit, line: str) -> None:
    edit(drafter, change)
    with pytest.raises(InputError) as refused:
        drafter_config_of(drafter, TARGET)
    assert str(refused.value).startswith(f"{drafter / 'config.json'}: {line}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "causal"), [(False, ()), (True, (True, True)), (None, (True, False)), (..., (True, False))]
)
def test_sliding_layers_are_causal_unless_told_and_others_only_if_told(
    drafter: Path, value: Any, causal: tuple[bool, ...]
) -> None:
    edit(drafter, setting("layer_types", ["sliding_attention", "full_attention"]))
    assert drafter_config_of(edit(drafter, setting("is_causal", value)), TARGET).causal == causal


def test_a_folder_says_of_causal_layers_what_its_layout_can(tmp_path: Path) -> None:
    for name, windows, causal in (("all", (None, 20), (True, True)), ("sliding", (None, 20), (False, True))):
        config = replace(DRAFTER, windows=windows, causal=causal)
        assert drafter_config_of(put(tmp_path / name, config), TARGET) == config
    with pytest.raises(ValueError, match="tells causal layers apart by whether they slide"):
        put(tmp_path / "others", replace(DRAFTER, windows=(None, 20), causal=(True, False)))


def test_the_block_size_may_stand_at_the_top_and_must_stand_somewhere(drafter: Path) -> None:
    edit(drafter, setting("dflash_config.block_size", ...))
    assert drafter_config_of(drafter, TARGET).block == 4
    edit(drafter, setting("block_size", ...))
    with pytest.raises(InputError, match="block_size: expected a value, found none"):
        drafter_config_of(drafter, TARGET)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "cannot be read: no such file"),
        ("{", "1: is not JSON"),
        ("[]", "expected a mapping"),
        (b"\xff", "UTF-8"),
        ("[" * 100_000, "is not JSON that can be read: .*recursion"),
        ("1" * 5_000, "is not JSON that can be read: .*digits"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, text: str | bytes | None, line: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(InputError, match=line):
        target_config_of(tmp_path)


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    """Change the tensors of ``folder``."""
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)
    return folder


BAD_WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "missing": (
        lambda tensors: tensors.pop("model.norm.weight"),
        "model.norm.weight: expected this tensor, found none",
    ),
    "two missing": (
        lambda tensors: [tensors.pop("model.norm.weight"), tensors.pop("lm_head.weight")],
        "lm_head.weight: expected this tensor and 1 others, found none",
    ),
    "a bias": (
        lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}),
        "model.layers.0.self_attn.q_proj.bias: the configuration has no place for this tensor",
    ),
    "a shape": (
        lambda tensors: tensors.update({"model.norm.weight": torch.ones(65)}),
        r"model.norm.weight: shape: expected [64], found [65]",
    ),
    "a dtype": (
        lambda tensors: tensors.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}),
        "model.norm.weight: expected floating point of 16 or 32 bits, found torch.int8",
    ),
    "no number": (
        lambda tensors: tensors["model.norm.weight"][3:4].fill_(float("nan")),
        "model.norm.weight: expected finite values in torch.float32, found others",
    ),
}


@pytest.mark.parametrize(("change", "line"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_weights_that_do_not_fit_the_configuration(
    target: Path, change: Callable[[dict[str, torch.Tensor]], None], line: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_target(rewritten(target, change))
    assert str(refused.value) == f"{target / SINGLE}: {line}"


def test_files_that_are_missing_cut_or_no_safetensors(target: Path) -> None:
    path = target / SINGLE
    whole = path.read_bytes()
    for content in (whole[:-8], whole[:20], b"x" * 64):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not a whole safetensors file"):
            load_target(target)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read: no such file"):
        load_target(target)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (setting("weight_map", ...), "weight_map: expected a mapping"),
        (setting("weight_map", {}), "weight_map: expected a mapping"),
        (
            lambda index: index["weight_map"].update({"lm_head.weight": "../x"}),
            "weight_map.lm_head.weight: expected a file",
        ),
        (lambda index: index["weight_map"].update({"lm_head.weight": 3}), "weight_map.lm_head.weight: expected a file"),
        (lambda index: index["weight_map"].update({"lm_head.weight": "gone"}), "gone: cannot be read: no such file"),
        (
            lambda index: index["weight_map"].update({"x": next(iter(index["weight_map"].values()))}),
            "x: .* says that it",
        ),
    ],
)
def test_an_index_that_names_what_is_not_there(tmp_path: Path, change: Edit, line: str) -> None:
    folder = edit(put(tmp_path, TINY, most_bytes=40_000), change, INDEX)
    with pytest.raises(InputError, match=line):
        load_target(folder)
