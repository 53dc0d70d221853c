"""Two pools that grow together: chunks, verify rows, what is undone when one cannot follow, and what is owed."""

from __future__ import annotations

import pytest

from model.config import Drafter
from model.eviction import PageState
from model.joint import Twin
from model.pages import PagePool
from model.request import Request
from model.sequence import Status
from property_tests.model_core.helpers import admitted, arrived, config, prefilled, twin_of

PROMPT = list(range(10, 42))
BUILDS = ["paired-22", "unified", "target-only"]


def leave(pool: PagePool, pages: int) -> None:
    """Somebody else takes all but ``pages`` of what can be had."""
    pool.evict_down_to(0)
    pool.grant(pool.free_count() - pages)


def lengths(twin: Twin, request: Request) -> list[tuple[int, int]]:
    return [(sequence.history, sequence.capacity) for sequence in twin.sequences(request)]


def counts(twin: Twin) -> list[tuple[int, int]]:
    return [(pool.free_count(), pool.used()) for pool in twin.pools.values()]


def statuses(twin: Twin, request: Request) -> set[Status]:
    return {sequence.status for sequence in twin.sequences(request)}


# -- chunks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
def test_a_chunk_is_backed_in_every_pool_and_the_last_one_up_to_the_drafts(build: str) -> None:
    twin = twin_of(config(extra_tokens=5), build)
    request = admitted(twin, 1, PROMPT)
    assert twin.grow_context(request, 16, last=False)
    assert lengths(twin, request) == [(0, 21)] * len(twin.managers)
    assert twin.grow_context(request, 32, last=True)
    assert lengths(twin, request) == [(0, 40)] * len(twin.managers)


def test_a_drafter_pool_one_page_short_of_a_chunk_undoes_the_targets_growth() -> None:
    twin = twin_of(config(), "paired-22")
    request = admitted(twin, 1, PROMPT)
    assert twin.grow_context(request, 16, last=False)
    twin.advance(request, 16, last=False)
    request.cursor = 16
    leave(twin.pools["draft"], 3)
    before, pages = lengths(twin, request), counts(twin)
    assert not twin.grow_context(request, 32, last=False)
    assert lengths(twin, request) == before
    assert counts(twin) == pages
    assert statuses(twin, request) == {Status.SUSPENDED}
    assert twin.draft is not None
    assert twin.draft.short == (twin.pools["draft"], 1)
    assert twin.grow_context(request, 28, last=False)
    assert statuses(twin, request) == {Status.ACTIVE}


def test_a_target_pool_that_is_short_leaves_the_drafters_alone() -> None:
    twin = twin_of(config(), "paired-22")
    request = admitted(twin, 1, PROMPT)
    leave(twin.pools["target"], 2)
    assert not twin.grow_context(request, 16, last=False)
    assert twin.pools["draft"].granted == 0
    assert lengths(twin, request) == [(0, 0), (0, 0)]


def test_one_manager_grows_both_groups_or_neither() -> None:
    twin = twin_of(config(), "unified")
    request = admitted(twin, 1, PROMPT)
    leave(twin.pools["draft"], 3)
    assert not twin.grow_context(request, 16, last=False)
    assert twin.pools["target"].granted == 0
    assert twin.grow_context(request, 12, last=False)


def test_a_pool_that_is_too_full_to_resume_keeps_the_other_one_unlocked() -> None:
    twin = twin_of(config(draft_pages=8, max_util_for_resume=0.5), "paired-22")
    prefilled(twin, 1, PROMPT[:12])
    request = admitted(twin, 2, [*PROMPT[:12], 1])
    twin.pools["draft"].grant(5)
    assert not twin.resume(request)
    assert statuses(twin, request) == {Status.SUSPENDED}
    target = twin.pools["target"]
    assert {target.state[page] for page in twin.sequences(request)[0].tables[0].pages} == {PageState.HELD}


def test_an_unpaired_mirror_behind_a_hit_backs_only_its_window_and_the_chunk() -> None:
    """The chunk's start is history to it; without that hint it would back everything below the hit."""
    twin = twin_of(config(), "target-21")
    prefilled(twin, 1, PROMPT)
    request = admitted(twin, 2, [*PROMPT, 1, 2, 3, 4])
    assert request.cursor == 32
    assert twin.grow_context(request, 36, last=True)
    mirror = twin.sequences(request)[1]
    assert (mirror.history, mirror.capacity, mirror.tables[0].base, mirror.tables[0].count()) == (32, 39, 6, 4)


def test_the_growth_of_a_chunk_that_did_not_run_is_undone_in_both_pools() -> None:
    twin = twin_of(config(), "paired-22")
    request = admitted(twin, 1, PROMPT)
    assert twin.grow_context(request, 16, last=False)
    twin.advance(request, 16, last=False)
    before, pages = [sequence.capacity for sequence in twin.sequences(request)], counts(twin)
    assert twin.grow_context(request, 32, last=True)
    twin.revert_context(request, before)
    assert [sequence.capacity for sequence in twin.sequences(request)] == before
    assert counts(twin) == pages


# -- verify rows ------------------------------------------------------------------------------------------------------


def generating(twin: Twin, owner: int = 1, length: int = 17) -> Request:
    """A request past its prefill: one token is sampled and not yet computed, K = 3 drafts are backed."""
    return prefilled(twin, owner, PROMPT[:length], keep=True)


