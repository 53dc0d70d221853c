"""Token streams, content tags and page keys, computed a span at a time.

``S(k) = sum over j <= k of f(t_j + j * G) mod 2**64`` with a non-linear ``f``: equal prefixes give equal sums and the
order of tokens matters. Everything else is read off ``S``: the tag of a cell that depends on tokens ``0..i+D`` is
``mix64(seed xor S(i + D))`` and the key of a page is ``mix64(seed xor S(last token of the page))``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

U64 = np.uint64
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB
_FACTOR_1, _FACTOR_2, _STRIDE = U64(_MULTIPLY_1), U64(_MULTIPLY_2), U64(_GOLDEN)
_27, _29, _30, _31, _33 = (U64(bits) for bits in (27, 29, 30, 31, 33))
_MASK = (1 << 64) - 1
_SPAN = 1 << 15  # tokens handled at once: the temporaries stay in cache


def mix64(value: int) -> int:
    """Finalise one 64-bit integer (the splitmix64 finaliser); the scalar twin of :func:`mix64_array`."""
    value = ((value ^ (value >> 30)) * _MULTIPLY_1) & _MASK
    value = ((value ^ (value >> 27)) * _MULTIPLY_2) & _MASK
    return value ^ (value >> 31)


def mix64_array(values: NDArray[np.uint64], out: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
    """Finalise an array of shape ``[n]`` element by element, into ``out`` when given."""
    result = np.empty_like(values) if out is None else out
    for begin in range(0, len(values), _SPAN):
        part = values[begin : begin + _SPAN]
        target = result[begin : begin + _SPAN]
        shifted = part >> _30
        np.bitwise_xor(part, shifted, out=target)
        np.multiply(target, _FACTOR_1, out=target)
        np.right_shift(target, _27, out=shifted)
        np.bitwise_xor(target, shifted, out=target)
        np.multiply(target, _FACTOR_2, out=target)
        np.right_shift(target, _31, out=shifted)
        np.bitwise_xor(target, shifted, out=target)
    return result


@lru_cache(maxsize=4096, typed=True)
def named_seed(*parts: object) -> int:
    """64-bit seed of a typed tuple: equal tuples of equal types, and only these, give equal seeds on any machine.

    The separator is escaped inside a part, so a salt cannot spell the field that follows it.
    """
    texts = (f"{type(part).__name__}:{part}" for part in parts)
    text = "\x1f".join(text.replace("\\", "\\\\").replace("\x1f", "\\x1f") for text in texts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


class Segment(NamedTuple):
    """A run of token ids by name: ``length`` ids of the endless stream ``seed``, or the ids in ``literal``.

    ``first`` replaces the first id (``-1``: keep it), so that runs which must differ at once can be told apart.
    """

    seed: int
    length: int
    first: int = -1
    literal: tuple[int, ...] = ()

    @classmethod
    def of(cls, ids: tuple[int, ...]) -> Segment:
        """The segment that holds exactly ``ids``."""
        return cls(0, len(ids), -1, ids)


def segment_tokens(segment: Segment, vocabulary: int) -> NDArray[np.uint32]:
    """Token ids of ``segment``, shape ``[length]``, each below ``vocabulary``."""
    if segment.literal:
        return np.asarray(segment.literal, dtype=np.uint32)
    ids = stream_tokens(segment.seed, 0, segment.length, vocabulary)
    if segment.first >= 0 and segment.length:
        ids[0] = segment.first % vocabulary
    return ids


def stream_tokens(seed: int, start: int, count: int, vocabulary: int) -> NDArray[np.uint32]:
    """Ids ``start .. start + count`` of the endless stream ``seed``, shape ``[count]``."""
    counters = np.arange(start, start + count, dtype=U64)
    counters *= _STRIDE
    counters += U64(mix64(seed & _MASK))
    return (mix64_array(counters, counters) % U64(vocabulary)).astype(np.uint32)


def prompt_tokens(segments: tuple[Segment, ...], vocabulary: int) -> NDArray[np.uint32]:
    """Token ids of a prompt given as segments, shape ``[sum of lengths]``."""
    if len(segments) < 4 or any(segment.literal for segment in segments):
        parts = [segment_tokens(segment, vocabulary) for segment in segments]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)
    return _joined_streams(segments, vocabulary)


def _joined_streams(segments: tuple[Segment, ...], vocabulary: int) -> NDArray[np.uint32]:
    """Ids of many named segments at once: what :func:`segment_tokens` gives for each, end to end."""
    lengths = np.array([segment.length for segment in segments], dtype=np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    seeds = mix64_array(np.array([segment.seed & _MASK for segment in segments], dtype=U64))
    with np.errstate(over="ignore"):
        counters = np.arange(int(ends[-1]), dtype=U64)
        counters -= np.repeat(starts.astype(U64), lengths)
        counters *= U64(_GOLDEN)
        counters += np.repeat(seeds, lengths)
    ids = (mix64_array(counters, counters) % U64(vocabulary)).astype(np.uint32)
    for start, segment in zip(starts.tolist(), segments, strict=True):
        if segment.first >= 0 and segment.length:
            ids[start] = segment.first % vocabulary
    return ids


def prefix_sums(tokens: NDArray[np.uint32], start: int, carry: int) -> NDArray[np.uint64]:
    """``S`` of ``tokens`` that stand at positions ``start..``, where ``carry`` is ``S(start - 1)``; shape ``[n]``."""
    count = len(tokens)
    sums = np.empty(count, dtype=U64)
    running = U64(carry)
    for begin in range(0, count, _SPAN):
        end = min(begin + _SPAN, count)
        part = sums[begin:end]
        np.multiply(np.arange(start + begin, start + end, dtype=U64), _STRIDE, out=part)
        part += tokens[begin:end]
        part *= _FACTOR_1
        part ^= part >> _33
        part *= _FACTOR_2
        part ^= part >> _29
        np.cumsum(part, out=part)
        if running:
            part += running
        running = part[-1]
    return sums


class TokenStream:
    """All tokens of one request, prompt first, with their sums; grows as tokens are committed.

    ``more(start, count)`` supplies the ids that follow the prompt, ``start`` counted from its end.
    """

    __slots__ = ("_more", "_sums", "_tokens", "length", "prompt_length")

    def __init__(self, tokens: NDArray[np.uint32], more: Callable[[int, int], NDArray[np.uint32]]) -> None:
        self._tokens = tokens
        self._sums = np.empty(0, dtype=U64)  # of the first tokens, as far as somebody asked
        self._more = more
        self.length = len(tokens)
        self.prompt_length = len(tokens)

    def require(self, length: int) -> None:
        """Make tokens ``[0, length)`` known, asking the source for at least 64 at a time.

        The source may give fewer than asked; ``IndexError`` when ``length`` is still out of reach.
        """
        if length <= self.length:
            return
        grown = max(length, self.length + 64)
        ids = self._more(self.length - self.prompt_length, grown - self.length)
        self._tokens = np.concatenate([self._tokens, ids])
        self.length += len(ids)
        if self.length < length:
            raise IndexError(f"token {length - 1} of a stream that has {self.length} tokens")

    def learn(self, begin: int, ids: Sequence[int]) -> None:
        """Tokens from ``begin`` on turned out to be ``ids``; whoever read them before read a guess."""
        end = begin + len(ids)
        self.require(end)
        self._tokens[begin:end] = ids
        self._sums = self._sums[:begin]

    def tokens(self, begin: int, end: int) -> NDArray[np.uint32]:
        """Ids at ``[begin, end)``, shape ``[end - begin]``; an empty range needs no token."""
        if begin < end:
            self.require(end)
        return self._tokens[begin:end]

    def sums(self, begin: int, end: int) -> NDArray[np.uint64]:
        """``S`` at ``[begin, end)``, shape ``[end - begin]``; an empty range needs no token."""
        if begin < end:
            self.require(end)
            if len(self._sums) < end:
                self._sum_up()
        return self._sums[begin:end]

    def _sum_up(self) -> None:
        known = len(self._sums)
        more = prefix_sums(self._tokens[known:], known, int(self._sums[-1]) if known else 0)
        self._sums = np.concatenate([self._sums, more]) if known else more

    def common_prefix(self, other: TokenStream) -> int:
        """Number of equal leading tokens (the sums are cumulative, so one bisection finds the first difference)."""
        low, high = 0, min(self.length, other.length)
        own, others = self.sums(0, high), other.sums(0, high)
        while low < high:
            middle = (low + high) // 2
            if own[middle] == others[middle]:
                low = middle + 1
            else:
                high = middle
        return low


def cell_tags(stream: TokenStream, begin: int, end: int, lookahead: int, seed: int) -> NDArray[np.uint64]:
    """Content tags of cells ``[begin, end)`` that depend on ``lookahead`` further tokens; shape ``[end - begin]``."""
    return mix64_array(stream.sums(begin + lookahead, end + lookahead) ^ U64(seed))
