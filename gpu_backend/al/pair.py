"""The pair whose acceptance is measured: its modules, the shape that an engine has to have for it, its hashes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gpu_backend.acceptance.rules import Sampling
from gpu_backend.acceptance.weights import DFLASH, open_pair
from gpu_backend.al.order import WINDOWED
from gpu_backend.modules.config import DecoderConfig
from gpu_backend.modules.drafters import AnyDrafter
from gpu_backend.modules.loader import load_pair
from gpu_backend.modules.target import Target
from gpu_backend.modules.tier0 import TINY, chain_for, drafter_for, random_pair
from gpu_backend.replay.modelled import Models, content_of
from gpu_backend.shipped.card import digest_of, weights_in
from gpu_backend.train.files import PROGRESS, TARGET, read_json
from model.drafter import KINDS
from scenarios.errors import InputError

MOST_SPAN = 256  # tokens
T0_WORDS, T0_SEED, T0_WINDOW = 5, 7, 16  # of tier T0: so few words that random weights agree now and then
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target and its drafter of one ``kind``, ready on a device.

    ``sha256`` are their weights', by path; empty for tier T0. Lengths of all prompts are counted in ``span`` tokens:
    the drafter's window, and for drafters without one what a window would be, so that all are asked alike.
    """

    name: str
    target: Target
    drafter: AnyDrafter
    sha256: dict[str, str]
    exact: bool
    kind: str = DFLASH
    span: int = T0_WINDOW
    spans: int = 4  # that a whole prompt has
    release: str = ""  # of weights that others made, as the training tells it

    @property
    def window(self) -> int | None:
        """The drafter's window in tokens; ``None`` for full attention."""
        return self.drafter.config.window(0)

    @property
    def whole(self) -> int:
        """Tokens of text that a prompt may have."""
        return self.spans * self.span

    @property
    def page(self) -> int:
        """Page size in tokens: a sixteenth of the span, four tokens at least."""
        return max(4, self.span // 16)

    @property
    def drafts(self) -> int:
        """K."""
        return self.drafter.config.drafts

    @property
    def lookahead(self) -> int:
        """Tokens behind a cell that it depends on."""
        return KINDS[self.kind].tag_span(self.drafts)

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
            "drafter": {
                "kind": self.kind,
                "drafts": self.drafts,
                "window": self.window,
                "chain": self.drafter.config.depth,
            },
        }


def _layers(name: str, config: DecoderConfig, group: int) -> dict[str, Any]:
    found = config.groups[group]
    shape = {"layers": len(found.layers), "kv_heads": config.kv_heads, "head_dim": config.head_dim}
    window = {} if found.window is None else {"window": found.window}
    return {"name": name, **shape, "dtype": DTYPES[config.dtype], **window}


def load(folder: Path, device: torch.device, *, exact: bool, kind: str = DFLASH) -> LoadedPair:
    """The pair in ``folder`` with its drafter of one kind, on a CPU in float32; InputError for one that the experiment
    cannot serve."""
    found = open_pair(folder, kind)
    parts = found.parts
    if found.window is None and kind in WINDOWED:
        problem = "expected a drafter with a window, found full attention: what of it is lost would be without bound"
        raise InputError(str(parts[1] / "config.json"), 0, "sliding_window", problem)
    dtype = None if device.type == "cuda" else torch.float32
    pair = load_pair(*parts, device, exact=exact, dtype=dtype)
    hashes = {
        name: found.sha256.get(name) or digest_of(path)
        for path in weights_in(folder, [part.name for part in parts])
        if (name := str(path.relative_to(folder)))
    }
    span = found.window or min(MOST_SPAN, found.target.positions // 16)
    return LoadedPair(folder.resolve().name, *pair, hashes, exact, kind, span, release=_release(folder))


def _release(folder: Path) -> str:
    """Where the target comes from, if it was not trained here."""
    path = folder / TARGET / PROGRESS
    return str(read_json(path, "target").get("release", "")) if path.exists() else ""


def drawn(device: torch.device, *, exact: bool, kind: str = DFLASH) -> LoadedPair:
    """Tier T0: random weights over a handful of words, which tell sound from broken and nothing of acceptance."""
    config = replace(TINY, vocabulary=T0_WORDS)
    drafters = {
        DFLASH: drafter_for(config, block=4, window=T0_WINDOW),
        "dspark": drafter_for(config, block=3, window=T0_WINDOW, logits_start=0, markov_rank=4),
        "eagle3": chain_for(config, "eagle3", drafts=3),
        "mtp": chain_for(config, "mtp", drafts=2, depth=2),
    }
    pair = random_pair(config, drafters[kind], T0_SEED, device, exact=exact)
    return LoadedPair("t0", *pair, {}, exact, kind)
