"""Contract of the check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_backend.calls import Cells, CheckCall, Reason, Verdict
from gpu_backend.cells import ONLY_FINAL, CellState
from gpu_backend.contracts.base import Contract, Work, exact, generator, int32, same, shuffled_tables
from gpu_backend.kernels.check_reference import check_reference
from model.geometry import cdiv


@dataclass(frozen=True, slots=True)
class CheckCase:
    """Rows checked on ``[starts[r], ends[r])``; ``faults`` are (reason, row, position) of what was damaged."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    page_size: int = 16
    bases: tuple[int, ...] = ()
    faults: tuple[tuple[Reason, int, int], ...] = ()
    legal: int = ONLY_FINAL
    lags: tuple[int, ...] = ()


def build(case: CheckCase, device: torch.device, seed: int) -> CheckCall:
    """A memory that holds what its tokens say, but for the faults; unread slots hold noise."""
    rows = len(case.ends)
    bases = list(case.bases or (0,) * rows)
    pages = [cdiv(end, case.page_size) for end in case.ends]
    columns = max(base + count for base, count in zip(bases, pages, strict=True)) + 1
    table, total = shuffled_tables(pages, columns, bases, 1, device, seed)
    source = generator(device, seed)
    cells = (total, case.page_size)
    tags = torch.randint(-(1 << 62), 1 << 62, cells, generator=source, device=device)
    states = torch.full(cells, CellState.UNWRITTEN, dtype=torch.int8, device=device)
    generation = torch.randint(0, 9, (total,), generator=source, device=device, dtype=torch.int32)
    lags = case.lags or (0,) * rows
    expected = torch.zeros((rows, columns * case.page_size + max(lags)), dtype=torch.int64, device=device)
    for row, (start, end) in enumerate(zip(case.starts, case.ends, strict=True)):
        position = torch.arange(start, end, device=device)
        page = table[row, bases[row] + position // case.page_size].long()
        states[page, position % case.page_size] = int(CellState.FINAL)
        expected[row, bases[row] * case.page_size + position + lags[row]] = tags[page, position % case.page_size]
    claimed = torch.where(table >= 0, generation[table.clamp(min=0).long()], -1)
    call = CheckCall(
        Cells(tags, states), generation, expected, claimed.contiguous(), table, int32(bases, device),
        int32(case.starts, device), int32(case.ends, device), Verdict.clean(device), case.legal,
        from_origin=not any(bases) and not any(case.starts), lag=int32(lags, device) if case.lags else None,
    )  # fmt: skip
    for reason, row, position in case.faults:
        _damage(call, reason, row, position, bases[row], case.page_size)
    return call


def _damage(call: CheckCall, reason: Reason, row: int, position: int, base: int, page_size: int) -> None:
    """Make one position of one row wrong for one reason."""
    column, offset = base + position // page_size, position % page_size
    page = int(call.table[row, column])
    if reason is Reason.UNBACKED:
        call.table[row, column] = -1
    elif reason is Reason.TENANCY:
        call.generation[page] += 1
    elif reason is Reason.STATE:
        call.cells.states[page, offset] = int(CellState.PROVISIONAL)
    else:
        call.cells.tags[page, offset] ^= 1


def launches(case: CheckCase, call: CheckCall) -> list[Any]:
    """The one launch."""
    from gpu_backend.kernels.check import check_launch

    longest = max(end - start for start, end in zip(case.starts, case.ends, strict=True))
    return [check_launch(call, longest)]


def outputs(call: CheckCall) -> dict[str, torch.Tensor]:
    """The verdict."""
    return {"counts": call.verdict.counts, "first": call.verdict.first}


def work(case: CheckCase) -> Work:
    """Tag, expected tag and state of every position; two generations and a table entry of every page."""
    positions = sum(end - start for start, end in zip(case.starts, case.ends, strict=True))
    return Work(read_bytes=17 * positions + 12 * positions // case.page_size)


CHECK = Contract(
    "check",
    {"starts": "first position checked", "ends": "one past the last", "faults": "what was damaged"},
    {
        "clean": CheckCase((0, 0), (20, 37)),
        "clean behind a base": CheckCase((5, 20), (20, 37), bases=(3, 1)),
        "one flipped bit": CheckCase((0, 3), (20, 37), faults=((Reason.TAG, 1, 19),)),
        "unbacked block": CheckCase((0, 0), (40, 37), faults=((Reason.UNBACKED, 0, 17),)),
        "freed page": CheckCase((0, 0), (40, 37), faults=((Reason.TENANCY, 1, 33),)),
        "provisional cell": CheckCase((0, 0), (40, 37), faults=((Reason.STATE, 0, 39),)),
        "every fault at once": CheckCase(
            (2, 0),
            (70, 37),
            faults=((Reason.TAG, 0, 2), (Reason.STATE, 0, 18), (Reason.TENANCY, 0, 33), (Reason.UNBACKED, 1, 5)),
        ),
        "nothing to read": CheckCase((0, 4), (8, 4)),
        "slots that trail": CheckCase((0, 20), (20, 37), bases=(3, 1), lags=(5, 0)),
        "slots that trail, one flipped bit": CheckCase((0, 3), (20, 37), lags=(0, 9), faults=((Reason.TAG, 1, 19),)),
    },
    build,
    launches,
    check_reference,
    lambda found, wanted: same(outputs(found), outputs(wanted)),
    exact,
    work,
)
