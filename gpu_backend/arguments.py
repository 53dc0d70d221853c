"""What the commands of this room take on their command lines."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A type for argparse: whole numbers from 1 on."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return value
