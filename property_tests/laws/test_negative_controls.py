"""Every law can fail: real state is spoiled in a running world and the right law says who, in which pool, where.

The laws recompute from tables and memory, so no counter that the engine keeps can hide what was done to it.
"""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from model.config import RequestSpec
from model.invariants import INVARIANTS, Violation
from model.ops import Dispatch, Settle, Submit, Suspend, World
from model.reader import MASKED, PROVISIONAL, UNWRITTEN
from model.request import Request
from model.table import TableRow
from model.tokens import Segment
from property_tests.laws.healthy import (
    FIRST,
    PAGE,
    SECOND,
    finish,
    found,
    healthy,
    pool_of,
    request_of,
    sequence_of,
    step,
    table_of,
)

BOTH = pytest.mark.parametrize("build", ["paired-22", "unified"])


def first(world: World) -> Violation:
    """The only kind of first violation that counts: nothing else came before it."""
    assert world.violations, "nobody noticed"
    return world.violations[0]


def where(violation: Violation) -> tuple[str, int, str, int, int]:
    return violation.code, violation.request, violation.pool, violation.page, violation.position


def shadow_cells(world: World, pool: str) -> np.ndarray:
    """Cells of a pool in the tagged memory, ``[slots, page]``."""
    assert world.watch is not None
    return world.watch.shadow.cells[pool_of(world, pool).index]


@BOTH
def test_a_world_that_is_left_alone_stays_silent(build: str) -> None:
    world = healthy(build)
    finish(world)
    assert world.violations == []
    never = {"ROLLBACK", "FLIGHT", "RANK"}  # no step was skipped or failed, no copy takes time, one worker
    assert set(world.docket.evaluations) == set(INVARIANTS) - never


# -- KEY and MAP: what the table leads to ------------------------------------------------------------------------------


@BOTH
def test_two_swapped_table_entries_lead_to_content_of_other_tokens(build: str) -> None:
    world = healthy(build)
    table = table_of(world)
    table.pages[0], table.pages[1] = table.pages[1], table.pages[0]
    table.row = None
    step(world)
    assert where(first(world)) == ("KEY", FIRST, "target", table.pages[0], 0)


def test_a_device_row_that_was_not_told_of_a_swap_is_not_the_sequences() -> None:
    world = healthy()
    assert world.watch is not None
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    table = table_of(world)
    table.pages[0], table.pages[1] = table.pages[1], table.pages[0]
    world.watch.sequences.row_tables(plan.generation, plan.iteration)
    assert where(first(world)) == ("MAP", FIRST, "target", -1, -1)


