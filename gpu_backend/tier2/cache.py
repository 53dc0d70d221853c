"""Where T2 is kept between runs: made once on each machine, never shipped."""

from __future__ import annotations

import os
from pathlib import Path

from scenarios.errors import InputError

VARIABLE, NAME = "KVTWIN_CACHE", "t2"


def cache_folder() -> Path:
    """``$KVTWIN_CACHE``, else ``kvtwin`` in the user's cache (the XDG base directory specification)."""
    told = os.environ.get(VARIABLE)
    if told:
        return Path(told)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # the specification ignores relative ones
        return Path(base) / "kvtwin"
    try:
        return Path.home() / ".cache" / "kvtwin"
    except RuntimeError as error:
        raise InputError(VARIABLE, 0, "", "expected a folder, since this user has no home") from error


def t2_folder() -> Path:
    """The folder of the T2 pair, which may not be there."""
    return cache_folder() / NAME


def made_t2() -> Path:
    """The folder of the T2 pair; ``InputError`` that says how it is made where it is not there, or half of it."""
    folder = t2_folder()
    for part in ("target", "tokens/prompts.json", "drafter"):
        if not (folder / part).exists():
            problem = f"expected {part}, which `kvtwin train STAGE --size t2` makes, found none; STAGE is corpus, "
            problem += "target --wheel FILE, tokenizer, drafter in turn"
            raise InputError(str(folder), 0, "T2", problem)
    return folder
