"""A request at the cache layer: how far it is, and the tokens that it consists of."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from model.config import RequestSpec
from model.joint import Twin
from model.request import GENERATION, Request
from model.sequence import SequenceCache
from model.tokens import Segment, TokenStream, segment_tokens, stream_tokens

RUN = 160  # tokens of a stream that are kept


@lru_cache(maxsize=8192)
def _ids(stream: int, first: int, vocabulary: int) -> NDArray[np.uint32]:
    return segment_tokens(Segment(stream, RUN, first), vocabulary)


def stream_of(spec: RequestSpec, vocabulary: int, reach: int) -> TokenStream:
    """The tokens of a request, its output and ``reach`` more behind its prompt: toy streams are made once."""

    def run(segment: Segment) -> NDArray[np.uint32]:
        if segment.literal or segment.length > RUN:
            return segment_tokens(segment, vocabulary)
        return _ids(segment.seed, segment.first, vocabulary)[: segment.length]

    def more(start: int, count: int) -> NDArray[np.uint32]:
        return stream_tokens(spec.output_seed, start, count, vocabulary)

    output = Segment(spec.output_seed, spec.max_new_tokens + reach)
    stream = TokenStream(np.concatenate([run(segment) for segment in (*spec.prompt, output)]), more)
    stream.prompt_length = stream.length - output.length
    return stream


class Entry:
    """A request at the cache layer; ``end`` is where its grown chunk ends, -1 without one."""

    __slots__ = ("before", "claimed", "end", "last", "request", "twin")

    def __init__(self, request: Request, twin: Twin) -> None:
        self.request, self.twin = request, twin
        self.claimed = False
        self.end = -1
        self.last = False
        self.before: list[int] = []  # capacities before the chunk grew them

    @property
    def sequence(self) -> SequenceCache:
        """Its sequence in the target's manager, once it has claimed."""
        return self.twin.target.sequences[self.request.owner]

    @property
    def may_step(self) -> bool:
        """Whether one more verify row may be grown."""
        request, rows = self.request, len(self.request.grown)
        limit = self.twin.config.limits.run_ahead
        return request.state is GENERATION and rows <= limit and request.generated + rows < request.spec.max_new_tokens
