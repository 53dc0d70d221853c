"""Hypothesis over the shapes of paged attention: widths, windows, bases, starts, page sizes, splits, holes."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_backend.calls import ConvertCall
from gpu_backend.contracts.attention import ATTENTION, AttentionCase, build, launches
from gpu_backend.contracts.base import int32, relative_error
from gpu_backend.kernels.attention_reference import attention_reference
from gpu_backend.kernels.launch import INTERPRETED
from gpu_backend.kernels.table import convert_launches

EXAMPLES = settings(
    max_examples=25 if INTERPRETED else 40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def cases(draw: st.DrawFn) -> AttentionCase:
    """Small cases: one to three rows, up to 120 tokens each."""
    rows = draw(st.integers(1, 3))

    def of_row(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rows, max_size=rows)))

    widths, past = of_row(1, 9), of_row(0, 110)
    kv_heads = draw(st.sampled_from((1, 2)))
    starts = tuple(draw(st.integers(0, max(0, p))) for p in past) if draw(st.booleans()) else ()
    return AttentionCase(
        widths, past, page_size=draw(st.sampled_from((16, 32, 64))), heads=kv_heads * draw(st.sampled_from((1, 2, 8))),
        kv_heads=kv_heads, dim=draw(st.sampled_from((16, 32))), causal=draw(st.booleans()),
        window_left=draw(st.sampled_from((-1, 0, 7, 40))), bases=of_row(0, 4) if draw(st.booleans()) else (),
        starts=starts, parked=(0,) if draw(st.integers(0, 5)) == 0 else (),
        released=draw(st.booleans()), splits=draw(st.sampled_from((None, 1, 2, 5))), exact=draw(st.booleans()),
    )  # fmt: skip


@EXAMPLES
@given(case=cases(), seed=st.integers(0, 1000))
def test_any_shape_agrees_with_float64_and_reads_no_slot_that_is_not_its_own(
    device: torch.device, case: AttentionCase, seed: int
) -> None:
    case = replace(case, splits=None) if case.exact else case
    found, wanted = build(case, device, seed), build(case, device, seed)
    attention_reference(wanted)
    for launch in launches(case, found):
        launch()
    assert not found.out.isnan().any(), "a NaN comes from a slot that the row must not read, or was not written"
    assert ATTENTION.error(found, wanted) <= ATTENTION.tolerance(case)


@EXAMPLES
@given(case=cases(), seed=st.integers(0, 1000))
def test_the_base_inside_the_kernel_equals_a_rebased_table(
    device: torch.device, case: AttentionCase, seed: int
) -> None:
    case = replace(case, exact=False)
    inside, outside = build(case, device, seed), build(case, device, seed)
    rebased = torch.empty_like(outside.table)
    extent = torch.empty_like(outside.base)
    for launch in convert_launches(ConvertCall(outside.table, outside.base, rebased, extent)):
        launch()
    outside.table, outside.base = rebased, int32([0] * len(case.widths), device)
    for call in (inside, outside):
        for launch in launches(case, call):
            launch()
    aligned = all(base * case.page_size % 32 == 0 for base in case.bases)
    if aligned and case.splits is not None:
        assert torch.equal(inside.out, outside.out)
    assert relative_error(inside.out, outside.out) <= 4e-6


@EXAMPLES
@given(data=st.data())
def test_a_poisoned_slot_in_reach_shows_in_the_output(device: torch.device, data: st.DataObject) -> None:
    splits = data.draw(st.sampled_from((1, 3)))
    kv_heads = data.draw(st.sampled_from((1, 2)))
    case = AttentionCase((3, 2), (40, 21), heads=2 * kv_heads, kv_heads=kv_heads, bases=(1, 0), splits=splits)
    head = data.draw(st.integers(0, kv_heads - 1))
    row = data.draw(st.integers(0, 1))
    position = data.draw(st.integers(0, case.past[row]))
    call = build(case, device, 1)
    page = int(call.table[row, case.bases[row] + position // case.page_size])
    call.v_cache[page, position % case.page_size, head] = float("nan")
    for launch in launches(case, call):
        launch()
    begin, end = int(call.cu_query[row]), int(call.cu_query[row + 1])
    assert call.out[begin:end, 2 * head : 2 * head + 2].isnan().any()
    call.out[begin:end, 2 * head : 2 * head + 2] = 0
    assert not call.out.isnan().any(), "no other row, and no other head"
