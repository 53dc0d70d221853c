"""Byte programs: one string of bytes of fixed length is a whole program, for hypothesis to generate and to shrink."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from model.builds import Build
from property_tests.fuzz.choices import Bytes
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.provider import seed_alone
from property_tests.fuzz.swarm import Example, play

LENGTH = 384  # bytes of one program: nearly all ask for fewer; behind the last one every choice is the simplest


def binary() -> st.SearchStrategy[bytes]:
    """Programs, all of one length: hypothesis mutates and shrinks these best."""
    return st.binary(min_size=LENGTH, max_size=LENGTH)


def play_bytes(program: bytes, build: Build, mix: Mix, check: str = "exhaustive") -> Example:
    """Run one byte program on ``build``."""
    return play(Bytes(program), build, mix, check)


def programs(number: int, count: int) -> list[bytes]:
    """The ``count`` programs that hypothesis generates from the seed ``number``."""
    drawn: list[bytes] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    @given(binary())
    def draw(program: bytes) -> None:
        drawn.append(program)

    with seed_alone():
        draw()
    return drawn[:count]