@pytest.mark.parametrize("build", BUILDS)
def test_a_verify_row_backs_its_width_in_every_pool(build: str) -> None:
    twin = twin_of(config(), build)
    request = generating(twin)
    for row in (1, 2):
        assert twin.grow_generation(request)
        assert {capacity for _, capacity in lengths(twin, request)} == {20 + 4 * row}
    assert list(request.grown) == [(4,) * len(twin.managers)] * 2


@pytest.mark.parametrize(("build", "short"), [("paired-22", "draft"), ("paired-22", "target"), ("unified", "draft")])
def test_a_pool_one_page_short_of_a_verify_row_leaves_both_as_they_were(build: str, short: str) -> None:
    twin = twin_of(config(), build)
    request = generating(twin)
    leave(twin.pools[short], 0)
    before, pages = lengths(twin, request), counts(twin)
    assert not twin.grow_generation(request)
    assert lengths(twin, request) == before
    assert counts(twin) == pages
    assert list(request.grown) == []
    assert statuses(twin, request) == {Status.ACTIVE}  # whether it steps aside is for the scheduler to say


@pytest.mark.parametrize("committed", [1, 2, 4])
def test_a_settled_row_keeps_what_it_committed_and_gives_the_rest_back(committed: int) -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    assert twin.grow_generation(request)
    request.generated += committed
    twin.settle_generation(request, committed)
    assert lengths(twin, request) == [(17 + committed, 20 + committed)] * 2
    assert list(request.grown) == []


def test_rows_in_flight_are_settled_from_the_oldest_on() -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    assert twin.grow_generation(request)
    assert twin.grow_generation(request)
    request.generated += 3
    twin.settle_generation(request, 3)
    assert lengths(twin, request) == [(20, 27)] * 2
    assert list(request.grown) == [(4, 4)]


def test_a_row_that_did_not_run_is_undone_by_what_it_recorded() -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    before, pages = lengths(twin, request), counts(twin)
    assert twin.grow_generation(request)
    twin.revert_generation(request)
    assert (lengths(twin, request), counts(twin)) == (before, pages)
    with pytest.raises(IndexError):
        twin.revert_generation(request)  # nothing is recorded, so there is nothing to undo


def test_the_window_of_the_drafter_moves_with_the_settled_rows() -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    mirror = twin.sequences(request)[1]
    for _ in range(12):
        assert twin.grow_generation(request)
        request.generated += 2
        twin.settle_generation(request, 2)
        begin, end = mirror.manager.lifecycles[0].stale_range(mirror.history, 4)
        assert mirror.tables[0].base == max(begin, end)
    assert mirror.history == 41
    assert twin.pools["draft"].used() == mirror.tables[0].count() < 8


# -- absent while a step settles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
def test_what_settles_while_a_request_is_suspended_is_owed_and_paid_at_its_next_growth(build: str) -> None:
    twin = twin_of(config(), build)
    request = generating(twin)
    assert twin.grow_generation(request)
    twin.suspend_all(request)
    request.generated += 2
    twin.settle_generation(request, 2)
    assert request.owed[: len(twin.managers)] == [2] * len(twin.managers)
    assert {capacity for _, capacity in lengths(twin, request)} == {24}
    assert twin.grow_generation(request)
    assert {capacity for _, capacity in lengths(twin, request)} == {26}  # 20 backed, 2 committed, 4 to verify
    assert {history for history, _ in lengths(twin, request)} == {19}
    assert request.owed == [0] * len(twin.managers)


def test_a_growth_that_is_undone_while_its_request_is_suspended_is_owed_too() -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    assert twin.grow_generation(request)
    twin.suspend_all(request)
    twin.revert_generation(request)
    assert request.owed == [4, 4]
    assert twin.grow_generation(request)
    assert lengths(twin, request) == [(17, 24)] * 2


# -- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
def test_a_request_that_leaves_leaves_every_pool(build: str) -> None:
    twin = twin_of(config(), build)
    request = generating(twin)
    twin.suspend_all(request)
    twin.free(request)
    assert [pool.used() for pool in twin.pools.values()] == [0, 0]
    assert twin.sequences(request) == []
    assert twin.pools["target"].droppable == 5


def test_table_rows_are_the_same_objects_until_a_page_comes_or_goes() -> None:
    twin = twin_of(config(), "paired-22")
    request = generating(twin)
    rows = twin.rows(request)
    assert [row.pages for row in rows] == [sequence.tables[0].pages.tobytes() for sequence in twin.sequences(request)]
    assert twin.rows(request) is rows
    assert twin.grow_generation(request)
    again = twin.rows(request)
    assert again is not rows
    assert [len(row.view) for row in again] == [6, 5]
    assert twin.rows(request) is again


def test_a_drafter_without_a_pool_has_one_manager_and_claims_what_the_target_holds() -> None:
    twin = twin_of(config(drafter=Drafter("ngram", 3)), "paired-22")
    prefilled(twin, 1, PROMPT)
    request = admitted(twin, 2, [*PROMPT[:30], 1])
    assert request.claim.tokens == 30
    assert list(twin.pools) == ["target"]
    assert twin.grow_context(request, 31, last=True)
    assert not twin.sequences(arrived(twin, 3, PROMPT))
