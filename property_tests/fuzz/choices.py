"""Where the numbers of a generated program come from: a seed, a string of bytes, or hypothesis.

Everything is built on ``below(n)``, and 0 is the simplest choice: a source that ends in zeros ends in plain programs,
and one that is lowered gives simpler ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Choices(ABC):
    """A source of choices."""

    @abstractmethod
    def below(self, count: int) -> int:
        """A whole number from 0 below ``count``, which is positive."""

    def pick(self, items: Sequence[T]) -> T:
        """One of ``items``; the first is the simplest."""
        return items[self.below(len(items))]

    def between(self, least: int, most: int) -> int:
        """A whole number from ``least`` to ``most``."""
        return least + self.below(most - least + 1)

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred cases; false is the simpler answer."""
        return self.below(100) >= 100 - percent

    def weighted(self, weights: Sequence[int]) -> int:
        """A place in ``weights``, each as often as its weight says; the sum is positive."""
        left = self.below(sum(weights))
        for place, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return place
        raise AssertionError("a number below the sum of the weights lies within them")


class Seeded(Choices):
    """Choices of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def below(self, count: int) -> int:
        return int(self._random() * count)


class Bytes(Choices):
    """Choices read off a string of bytes, two for a number of more than 256 values; zeros once it is used up.

    A lower byte is a lower choice.
    """

    def __init__(self, program: bytes) -> None:
        self.program = program
        self.used = 0  # bytes that were asked for, more than there are if the program was too short

    def below(self, count: int) -> int:
        width = 1 if count <= 256 else 2
        word = self.program[self.used : self.used + width]
        self.used += width
        if len(word) < width:
            return 0
        return int.from_bytes(word, "big") * count >> 8 * width


class Drawn(Choices):
    """Choices that hypothesis draws one by one."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        return self._draw(st.integers(0, count - 1))
