"""Random numbers that are looked up, not drawn: a hash of (seed, purpose, request, position, slot) says each of them.

Neither the order of dispatches, nor the other rows of a batch, nor padding change a draw; nothing has a state, so a
captured graph replays to the same numbers. Three purposes keep the numbers apart:

* a *token* at a position is chosen by the number of that position: it is committed once;
* the *acceptance* of a draft and the *draft* itself by those of its block's anchor and of its slot in the block, since
  block verification lets later slots decide about earlier ones, and the next block must not meet the same numbers.
"""

from __future__ import annotations

import enum
from functools import lru_cache

import torch

from model.tokens import named_seed

_GOLDEN, _MULTIPLY_1, _MULTIPLY_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 53  # of a uniform number


class Purpose(enum.Enum):
    """What a number is for."""

    TOKEN = "token"
    ACCEPT = "accept"
    DRAFT = "draft"


def signed(value: int) -> int:
    """The int64 with the bits of an unsigned 64-bit ``value``."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def mix(values: torch.Tensor) -> torch.Tensor:
    """The splitmix64 finaliser of int64 ``values``, as :func:`model.tokens.mix64` computes it of unsigned ones."""
    values = (values ^ _shifted(values, 30)) * signed(_MULTIPLY_1)
    values = (values ^ _shifted(values, 27)) * signed(_MULTIPLY_2)
    return values ^ _shifted(values, 31)


def _shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


@lru_cache(maxsize=64)
def stream_of(seed: int, purpose: Purpose) -> int:
    """The 64-bit name of all numbers of one purpose."""
    return named_seed("acceptance draws", seed, purpose.value)


def counters(seed: int, purpose: Purpose, request: torch.Tensor, *places: torch.Tensor) -> torch.Tensor:
    """Hashes int64 of ``request`` and of each of ``places`` in turn, int64 tensors that broadcast."""
    found = mix(request ^ signed(stream_of(seed, purpose)))
    for place in places:
        found = mix(found + (place + 1) * signed(_GOLDEN))
    return found


def uniform(counter: torch.Tensor) -> torch.Tensor:
    """Numbers float64 in (0, 1) of ``counter``."""
    return (_shifted(counter, 64 - _BITS).double() + 0.5) * 2.0**-_BITS


def gumbel(counter: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Standard Gumbel noise float64 ``[*counter, vocabulary]``: the argmax of it and log p is distributed as p."""
    token = torch.arange(vocabulary, device=counter.device)
    return -(-uniform(mix(counter[..., None] + (token + 1) * signed(_GOLDEN))).log()).log()
