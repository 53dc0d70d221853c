"""The drafter's cells of a prompt chunk, as the tagged memory has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from model.plan import ContextRow
from model.reader import PROVISIONAL, Reader
from model.rules.lookahead import Lookahead, chunk_end_sums, chunk_span
from model.tokens import mix64_array

if TYPE_CHECKING:
    from model.joint import Column


def chunk_cells(
    row: ContextRow, reader: Reader, column: Column, rule: Lookahead, vocabulary: int
) -> tuple[int, NDArray[np.uint64]]:
    """Cells ``[begin, row.end)`` that the drafter stores of a chunk, and ``begin``; the reader learns which are final.

    Behind a chunk that is not the last stands what ``rule`` feeds. A cell that depends on a token which nobody
    generated yet is provisional.
    """
    span = column.lifecycle.lookahead
    if reader.begun < 0:
        reader.begun = row.start
    begin, final = chunk_span(reader.begun, row, span)
    reader.draft_final = final
    cells = reader.tags[column.index][begin : row.end]
    fed = span > 0 and not row.last
    if not fed and final == row.end:
        return begin, cells
    cells = cells.copy()
    if fed:
        sums = chunk_end_sums(rule, reader.stream, row.start, row.end, span, vocabulary)
        cells[len(cells) - len(sums) :] = mix64_array(sums ^ np.uint64(reader.seeds[column.index]))
    cells[max(0, final - begin) :] = PROVISIONAL
    return begin, cells
