"""Columns and rows of a frame, as plainly typed arrays."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """A column of whole numbers."""
    return np.asarray(frame[column], dtype=np.int64)


def floats(frame: pd.DataFrame, column: str) -> Floats:
    """A column as numbers, NaN where one is missing; all are where there is no such column."""
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(frame[column].astype("float64"), dtype=np.float64)


def texts(frame: pd.DataFrame, column: str) -> list[str]:
    """A column as text."""
    return [str(value) for value in frame[column].tolist()]


def rows(frame: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows at which ``mask`` (shape ``[rows]``) is true."""
    return cast(pd.DataFrame, frame.iloc[np.flatnonzero(np.asarray(mask, dtype=bool))])


def coded(values: list[Any]) -> tuple[Ints, list[Any]]:
    """For each value its place among the different ones, in the order in which they come, and these."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.int64), list(places)
