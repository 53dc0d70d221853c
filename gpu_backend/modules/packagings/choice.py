"""Which packaging a block drafter's file is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_backend.modules.packagings import deepspec, speculators, zlab
from gpu_backend.modules.packagings.told import Told
from gpu_backend.modules.schema import refuse_biases, refuse_shared
from scenarios.errors import InputError, quote


def read_drafter(values: Mapping[str, Any], file: str) -> Told:
    """A block drafter's ``config.json``; InputError, in one line, for what no packaging has or no code serves."""
    refuse_shared(values, file)
    refuse_biases(values, file)
    if speculators.TELLTALE in values:
        body = values.get(speculators.BODY)
        if isinstance(body, Mapping):
            refuse_shared(body, file, f"{speculators.BODY}.")
            refuse_biases(body, file, f"{speculators.BODY}.")
        return speculators.read(values, file)
    found = values.get("architectures")
    name = found[0] if isinstance(found, list) and found else None
    if name == deepspec.ARCHITECTURE:
        return deepspec.read(values, file)
    if name in (zlab.DFLASH, zlab.DSPARK):
        if values.get("dflash_config") is None:
            problem = "expected the packaging of z-lab's DFlash, found no such key"
            raise InputError(file, 0, "dflash_config", problem)
        return zlab.read(values, file)
    known = f"{zlab.DFLASH}, {zlab.DSPARK} or {deepspec.ARCHITECTURE}"
    if name is None:
        raise InputError(file, 0, "architectures", f"expected {known}, found none")
    raise InputError(file, 0, "architectures", f"expected {known}, found {quote(name)}")
