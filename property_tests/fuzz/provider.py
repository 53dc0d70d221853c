"""How hypothesis draws here: from its seed alone.

By default it slips in constants that it reads from the source of every module that is loaded, and settings cannot turn
that off. Then a seed would mean other programs wherever a user's rule, another test or another entry point came along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture.providers import HypothesisProvider

DRAWS = "_maybe_draw_constant"  # of the provider; its registered name is not all that hypothesis' engine asks


@contextmanager
def seed_alone() -> Iterator[None]:
    """What hypothesis generates in this context follows from its seed and version, whatever is loaded."""
    before = getattr(HypothesisProvider, DRAWS)
    setattr(HypothesisProvider, DRAWS, _nothing)
    try:
        yield
    finally:
        setattr(HypothesisProvider, DRAWS, before)


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """No constant."""
