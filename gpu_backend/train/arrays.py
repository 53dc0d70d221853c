"""Token ids as files: arrays of uint16, written whole and checked as they are read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from gpu_backend.train.files import read_bytes, write_whole
from scenarios.errors import InputError


def write_ids(path: Path, ids: np.ndarray) -> None:
    """Write ``ids`` to ``path``."""
    buffer = io.BytesIO()
    np.save(buffer, ids.astype(np.uint16))
    write_whole(path, buffer.getvalue())


def read_ids(path: Path, stage: str, what: str = "ids", shape: tuple[object, ...] | None = None) -> np.ndarray:
    """What :func:`write_ids` wrote in ``stage``: of ``shape``, else ``[ids]``; ``InputError`` for all else, which is
    said to be no array of ``what``."""
    content = read_bytes(path, stage)
    try:
        ids = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:  # EOFError: of an empty file
        raise InputError(str(path), 0, "", f"is not an array of {what}") from error
    good = isinstance(ids, np.ndarray) and ids.dtype == np.uint16  # an archive of several is no array
    if not good or (ids.ndim != 1 if shape is None else ids.shape != shape):
        raise InputError(str(path), 0, "", f"is not an array of {what}")
    return ids
