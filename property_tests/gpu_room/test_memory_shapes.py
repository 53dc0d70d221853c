"""Hypothesis over the kernels that move or compare bits: page sizes, bases, holes, padding, prefixes, damage."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_backend.calls import Reason, SlotOp
from gpu_backend.contracts import CONTRACTS
from gpu_backend.contracts.check import CheckCase
from gpu_backend.contracts.page_copy import CopyCase
from gpu_backend.contracts.slots import SlotCase
from gpu_backend.contracts.store import StoreCase
from gpu_backend.contracts.table import TableCase
from gpu_backend.kernels.launch import INTERPRETED
from model.geometry import cdiv
from model.rules.device import Extent, Unbacked

EXAMPLES = settings(
    max_examples=15 if INTERPRETED else 60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PAGES = st.sampled_from((16, 32, 128))
SEEDS = st.integers(0, 1000)


def agree(name: str, case: Any, device: torch.device, seed: int) -> None:
    """Kernel and reference leave the same bits everywhere."""
    contract = CONTRACTS[name]
    found, wanted = contract.build(case, device, seed), contract.build(case, device, seed)
    contract.reference(wanted)
    for launch in contract.launches(case, found):
        launch()
    assert contract.error(found, wanted) == 0


def of_rows(draw: st.DrawFn, rows: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(low, high), min_size=rows, max_size=rows)))


@st.composite
def stores(draw: st.DrawFn) -> StoreCase:
    rows, page = draw(st.integers(1, 3)), draw(PAGES)
    begins, counts = of_rows(draw, rows, 0, 70), of_rows(draw, rows, 1, 40)
    blocks = [(row, block) for row in range(rows) for block in range(cdiv(begins[row] + counts[row], page))]
    return StoreCase(
        begins, counts, page, kv_heads=draw(st.sampled_from((1, 3))), dim=16,
        bases=of_rows(draw, rows, 0, 3) if draw(st.booleans()) else (),
        holes=tuple(draw(st.lists(st.sampled_from(blocks), max_size=2, unique=True))),
        padding=draw(st.integers(0, 3)), tagged=draw(st.booleans()),
        dtype=draw(st.sampled_from((torch.float32, torch.bfloat16))),
    )  # fmt: skip


@st.composite
def checks(draw: st.DrawFn) -> CheckCase:
    rows, page = draw(st.integers(1, 3)), draw(PAGES)
    starts, counts = of_rows(draw, rows, 0, 50), of_rows(draw, rows, 0, 60)
    ends = tuple(start + count for start, count in zip(starts, counts, strict=True))
    bases = of_rows(draw, rows, 0, 3) if draw(st.booleans()) else ()
    read = [(row, position) for row in range(rows) for position in range(starts[row], ends[row])]
    damaged = draw(st.lists(st.sampled_from(read), max_size=2, unique=True)) if read else []
    if len({(row, position // page) for row, position in damaged}) < len(damaged):
        damaged = damaged[:1]  # a page without a backing cannot be damaged further
    faults = tuple((draw(st.sampled_from(Reason)), row, position) for row, position in damaged)
    return CheckCase(starts, ends, page, bases, faults)


@st.composite
def tables(draw: st.DrawFn) -> TableCase:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 20))
    return TableCase(
        of_rows(draw, rows, 0, 9), of_rows(draw, rows, 0, 12), columns, of_rows(draw, rows, 0, columns - 1),
        draw(st.integers(1, 5)), draw(st.sampled_from(Extent)), draw(st.sampled_from(Unbacked)),
    )  # fmt: skip


@st.composite
def updates(draw: st.DrawFn) -> SlotCase:
    chosen = draw(st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True))
    return SlotCase(
        tuple((draw(st.sampled_from(SlotOp)), slot, draw(st.integers(0, 600)), slot) for slot in chosen),
        page_size=draw(PAGES),
    )


@EXAMPLES
@given(case=stores(), seed=SEEDS)
def test_any_store_writes_what_is_backed_and_nothing_else(device: torch.device, case: StoreCase, seed: int) -> None:
    agree("store", case, device, seed)


@EXAMPLES
@given(page=PAGES, data=st.data(), seed=SEEDS)
def test_any_prefix_is_copied_with_its_tags_and_no_more(
    device: torch.device, page: int, data: st.DataObject, seed: int
) -> None:
    tokens = tuple(data.draw(st.lists(st.integers(0, page), min_size=1, max_size=4)))
    agree(
        "page copy", CopyCase(tokens, page_size=page, kv_heads=data.draw(st.sampled_from((1, 3))), dim=16), device, seed
    )


@EXAMPLES
@given(case=checks(), seed=SEEDS)
def test_any_damage_is_counted_and_its_first_position_named(device: torch.device, case: CheckCase, seed: int) -> None:
    agree("check", case, device, seed)


@EXAMPLES
@given(case=tables(), seed=SEEDS)
def test_any_table_is_rebased_and_converted(device: torch.device, case: TableCase, seed: int) -> None:
    agree("table", case, device, seed)


@EXAMPLES
@given(case=updates(), seed=SEEDS)
def test_any_slot_update_is_what_the_model_says(device: torch.device, case: SlotCase, seed: int) -> None:
    agree("slots", case, device, seed)
