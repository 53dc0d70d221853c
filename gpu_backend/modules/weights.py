"""Weights in safetensors: one file, or several with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from scenarios.errors import InputError, quote, reason_of

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32)
DERIVED = "rotary_emb.inv_freq"  # a table that old checkpoints carry along


def read_weights(
    folder: Path, expected: Mapping[str, torch.Tensor], dtype: torch.dtype, *, ignored: tuple[str, ...] = (),
    copies: Mapping[str, torch.Tensor] | None = None, renamed: Mapping[str, str] | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """The tensors of ``folder`` by name, in ``dtype``: exactly the names and shapes of ``expected``.

    Those in ``ignored`` may be there besides, and those in ``copies`` if their values are those given. A name that
    begins with a key of ``renamed`` begins with its value instead. ``InputError`` names file and tensor.
    """
    copies, renamed = copies or {}, renamed or {}
    found: dict[str, torch.Tensor] = {}
    first = ""
    for path, listed in files_of(folder).items():
        first = first or str(path)
        tensors = _tensors_of(path)
        for name in listed or ():
            if name not in tensors:
                raise InputError(str(path), 0, name, f"{INDEX} says that it is here, but it is not")
        for called, tensor in tensors.items():
            name = next((new + called[len(old) :] for old, new in renamed.items() if called.startswith(old)), called)
            if name in ignored or name.endswith(DERIVED):
                continue
            if name in copies and name not in expected:
                _require_copy(str(path), name, tensor, copies[name])
                continue
            if name not in expected:
                raise InputError(str(path), 0, name, "the configuration has no place for this tensor")
            if tensor.shape != expected[name].shape:
                shapes = f"expected {list(expected[name].shape)}, found {list(tensor.shape)}"
                raise InputError(str(path), 0, name, f"shape: {shapes}")
            if not expected[name].dtype.is_floating_point:
                if tensor.dtype not in INTEGERS:
                    raise InputError(str(path), 0, name, f"expected integers, found {tensor.dtype}")
                found[name] = tensor.to(expected[name].dtype)
                continue
            if tensor.dtype not in FLOATS:
                raise InputError(str(path), 0, name, f"expected floating point of 16 or 32 bits, found {tensor.dtype}")
            found[name] = tensor.to(dtype)
            if not found[name].isfinite().all():
                raise InputError(str(path), 0, name, f"expected finite values in {dtype}, found others")
    missing = sorted(expected.keys() - found.keys())
    if missing:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise InputError(first, 0, missing[0], f"expected this tensor{more}, found none")
    return found


def _require_copy(file: str, name: str, tensor: torch.Tensor, own: torch.Tensor) -> None:
    """InputError if ``tensor`` is not the target's ``own``, as far as its dtype tells."""
    if tensor.shape != own.shape:
        problem = f"shape: expected the target's {list(own.shape)}, found {list(tensor.shape)}"
        raise InputError(file, 0, name, problem)
    if not torch.equal(tensor, own.to(tensor.dtype)):
        problem = "expected the target's own values, found others: a drafter's own embedding or head is not supported"
        raise InputError(file, 0, name, problem)


def files_of(folder: Path) -> dict[Path, list[str] | None]:
    """Files of ``folder`` with the tensors that its index lists for each, ``None`` without an index."""
    index = folder / INDEX
    if not index.exists():
        return {folder / SINGLE: None}
    try:
        placed: Any = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(index), 0, "", f"cannot be read: {reason_of(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(index), 0, "weight_map", "expected a mapping from tensors to files") from error
    if not isinstance(placed, dict) or not placed:
        raise InputError(
            str(index), 0, "weight_map", f"expected a mapping from tensors to files, found {quote(placed)}"
        )
    listed: dict[Path, list[str]] = {}
    for name, file in placed.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise InputError(str(index), 0, f"weight_map.{name}", f"expected a file beside it, found {quote(file)}")
        listed.setdefault(folder / file, []).append(name)
    return dict(listed)


def _tensors_of(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError, safe_open  # the only part of this room that needs it

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    except OSError as error:
        raise InputError(str(path), 0, "", f"cannot be read: {reason_of(error)}") from error
    except SafetensorError as error:
        raise InputError(str(path), 0, "", f"is not a whole safetensors file: {error}") from error