def test_a_row_that_names_a_page_in_the_host_tier_is_noticed() -> None:
    world = healthy()
    plan, pool, table = world.apply(Dispatch()).plan, pool_of(world, "target"), table_of(world)
    assert plan is not None and world.watch is not None
    pool.host_pages, table.row = 1, None
    pool.slot[table.pages[0]] = pool.device_pages
    told = world.engine.twin.rows(request_of(world))
    world.watch.sequences.row_tables([plan.generation[0]._replace(tables=told)], plan.iteration)
    assert first(world).found == f"slot {pool.device_pages} of the host"


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
def test_a_chunk_whose_row_names_its_pages_in_another_order_is_noticed(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = healthy(check=check)
    rows, third = world.engine.twin.rows, 2

    def turned(request: Request) -> tuple[TableRow, ...]:
        told = rows(request)
        if request.request_id != third:
            return told
        return tuple(TableRow(row.sinks, row.base, row.pages[4:] + row.pages[:4]) for row in told)

    monkeypatch.setattr(world.engine.twin, "rows", turned)
    assert world.apply(Submit(RequestSpec(third, (Segment(300, 10),), 4, 903))).applied
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    assert [row.request_id for row in plan.context] == [third]
    assert where(first(world)) == ("MAP", third, "target", -1, -1)


@pytest.mark.parametrize("pool", ["target", "draft"])
@BOTH
def test_one_changed_cell_is_named_by_page_and_position(build: str, pool: str) -> None:
    world = healthy(build)
    page = table_of(world, SECOND, pool).page(4)
    shadow_cells(world, pool)[page, 1] ^= np.uint64(1)
    step(world)
    assert where(first(world)) == ("KEY", SECOND, pool, page, 4 * PAGE + 1)


@pytest.mark.parametrize(
    ("state", "name"), [(UNWRITTEN, "unwritten"), (PROVISIONAL, "provisional"), (MASKED, "masked")]
)
def test_a_cell_without_content_is_read_before_it_was_written(state: int, name: str) -> None:
    world = healthy()
    page = table_of(world, FIRST, "draft").page(4)
    shadow_cells(world, "draft")[page, 2] = state
    step(world)
    assert where(first(world)) == ("INIT", FIRST, "draft", page, 4 * PAGE + 2)
    assert first(world).found == name


def test_a_cell_that_changed_with_its_pages_version_is_found_incrementally() -> None:
    world = healthy(check="incremental")
    page = table_of(world).page(1)
    shadow_cells(world, "target")[page, 3] ^= np.uint64(1)
    step(world)
    assert world.violations == []  # the page was verified and its version has not moved: it is trusted
    assert world.watch is not None
    world.watch.shadow.versions[pool_of(world).index][page] += 1
    step(world)
    code, request, *place = where(first(world))  # both readers of the shared page see it; either may come first
    assert (code, place) == ("KEY", ["target", page, PAGE + 3])
    assert request in (0, 1)


# -- OWN and PUB: whose page it is -------------------------------------------------------------------------------------


@BOTH
def test_a_page_that_was_freed_while_a_table_names_it_is_found(build: str) -> None:
    world = healthy(build)
    page = table_of(world).pages[-1]
    pool_of(world).release_locked(array("i", [page]))
    step(world)
    assert where(first(world)) == ("REF", FIRST, "target", page, -1)
    assert first(world).expected.endswith("by the tables")


def test_a_page_that_two_rows_write_belongs_to_one_of_them() -> None:
    world = healthy(check="incremental")
    mine, other = table_of(world, FIRST), table_of(world, SECOND)
    last = (request_of(world).settled_position()) // PAGE
    other.pages[last] = mine.pages[last]
    other.row = None
    step(world)
    assert where(found(world, "OWN"))[1:4] == (SECOND, "target", mine.pages[last])


def test_a_write_over_published_cells_is_seen() -> None:
    world = healthy()
    assert world.watch is not None
    block = request_of(world).settled_position() // PAGE
    page = table_of(world).page(block)
    world.watch.shadow.sealed[pool_of(world).index][page] = PAGE
    step(world)
    position = request_of(world).settled_position() - 1
    assert where(first(world)) == ("PUB", FIRST, "target", page, position)


def test_a_published_cell_that_nobody_wrote_is_seen_at_its_publication() -> None:
    world = healthy()
    assert world.watch is not None
    sequence = sequence_of(world)
    page = table_of(world).page(4)
    shadow_cells(world, "target")[page, 1] = UNWRITTEN
    column = world.engine.twin.columns[0]
    one = np.array([page], dtype=np.int32)
    world.watch.shadow.laws.published(world.watch.shadow, column, one, np.array([2], np.int32), sequence.owner, 4)  # pyright: ignore[reportOptionalMemberAccess]
    assert where(first(world)) == ("PUB", FIRST, "target", page, 4 * PAGE + 1)


# -- WINDOW, SHAPE, ADMIT: what is retained and backed -----------------------------------------------------------------


@BOTH
def test_a_window_page_that_was_released_is_missed_by_the_next_read(build: str) -> None:
    world = healthy(build)
    table = table_of(world, FIRST, "draft")
    window_starts = request_of(world).settled_position() + 1 - 8
    gone = window_starts // PAGE + 1 - table.base
    pool_of(world, "draft").release_locked(table.pages[:gone])
    del table.pages[:gone]
    table.base += gone
    table.row = None
    step(world)
    assert where(found(world, "WINDOW"))[:3] == ("WINDOW", FIRST, "draft")
    assert found(world, "WINDOW").position == window_starts // PAGE * PAGE


@pytest.mark.parametrize("pool", ["target", "draft"])
def test_more_is_committed_than_computed(pool: str) -> None:
    world = healthy()
    sequence = sequence_of(world, SECOND, pool)
    sequence.committed = sequence.history + PAGE
    step(world)
    assert where(first(world))[:3] == ("SHAPE", SECOND, pool)


def test_a_row_that_is_shorter_than_its_capacity_is_out_of_shape() -> None:
    world = healthy()
    world.apply(Dispatch())
    pool_of(world).release_locked(array("i", [table_of(world).pages.pop()]))
    world.apply(Settle((1, 1)))
    assert where(first(world))[:3] == ("SHAPE", FIRST, "target")


def test_a_plan_whose_row_is_not_backed_was_not_admitted() -> None:
    world = healthy()
    assert world.watch is not None
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    sequence_of(world, FIRST, "draft").capacity = request_of(world).settled_position() - 1
    world.watch.steps.admitted(plan)
    assert where(first(world))[:3] == ("ADMIT", FIRST, "draft")


def test_a_refusal_is_not_justified_while_every_pool_has_pages() -> None:
    world = healthy()
    assert world.watch is not None
    world.watch.steps.justified(request_of(world), end=24, last=True)
    assert where(first(world))[:2] == ("ADMIT", FIRST)


# -- REF: who holds what ----------------------------------------------------------------------------------------------


@BOTH
def test_a_lock_that_nobody_holds_is_found(build: str) -> None:
    world = healthy(build)
    page = table_of(world).pages[2]
    pool_of(world).locks[page] += 1
    step(world)
    assert where(first(world)) == ("REF", FIRST, "target", page, -1)


def test_a_pool_that_counts_wrong_is_found() -> None:
    world = healthy()
    pool_of(world, "draft").droppable += 1
    step(world)
    assert where(first(world)) == ("REF", -1, "draft", -1, -1)


def test_a_page_that_a_sequence_never_gave_back_is_found_after_the_drain() -> None:
    world = healthy()
    page = pool_of(world).grant(1)[0]
    finish(world)
    assert where(first(world))[:4] == ("REF", SECOND, "target", page)  # who had it last


def test_a_suspension_that_forgets_one_pool_is_found_in_both_modes() -> None:
    for check in ("exhaustive", "incremental"):
        world = healthy(check=check)
        assert world.apply(Suspend(SECOND)).applied
        assert sequence_of(world, SECOND, "draft").resume()
        world.apply(Dispatch(skip=True))
        assert where(first(world))[:3] == ("REF", SECOND, "draft")


# -- FRONT and STATE: slots -------------------------------------------------------------------------------------------


def test_a_slot_that_moved_stands_at_another_frontier() -> None:
    world = healthy()
    assert world.watch is not None
    shadow, request = world.watch.shadow, request_of(world)
    slot = world.engine.slots.slot_of[request.owner]
    shadow.length[slot] += 1
    step(world)
    violation = found(world, "FRONT")
    assert where(violation)[1:3] == (FIRST, "target")
    assert (violation.expected, violation.found) == (
        f"frontier {request.settled_position()}",
        f"frontier {request.settled_position() + 1}",
    )


def test_a_drafter_slot_that_trails_by_more_than_a_page_is_another_frontier() -> None:
    world = healthy()
    assert world.watch is not None
    shadow, request = world.watch.shadow, request_of(world, SECOND)
    shadow.draft_length[world.engine.slots.slot_of[request.owner]] -= PAGE
    step(world)
    violation = found(world, "FRONT")
    assert where(violation)[1:3] == (SECOND, "draft")
    assert violation.position == request.settled_position() - PAGE


def test_a_claim_whose_pools_differ_is_no_claim() -> None:
    world = healthy()
    assert world.watch is not None
    world.apply(Submit(RequestSpec(2, (Segment(1, 12), Segment(102, 6)), 4, 902)))
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    row = plan.context[0]
    assert (row.request_id, row.start) == (2, 12)
    sequence_of(world, 2).claimed -= PAGE
    world.watch.sequences.claimed(row, plan.iteration)
    assert where(first(world)) == ("FRONT", 2, "target", -1, 8)


def test_a_row_slot_of_another_owner_is_state_that_survived() -> None:
    world = healthy()
    assert world.watch is not None
    owners = [request_of(world, request_id).owner for request_id in (FIRST, SECOND)]
    slot = world.engine.slots.slot_of[owners[0]]
    world.watch.shadow.slots[slot] = owners[1]
    step(world)
    assert where(first(world))[:2] == ("STATE", FIRST)
    assert (first(world).expected, first(world).found) == (f"owner {owners[0]}", f"owner {owners[1]}")


# -- ROLLBACK, PROGRESS, METRIC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["target", "draft"])
def test_a_step_that_did_not_run_leaves_no_growth(pool: str) -> None:
    world = healthy()
    assert world.watch is not None
    world.watch.steps.remember()
    sequence_of(world, SECOND, pool).capacity += 4
    world.watch.steps.undone()
    assert where(first(world))[:2] == ("ROLLBACK", SECOND)


def test_a_suspended_request_still_owes_what_a_skipped_step_grew() -> None:
    world = healthy()
    assert world.watch is not None
    world.apply(Dispatch())
    world.apply(Suspend(FIRST))
    world.apply(Settle((1, 1)))
    assert request_of(world).owed != [0, 0]
    world.apply(Dispatch(skip=True))
    assert world.violations == []  # its resume applied the step that settled meanwhile, and no more than that
    world.watch.steps.remember()
    sequence_of(world).history += 1
    world.watch.steps.undone()
    assert where(first(world))[:2] == ("ROLLBACK", FIRST)


def test_work_that_is_left_at_the_end_is_no_progress() -> None:
    world = healthy()
    world.drain()
    assert where(first(world))[:2] == ("PROGRESS", FIRST)
    assert first(world).found == "2 requests wait"


def test_passes_that_compute_nothing_new_are_no_progress_however_busy_they_are() -> None:
    world = healthy()
    assert world.watch is not None
    contexts = sum(request.context_length for request in world.engine.live.values())
    patience = world.config.limits.stall_passes + contexts
    assert all(world.watch.steps.passed(moved=True, new=False) for _ in range(patience - 1))
    step(world)  # an output is something new
    assert all(world.watch.steps.passed(moved=True, new=False) for _ in range(patience - 1))
    assert not world.watch.steps.passed(moved=True, new=False)
    assert first(world).message == f"{patience} passes computed nothing new"


@pytest.mark.parametrize("counter", ["prefilled_tokens", "cached_tokens", "output_tokens"])
def test_a_record_that_counts_wrong_differs_from_the_books(counter: str) -> None:
    world = healthy()
    record = request_of(world, SECOND).record
    setattr(record, counter, getattr(record, counter) + 1)
    finish(world)
    assert where(first(world))[:2] == ("METRIC", SECOND)


def test_totals_that_differ_from_the_records_are_found_at_the_drain() -> None:
    world = healthy()
    world.engine.totals.prefilled_tokens += 1
    finish(world)
    assert where(first(world))[:2] == ("METRIC", -1)
