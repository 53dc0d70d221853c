"""Weights beside a card: every file that the card names has the SHA-256 that stands there, or is not opened."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, reason_of
from scenarios.jsonfile import load_mapping

HOME = Path(__file__).parents[1] / "weights"  # a folder for each tier
CARD = "card.json"
TARGET, TOKENS = "target", "tokens"
DRAFTERS = {"dflash": "drafter", "dspark": "drafter-dspark", "eagle3": "drafter-eagle3", "mtp": "drafter-mtp"}
WEIGHTS, CONFIG = "*.safetensors", "config.json"


def card_of(folder: Path) -> dict[str, Any]:
    """The card in ``folder``, empty where there is none; InputError for one that cannot be read."""
    path = folder / CARD
    if not path.exists():
        return {}
    card = load_mapping(path)
    hashes = card.get("sha256")
    if not isinstance(hashes, dict) or not all(isinstance(one, str) for one in hashes.values()):
        raise InputError(str(path), 0, "sha256", "expected a mapping from files to their SHA-256")
    return card


def checked(folder: Path, parts: Sequence[str]) -> dict[str, str]:
    """SHA-256 of the files in ``parts`` of ``folder`` that its card names, by path below it.

    InputError, in one line, for one of them that is not the file on the card, or is not there; and for weights and
    configurations in them that a card passes over: nothing would hold them to anything.
    """
    card = card_of(folder)
    named = {name: told for name, told in card.get("sha256", {}).items() if name.split("/")[0] in parts}
    found = {name: digest_of(folder / name) for name in named}
    for name, told in named.items():
        if found[name] != told:
            problem = (
                f"expected the file on {CARD}, SHA-256 {told[:12]}.., found {found[name][:12]}..: "
                "it is damaged, or was trained behind the card, which `kvtwin train evaluate` writes anew"
            )
            raise InputError(str(folder / name), 0, "", problem)
    if card:
        _require_named(folder, [part for part in parts if part != TOKENS], named)
    return found


def _require_named(folder: Path, parts: Sequence[str], named: Collection[str]) -> None:
    """InputError unless weights and configurations in ``parts`` of ``folder`` are all among the ``named`` ones."""
    for path in weights_in(folder, parts):
        if path.relative_to(folder).as_posix() not in named:
            raise InputError(str(path), 0, "", f"expected no weights beside those on {CARD}")
    for part in parts:
        if (path := folder / part / CONFIG).exists() and f"{part}/{CONFIG}" not in named:
            raise InputError(str(path), 0, "", f"expected a configuration that is on {CARD}, found one that is not")


def weights_in(folder: Path, parts: Sequence[str]) -> list[Path]:
    """Files of weights in ``parts`` of ``folder``."""
    return sorted(path for part in parts for path in (folder / part).glob(WEIGHTS))


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(str(path), 0, "", f"cannot be read: {reason_of(error)}") from error


def kinds_in(folder: Path) -> tuple[str, ...]:
    """Kinds of the drafters that lie in ``folder``."""
    return tuple(kind for kind, name in DRAFTERS.items() if (folder / name).is_dir())
