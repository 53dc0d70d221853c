"""The pair whose acceptance is measured: its modules, the shape that an engine has to have for it, its hashes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.acceptance.rules import Sampling
from gpu_backend.acceptance.weights import DRAFTER, TARGET, open_pair
from gpu_backend.modules.config import DecoderConfig
from gpu_backend.modules.drafters import AnyDrafter
from gpu_backend.modules.loader import load_pair
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, drafter_for, random_pair
from gpu_backend.replay.modelled import Models, content_of
from scenarios.errors import InputError

T0_WORDS, T0_SEED, T0_WINDOW = 5, 7, 16  # of tier T0: so few words that random weights agree now and then
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target and its drafter, ready on a device. ``sha256`` are their files', by path; empty for tier T0."""

    name: str
    target: Target
    drafter: AnyDrafter
    sha256: dict[str, str]
    exact: bool

    @property
    def window(self) -> int:
        """The drafter's window in tokens."""
        window = self.drafter.config.window(0)
        assert window is not None
        return window

    @property
    def page(self) -> int:
        """Page size in tokens: a sixteenth of the window, four tokens at least."""
        return max(4, self.window // 16)

    @property
    def drafts(self) -> int:
        """K."""
        return self.drafter.config.drafts

    @property
    def device(self) -> torch.device:
        """Where the modules are."""
        return self.target.rotary.cos.device

    def models(self, sampling: Sampling) -> Models:
        """The modules as a replay takes them, whose drafts ``sampling`` judges."""
        content = content_of(self.target.config, self.drafter.config)
        return Models(self.target, self.drafter, content, self.exact, sampling)

    def engine(self) -> dict[str, Any]:
        """Geometry and drafter of a scenario that this pair can serve, as its file would say them."""
        target = self.target.config
        groups = [_layers(f"target{number}", target, number) for number in range(len(target.groups))]
        return {
            "geometry": {
                "target": groups,
                "draft": [_layers("draft", self.drafter.config, 0)],
                "vocabulary": target.vocabulary,
            },
            "drafter": {"kind": "dflash", "drafts": self.drafts, "window": self.window},
        }


def _layers(name: str, config: DecoderConfig, group: int) -> dict[str, Any]:
    found = config.groups[group]
    shape = {"layers": len(found.layers), "kv_heads": config.kv_heads, "head_dim": config.head_dim}
    window = {} if found.window is None else {"window": found.window}
    return {"name": name, **shape, "dtype": DTYPES[config.dtype], **window}


def load(folder: Path, device: torch.device, *, exact: bool) -> LoadedPair:
    """The pair in ``folder``, on a CPU in float32; InputError for one that the experiment cannot serve."""
    found = open_pair(folder)
    if found.window is None:
        problem = "expected a drafter with a window, found full attention: what of it is lost would be without bound"
        raise InputError(str(folder / DRAFTER / "config.json"), 0, "sliding_window", problem)
    dtype = None if device.type == "cuda" else torch.float32
    pair = load_pair(folder / TARGET, folder / DRAFTER, device, exact=exact, dtype=dtype)
    files = sorted(path for part in (TARGET, DRAFTER) for path in (folder / part).glob("*.safetensors"))
    hashes = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return LoadedPair(folder.resolve().name, *pair, hashes, exact)


def drawn(device: torch.device, *, exact: bool) -> LoadedPair:
    """Tier T0: random weights over a handful of words, which tell sound from broken and nothing of acceptance."""
    config = replace(TINY, vocabulary=T0_WORDS)
    pair = random_pair(config, drafter_for(config, block=4, window=T0_WINDOW), T0_SEED, device, exact=exact)
    return LoadedPair("t0", *pair, {}, exact)
