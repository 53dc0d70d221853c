"""The card beside the weights: what they were trained on and how, their hashes, what they are bound to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_backend.shipped.card import CARD, CONFIG, DRAFTERS, card_of, digest_of, kinds_in, weights_in
from gpu_backend.train.corpus import MANIFEST
from gpu_backend.train.files import CORPUS, PROGRESS, TARGET, TOKENS, read_json, write_json
from gpu_backend.train.fit import INFO
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import MOST_BYTES
from gpu_backend.train.tokens import TOKENIZER
from scenarios.errors import InputError

MOST_OF_ALL = 56_000_000  # bytes of all weights
RULE = "DFlash and DSpark, per query: |query - key| < tokens (z-lab's); EAGLE3 and MTP attend to everything before"


def renew_card(folder: Path, recipe: Recipe) -> None:
    """Write the card again where a target and its drafters are no longer the files on it; what was measured with
    those others is not on the new one."""
    if not kinds_in(folder):
        return
    try:
        told = card_of(folder).get("sha256")
    except InputError:  # one that cannot be read is replaced
        told = None
    if told != {_name(folder, path): digest_of(path) for path in _files(folder)}:
        write_card(folder, recipe)


def write_card(folder: Path, recipe: Recipe, acceptance: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write ``card.json`` for the target and the drafters in ``folder``; ``InputError`` if the weights are too large to
    be shipped."""
    parts = _parts(folder)
    size = sum(path.stat().st_size for path in weights_in(folder, parts))
    if size > MOST_OF_ALL and not recipe.instruct:  # such a pair is kept where it was made
        raise InputError(str(folder), 0, "weights", f"expected at most {MOST_OF_ALL} bytes in all, found {size}")
    card = {
        "data": read_json(folder / CORPUS / MANIFEST, "corpus"),
        "tokenizer": read_json(folder / TOKENS / INFO, "tokenizer"),
        "recipe": recipe.told(),
        **{part: _part(read_json(folder / part / PROGRESS, part.partition("-")[0]), recipe.told()) for part in parts},
        "acceptance": acceptance,
        "window": {"tokens": recipe.drafter.window(0), "rule": RULE},
        "timeline": "immediate: drafts right behind the prefill",
        "limits": [
            "held out by the names of standard-library modules: near copies elsewhere may have been trained on",
            "made to tell sound reuse from broken reuse; no claim about the quality of what it writes",
            "trained by time: another run gives other weights",
            *(["the target was trained by others, on text that is not known here"] if recipe.instruct else []),
        ],
        "bytes": size,
        "most_bytes_a_file": MOST_BYTES,
        "sha256": {_name(folder, path): digest_of(path) for path in _files(folder)},
    }
    write_json(folder / CARD, card)
    return card


def _parts(folder: Path) -> list[str]:
    """Folders of weights in ``folder``."""
    return [TARGET, *(DRAFTERS[kind] for kind in kinds_in(folder))]


def _files(folder: Path) -> list[Path]:
    """What the card names."""
    parts = _parts(folder)
    return [*weights_in(folder, parts), *(folder / part / CONFIG for part in parts), folder / TOKENS / TOKENIZER]


def _name(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _part(progress: dict[str, Any], recipe: dict[str, Any]) -> dict[str, Any]:
    """What is told of a part: its progress with the end of its curve alone, and of the recipe of each run what was
    another one than ``recipe``; of runs that did not keep theirs, nothing."""
    if "curve" not in progress:  # what was not trained here has none
        return progress
    runs = [
        {**run, "recipe": {name: value for name, value in run["recipe"].items() if recipe.get(name) != value}}
        if "recipe" in run
        else run
        for run in progress.get("runs", [])
    ]
    told = {name: value for name, value in progress.items() if name != "curve"}
    return {**told, "runs": runs, "last": progress["curve"][-1]}
