"""One scheduling pass: generation first, then chunks; budgets, flooring, deferral, refusals, the deadlock detector."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS, Build
from model.config import PublishPolicy
from model.engine import Stalled
from model.ops import Dispatch, World
from model.pages import PagePool
from model.request import State
from model.rules.scheduling import Chunking, Deferral
from property_tests.model_core.helpers import LIMITS, codes, config, dispatch, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 42))


def ruled(**rules: object) -> Build:
    answers = replace(BUILDS["unified"].rules, **rules)  # pyright: ignore[reportArgumentType]
    return replace(BUILDS["unified"], rules=answers)


def leave(pool: PagePool, pages: int) -> None:
    """Somebody else takes all but ``pages`` of what can be had."""
    pool.evict_down_to(0)
    pool.grant(pool.free_count() - pages)


def chunks(serving: World) -> list[tuple[int, int, int]]:
    """Chunks of the plan that was dispatched last, by request: request, start, end."""
    return sorted((row.request_id, row.start, row.end) for row in serving.engine.plans[-1].context)


def rows(serving: World) -> list[int]:
    """Requests that the plan dispatched last verifies drafts for."""
    return [row.request_id for row in serving.engine.plans[-1].generation]


def all_generating(serving: World) -> None:
    while any(request.state is not State.GENERATION for request in serving.engine.live.values()):
        step(serving)


# -- what one pass takes ----------------------------------------------------------------------------------------------


def test_generation_comes_first_and_chunks_get_what_is_left() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 20))
    step(serving)
    submit(serving, spec(1, 60))
    dispatch(serving)
    assert rows(serving) == [0]
    assert chunks(serving) == [(1, 0, 28)]  # 32 less a verify row of 4


def test_a_budget_that_is_spent_ends_the_pass_in_order_of_arrival() -> None:
    serving = world(config())
    submit(serving, *(spec(number, 4, 30) for number in range(4)))
    all_generating(serving)
    submit(serving, spec(4, 4))
    scheduler = serving.engine.scheduler
    scheduler.limits = replace(scheduler.limits, max_num_tokens=15)
    dispatch(serving)
    assert (rows(serving), chunks(serving)) == ([0, 1, 2], [])
    serve(serving)
    assert codes(serving) == set()


def test_no_more_requests_run_at_once_than_the_batch_has_rows() -> None:
    serving = world(config(max_num_tokens=200))
    submit(serving, *(spec(number, 4) for number in range(6)))
    dispatch(serving)
    assert [row[0] for row in chunks(serving)] == [0, 1, 2, 3]
    assert [request.request_id for request in serving.engine.scheduler.waiting] == [4, 5]


def test_the_last_chunk_also_pays_for_the_drafts() -> None:
    for budget, second in ((30, (1, 0, 12)), (29, (1, 0, 8))):
        serving = world(config(max_num_tokens=budget))
        submit(serving, spec(0, 12), spec(1, 12))
        dispatch(serving)
        assert chunks(serving) == [(0, 0, 12), second]


def test_a_request_is_not_verified_past_what_it_asked_for() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 3))
    step(serving)  # one token
    dispatch(serving)  # the placeholder row
    dispatch(serving)  # and one more: two rows in flight commit at least two tokens
    settle(serving)
    assert not serving.apply(Dispatch()).applied  # what is in flight completes it
    settle(serving)
    assert serving.engine.records[0].state == "finished"


def test_chunks_that_complete_their_context_come_last_in_the_batch() -> None:
    serving = world(config(max_num_tokens=42))
    submit(serving, spec(0, 6), spec(1, 10), spec(2, 60))
    assert [(row.request_id, row.last) for row in dispatch(serving).context] == [(2, False), (0, True), (1, True)]
    settle(serving)
    serve(serving)
    assert codes(serving) == set()


@pytest.mark.parametrize(
    ("budget", "cursor", "length", "size"),
    [
        (32, 0, 20, 20),  # fits whole, with its drafts
        (23, 0, 20, 20),
        (22, 0, 20, 16),  # the drafts do not fit: not the last chunk, so floored to the unit
        (20, 0, 20, 16),
        (19, 0, 60, 16),
        (3, 0, 60, 0),
        (20, 10, 60, 18),  # after a hit inside a page the chunk ends on one: 10 + 20 -> 28
        (5, 10, 60, 2),  # 10 + 4 -> 12
        (8, 12, 60, 8),
        (30, 40, 60, 20),
    ],
)
def test_a_chunk_that_is_not_the_last_ends_on_a_unit_and_after_a_hit_on_a_page(
    budget: int, cursor: int, length: int, size: int
) -> None:
    assert Chunking().size(budget, cursor, length, 3, LIMITS) == size


def test_a_chunk_that_cannot_reach_a_page_end_is_taken_as_it_is() -> None:
    """Otherwise a hit inside a page waits for ever on a budget of less than the rest of it."""
    small = replace(LIMITS, chunk_unit=1)
    assert Chunking().size(1, 9, 60, 3, small) == 1
    assert Chunking(keeps_partial=False).size(1, 9, 60, 3, small) <= 0


@pytest.mark.parametrize("unit", [4, 8, 16])
def test_units_of_several_pages_floor_the_chunks_of_a_cold_prompt(unit: int) -> None:
    assert Chunking().size(30, 0, 60, 3, replace(LIMITS, chunk_unit=unit)) == 30 // unit * unit


def test_without_chunked_prefill_a_prompt_runs_whole_or_not_at_all() -> None:
    whole = replace(LIMITS, chunked_prefill=False)
    assert Chunking().size(32, 0, 29, 3, whole) == 29
    assert Chunking().size(31, 0, 29, 3, whole) == 0
    serving = world(config(chunked_prefill=False))
    submit(serving, spec(0, 20), spec(1, 20), spec(2, 4))
    dispatch(serving)
    assert chunks(serving) == [(0, 0, 20), (2, 0, 4)]
    serve(serving)
    assert {record.prefilled_tokens for record in serving.engine.records.values()} == {20, 4}
    assert codes(serving) == set()


def test_the_budget_pays_for_what_runs_and_not_for_what_a_hit_saved() -> None:
    assert Chunking().charge(20, 100) == 20
    assert Chunking(charges_executed=False).charge(20, 12) == 8


# -- deferral ---------------------------------------------------------------------------------------------------------


def test_a_request_waits_for_a_prefix_that_this_very_pass_computes() -> None:
    serving = world(config())
    submit(serving, spec(0, [*PROMPT[:16], 1, 2]), spec(1, [*PROMPT[:16], 3, 4]), spec(2, 4))
    dispatch(serving)
    assert chunks(serving) == [(0, 0, 18), (2, 0, 4)]
    assert serving.engine.totals.deferrals == 1
    dispatch(serving)
    assert chunks(serving)[0][:2] == (1, 16)
    settle(serving)
    settle(serving)
    serve(serving)
    assert serving.engine.records[1].cached_tokens == 16
    assert codes(serving) == set()


@pytest.mark.parametrize("off", ["limits", "rule", "policy"])
def test_without_deferral_both_compute_the_prefix(off: str) -> None:
    policy = PublishPolicy.PER_CONVERSATION if off == "policy" else PublishPolicy.ALL_REUSABLE
    settings = config(deferral=off != "limits", policy=policy, max_num_tokens=64)
    serving = world(settings, ruled(deferral=Deferral(by_prefix=off != "rule")))
    submit(serving, spec(0, PROMPT[:18]), spec(1, PROMPT[:18]))
    dispatch(serving)
    assert chunks(serving) == [(0, 0, 18), (1, 0, 18)]
    assert serving.engine.totals.deferrals == 0


def test_nobody_waits_for_a_block_that_is_shorter_than_a_page() -> None:
    serving = world(config(max_num_tokens=64))
    submit(serving, spec(0, PROMPT[:3]), spec(1, PROMPT[:3]))
    dispatch(serving)
    assert len(chunks(serving)) == 2


# -- refused chunks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_a_first_chunk_without_pages_gives_its_claims_and_its_cursor_back(build: str) -> None:
    serving = world(config(), build, check="off")
    serve(serving, spec(0, PROMPT[:16]))
    draft = serving.engine.twin.pools["draft"]
    draft.evict_down_to(0)
    leave(draft, 1)
    cached = serving.engine.twin.pools["target"].droppable
    submit(serving, spec(1, [*PROMPT[:16], *range(500, 520)]))
    assert not serving.apply(Dispatch()).applied
    request = serving.engine.live[1]
    assert (request.cursor, serving.engine.twin.sequences(request)) == (0, [])
    assert serving.engine.twin.pools["target"].droppable == cached
    assert serving.engine.totals.refused_admissions == 1


def test_a_refused_request_is_not_tried_again_before_its_pool_has_the_pages() -> None:
    serving = world(config(), check="off")
    draft = serving.engine.twin.pools["draft"]
    held = draft.grant(58)
    submit(serving, spec(0, 24), spec(1, 4, 30))
    step(serving)  # the first is refused, the second runs
    step(serving)  # what the second published might have been a match for the first
    tries = serving.engine.totals.admissions
    step(serving)
    assert serving.engine.totals.admissions == tries
    draft.release_locked(held)
    step(serving)
    assert serving.engine.records[0].claims == [0]


@pytest.mark.parametrize(("chunked", "scheduled"), [(True, [(1, 0, 4)]), (False, [])])
def test_a_prompt_without_pages_is_passed_over_or_ends_the_pass(
    chunked: bool, scheduled: list[tuple[int, int, int]]
) -> None:
    serving = world(config(chunked_prefill=chunked), check="off")
    leave(serving.engine.twin.pools["target"], 3)
    submit(serving, spec(0, 20), spec(1, 4))
    outcome = serving.apply(Dispatch())
    found = [] if outcome.plan is None else [(row.request_id, row.start, row.end) for row in outcome.plan.context]
    assert found == scheduled


def test_a_first_chunk_for_which_no_budget_is_left_holds_nothing_meanwhile() -> None:
    serving = world(config(max_num_tokens=18, run_ahead=0))
    serve(serving, spec(0, PROMPT[:16]))
    submit(serving, spec(1, 15), spec(2, [*PROMPT[:16], *range(500, 530)]))
    dispatch(serving)
    assert chunks(serving) == [(1, 0, 15)]
    waiting = serving.engine.live[2]
    assert (waiting.cursor, serving.engine.twin.sequences(waiting)) == (0, [])
    settle(serving)
    serve(serving)
    assert serving.engine.records[2].cached_tokens == 16
    assert codes(serving) == set()


# -- the deadlock detector --------------------------------------------------------------------------------------------


def hopeless(check: str = "exhaustive") -> World:
    """A request that no pool can ever serve, let in past the engine's refusal."""
    serving = world(config(pages=4), check=check)
    too_long = spec(0, 40)
    assert serving.engine.refusal(too_long) is not None
    serving.engine.submit(too_long)
    return serving


def test_after_too_many_passes_without_movement_the_engine_says_who_waits() -> None:
    serving = hopeless()
    for _ in range(19):
        assert serving.engine.dispatch() is None
    with pytest.raises(Stalled, match="20 passes in a row scheduled nothing; requests 0 wait"):
        serving.engine.dispatch()


def test_a_stall_is_a_broken_law_and_no_crash() -> None:
    serving = hopeless()
    for _ in range(19):
        assert serving.apply(Dispatch()).why == "nothing could be scheduled"
    outcome = serving.apply(Dispatch())
    assert not outcome.applied
    assert "20 passes in a row scheduled nothing" in outcome.why
    assert [(violation.code, violation.request) for violation in serving.violations] == [("PROGRESS", 0)]


def test_whoever_can_run_resets_the_detector() -> None:
    serving = hopeless()
    for _ in range(3):
        for _ in range(18):
            assert not serving.apply(Dispatch()).applied
        submit(serving, spec(1, 2, 1))
        step(serving)
        assert serving.engine.records[1].state == "finished"
    assert codes(serving) == set()


def test_work_that_is_left_at_the_end_of_a_run_is_a_broken_law_too() -> None:
    serving = hopeless()
    serving.drain()
    assert codes(serving) == {"PROGRESS"}
