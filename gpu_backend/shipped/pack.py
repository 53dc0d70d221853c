"""From the folder of a training to one that is shipped: weights, tokenizer, names of the prompts, card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_backend.shipped.card import CARD, DRAFTERS, TARGET, TOKENS, WEIGHTS, card_of, digest_of, kinds_in
from gpu_backend.train.files import read_json, read_prompts
from scenarios.errors import InputError

MOST_FILE = 15 << 20  # bytes of one file
MOST_PAIR = 40_000_000  # of target and DFlash drafter together
MOST = 56_000_000  # of everything that is shipped
PROGRESS, TOKENIZER, README = "progress.json", "tokenizer.json", "README.md"
PROMPTS, NAMES = "prompts.json", "prompt_names.json"
_KEPT = ("config.json", WEIGHTS, f"{WEIGHTS}.index.json")  # of target and drafters
Curve = tuple[list[str], list[list[float]]]  # columns, rows


def pack(source: Path, target: Path) -> dict[str, Any]:
    """Write what is shipped of the training in ``source`` to the folder ``target``, which is there and empty.

    Returns its card. InputError where a part is missing or a file is too large.
    """
    card = card_of(source)
    kinds = kinds_in(source)
    if not card or not kinds or not (source / TARGET).is_dir():
        problem = f"expected {CARD}, {TARGET} and a drafter, as `kvtwin train` leaves them"
        raise InputError(str(source), 0, "weights", problem)
    parts = (TARGET, *(DRAFTERS[kind] for kind in kinds))
    files = [path for part in parts for pattern in _KEPT for path in sorted((source / part).glob(pattern))]
    files.append(source / TOKENS / TOKENIZER)
    for path in files:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, place)
        except FileNotFoundError as error:
            raise InputError(str(path), 0, "", "expected what `kvtwin train` writes, found no such file") from error
    _write(target / TOKENS / NAMES, prompt_names(source, card))
    sizes = sizes_of(target)
    require_sizes(target, sizes)
    card |= {"kinds": list(kinds), "bytes": sum(sizes.values())}
    card["sha256"] = {name: digest_of(target / name) for name in sizes}
    _write(target / CARD, card)
    return card


def sizes_of(folder: Path) -> dict[str, int]:
    """Bytes of every file below ``folder`` but the card and what is made from it, by path."""
    made = {CARD, README}
    return {
        name: path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (name := str(path.relative_to(folder))) not in made and path.suffix != ".png"
    }


def require_sizes(folder: Path, sizes: dict[str, int]) -> None:
    """InputError, in one line, for files of ``sizes`` that are too large to be shipped."""
    for name, size in sizes.items():
        if size > MOST_FILE:
            raise InputError(str(folder / name), 0, "", f"expected at most {MOST_FILE:,} bytes a file, found {size:,}")
    pair = sum(size for name, size in sizes.items() if name.split("/")[0] in (TARGET, DRAFTERS["dflash"]))
    for what, size, most in (("target and drafter", pair, MOST_PAIR), ("all weights", sum(sizes.values()), MOST)):
        if size > most:
            raise InputError(str(folder), 0, "weights", f"expected at most {most:,} bytes of {what}, found {size:,}")


def prompt_names(source: Path, card: dict[str, Any]) -> dict[str, Any]:
    """What the evaluation prompts of a training are called, and where they come from, without their ids.

    They are rebuilt from the standard library (:mod:`gpu_backend.al.prompts`), whose text is another one in another
    Python.
    """
    shipped, path = source / TOKENS / NAMES, source / TOKENS / PROMPTS
    if shipped.exists():
        return read_json(shipped, "tokenizer")
    told = read_prompts(path) if path.exists() else []
    named = [{name: one.get(name) for name in ("name", "file", "first")} for one in told]
    length = len(told[0]["ids"]) if told else 0
    return {"python": card.get("data", {}).get("python"), "tokens": length, "prompts": named}


def curves(source: Path) -> dict[str, Curve]:
    """Losses by part of a training, as its progress has them."""
    return {name: (told["columns"], told["curve"]) for name, told in _progress(source)}


def _progress(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in (TARGET, *DRAFTERS.values()):
        path = source / name / PROGRESS
        told = read_json(path, name.partition("-")[0]) if path.exists() else {}
        if "curve" in told:  # what was not trained here has none
            yield name, told


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
