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
