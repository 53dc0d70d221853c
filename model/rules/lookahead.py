"""Rule *lookahead*: what a drafter with D > 0 is fed behind the end of a prompt chunk that is not the last.

Whatever it is fed, a cell that depends on a token which nobody generated yet is not final.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.tokens import TokenStream, prefix_sums, stream_tokens

if TYPE_CHECKING:
    from model.plan import ContextRow

PLACEHOLDER_SEED = 0x504C414345  # ids a worker finds in its input buffer when nobody hands it the prompt's


class Lookahead(enum.Enum):
    """Answers that memories implement."""

    PROMPT = "prompt's next tokens"
    PLACEHOLDER = "placeholder"


def chunk_inputs(tokens: list[int], start: int, end: int, span: int, behind: list[int]) -> list[int]:
    """Drafter input ids of chunk ``[start, end)`` at lookahead ``span``: the chunk shifted, ``behind`` at its end.

    ``behind`` are the ids that stand for positions ``end .. end + span`` (the prompt's, or placeholders). A chunk that
    is shorter than the lookahead is fed the last of them alone.
    """
    return tokens[start + span : end] + behind[max(0, span - (end - start)) :]


def behind_chunk(rule: Lookahead, stream: TokenStream, end: int, span: int, vocabulary: int) -> NDArray[np.uint32]:
    """Ids fed for positions ``end .. end + span`` of a chunk that is not the last; shape ``[span]``."""
    if rule is Lookahead.PROMPT:
        return stream.tokens(end, end + span)
    return stream_tokens(PLACEHOLDER_SEED + end, 0, span, vocabulary)


def chunk_end_sums(
    rule: Lookahead, stream: TokenStream, start: int, end: int, span: int, vocabulary: int
) -> NDArray[np.uint64]:
    """``S`` as the drafter's last ``min(span, end - start)`` cells of the chunk see it; shape that many."""
    ids = behind_chunk(rule, stream, end, span, vocabulary)
    carry = int(stream.sums(end - 1, end)[0])
    sums = prefix_sums(ids, end, carry)
    return sums[max(0, span - (end - start)) :]


def chunk_span(begun: int, row: ContextRow, span: int) -> tuple[int, int]:
    """``begin`` and ``final``: a drafter at lookahead ``span`` stores cells ``[begin, row.end)`` of a chunk, and those
    below ``final`` are final.

    ``begun`` is where the owner's first chunk began. Cell ``i`` is final once token ``i + span`` is there: the
    context's, or the one that is chosen behind its last chunk. If that chunk is shorter than the lookahead, cells of
    chunks before it wait for that token; they are stored once more.
    """
    context = row.end + row.behind
    final = min(row.end, max(begun, context - span + row.last))
    begin = min(row.start, max(begun, context - span)) if row.last else row.start
    return begin, final
