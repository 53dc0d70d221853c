"""The engine: dispatch and settle apart, run-ahead, cancellation, reuse of ids, refusals, forwards that do not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.config import Drafter, Scope
from model.ops import Cancel, Dispatch, Fail, Settle, Shrink, Submit, Suspend, World
from model.request import State
from model.tokens import Segment
from property_tests.model_core.helpers import codes, config, dispatch, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 42))
BUILDS = ["unified", "paired-22", "joint-backoff"]


def pages(serving: World) -> list[tuple[int, int, int]]:
    return [(use.free, use.droppable, use.held + use.locked) for use in serving.engine.occupancy()]


def idle(serving: World) -> bool:
    """Nothing is held and nothing is in flight."""
    return all(held == 0 for _, _, held in pages(serving)) and not serving.engine.has_work()


# -- dispatch and settle apart ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_ahead", [0, 1])
def test_as_many_iterations_run_ahead_as_the_limit_says(run_ahead: int) -> None:
    serving = world(config(run_ahead=run_ahead))
    submit(serving, spec(0, 8, 20))
    for _ in range(run_ahead + 1):
        dispatch(serving)
    outcome = serving.apply(Dispatch())
    assert (outcome.applied, outcome.why) == (False, "the oldest iteration has to settle first")
    assert serving.engine.dispatch() is None
    settle(serving)
    dispatch(serving)


def test_the_next_chunk_is_dispatched_before_the_last_one_settles() -> None:
    serving = world(config())
    submit(serving, spec(0, 50))
    assert dispatch(serving).context[0][3:5] == (0, 32)
    request = serving.engine.live[0]
    assert (request.cursor, request.state) == (32, State.CONTEXT)  # the context moves on at once
    assert dispatch(serving).context[0][3:5] == (32, 50)
    assert request.state is State.GENERATION
    assert request.generated == 0  # its first token comes with the settle
    settle(serving)
    assert request.generated == 0
    settle(serving)
    assert request.generated == 1


def test_prefill_publishes_before_the_next_pass_looks() -> None:
    """A late commit loses the reuse of every request that arrives meanwhile."""
    serving = world(config())
    submit(serving, spec(0, PROMPT[:16]))
    dispatch(serving)
    submit(serving, spec(1, [*PROMPT[:16], 1, 2]))
    assert dispatch(serving).context[0][3:5] == (16, 18)


def test_a_request_verifies_again_before_its_last_row_settles() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 20))
    step(serving)
    first, second = dispatch(serving).generation[0], dispatch(serving).generation[0]
    assert (first.real_drafts, second.real_drafts) == (False, True)  # placeholders first: prefill drafts nothing
    assert serving.engine.live[0].in_flight == 2
    settle(serving, 4)
    assert serving.engine.live[0].generated == 2  # a placeholder row commits its bonus token alone
    settle(serving, 4)
    assert serving.engine.live[0].generated == 6


def test_a_step_of_real_drafts_commits_at_most_its_width_and_at_least_one() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 40))
    step(serving)
    step(serving)
    for count, known in ((9, 6), (0, 7), (-3, 8)):
        dispatch(serving)
        assert serving.apply(Settle((count,))).applied
        assert serving.engine.live[0].generated == known


def test_the_last_step_is_cut_at_what_was_asked_for() -> None:
    serving = world(config())
    serve(serving, spec(0, 8, 9), accepted=4)
    record = serving.engine.records[0]
    assert (record.output_tokens, record.state) == (9, "finished")
    assert (record.spec_steps, record.drafted_tokens) == (2, 6)
    assert record.accepted_drafts == 6  # acceptance counts the last step whole


def test_counts_that_do_not_fit_the_plan_are_refused_and_change_nothing() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 20))
    step(serving)
    dispatch(serving)
    digest = serving.decision_digest()
    outcome = serving.apply(Settle((1, 1)))
    assert (outcome.applied, outcome.why) == (False, "1 rows were dispatched, 2 counts came")
    assert serving.engine.in_flight == 1
    assert serving.decision_digest() == digest
    settle(serving)
    assert serving.apply(Settle(())).why == "no iteration is in flight"


def test_a_settle_tells_what_every_row_got() -> None:
    serving = world(config(max_num_tokens=64))
    submit(serving, spec(0, 8, 2), spec(1, 50))
    dispatch(serving)
    rows = serving.apply(Settle(())).settled
    assert [tuple(row) for row in rows] == [(0, 1, True, False, False), (1, 1, True, False, False)]
    dispatch(serving)
    rows = serving.apply(Settle((1, 1))).settled
    assert [tuple(row) for row in rows] == [(0, 1, False, True, False), (1, 1, False, False, False)]
    dispatch(serving)
    assert [tuple(row) for row in serving.apply(Settle((3,))).settled] == [(1, 2, False, True, True)]


# -- leaving at any point ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("moment", range(7))
def test_a_request_may_be_cancelled_at_any_moment(build: str, moment: int) -> None:
    """Waiting, between dispatch and settle of a chunk, and with one or two verify rows in flight."""
    serving = world(config(), build)
    submit(serving, spec(0, 50, 20), spec(1, 9, 6))
    moves = [lambda: dispatch(serving), lambda: dispatch(serving), lambda: settle(serving)] * 3
    for move in moves[:moment]:
        move()
        if serving.engine.in_flight > 1:
            settle(serving)
    assert serving.apply(Cancel(0)).applied
    assert serving.engine.records[0].state == "cancelled"
    assert 0 not in serving.engine.live
    serve(serving)
    assert serving.engine.records[1].state == "finished"
    assert idle(serving)
    assert codes(serving) == set()


def test_outputs_of_a_cancelled_request_are_dropped_and_counted() -> None:
    serving = world(config())
    submit(serving, spec(0, 8, 20))
    step(serving)
    dispatch(serving)
    assert serving.apply(Cancel(0)).applied
    assert pages(serving)[0][2] == 0  # its pages went at once
    outcome = serving.apply(Settle((1,)))
    assert [row.tokens for row in outcome.settled] == [0]
    assert serving.engine.totals.late_outputs == 1
    assert serving.engine.records[0].output_tokens == 1
    assert codes(serving) == set()


def test_who_is_not_there_cannot_leave() -> None:
    serving = world(config())
    assert serving.apply(Cancel(7)).why == "request 7 is not live"
    assert serving.apply(Suspend(7)).why == "request 7 holds no locks"
    submit(serving, spec(7, 8))
    assert serving.apply(Suspend(7)).why == "request 7 holds no locks"  # nor does one that waits
    step(serving)
    assert serving.apply(Suspend(7)).applied
    assert serving.apply(Suspend(7)).why == "request 7 holds no locks"
    assert serving.skips == 4


@pytest.mark.parametrize("build", BUILDS)
def test_a_request_id_may_come_again_once_it_is_free(build: str) -> None:
    serving = world(config(), build)
    submit(serving, spec(0, 8, 20))
    step(serving)
    dispatch(serving)
    assert serving.apply(Cancel(0)).applied
    submit(serving, spec(0, PROMPT, 5))  # while an output of its namesake is in flight
    serve(serving)
    record = serving.engine.records[0]
    assert (record.prompt_tokens, record.output_tokens, record.state) == (32, 5, "finished")
    assert codes(serving) == set()


# -- suspension from outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("moment", range(1, 6))
def test_a_suspended_request_goes_on_where_it_was(build: str, moment: int) -> None:
    serving = world(config(), build)
    submit(serving, spec(0, 50, 12))
    for _ in range(moment):
        step(serving, 3)
    assert serving.apply(Suspend(0)).applied
    assert {use.locked for use in serving.engine.occupancy()} == {0}
    step(serving, 3)
    assert {use.held for use in serving.engine.occupancy()} == {0}
    serve(serving)
    record = serving.engine.records[0]
    assert (record.output_tokens, record.suspensions, record.prefilled_tokens) == (12, 1, 50)
    assert codes(serving) == set()


def test_what_settles_while_a_request_is_suspended_is_not_lost() -> None:
    serving = world(config(), "paired-22")
    submit(serving, spec(0, 8, 20))
    for _ in range(3):
        step(serving)
    dispatch(serving)
    assert serving.apply(Suspend(0)).applied
    known = serving.engine.live[0].known_tokens()
    settle(serving, 3)
    assert serving.engine.live[0].known_tokens() == known + 3
    serve(serving)
    assert codes(serving) == set()


# -- forwards that do not run -----------------------------------------------------------------------------------------


def image(serving: World) -> tuple[object, ...]:
    engine = serving.engine
    sequences = [sequence for request in engine.live.values() for sequence in engine.twin.sequences(request)]
    return (
        [(sequence.owner, sequence.history, sequence.capacity, sequence.blocks) for sequence in sequences],
        [(request.cursor, request.state, list(request.grown), request.in_flight) for request in engine.live.values()],
        pages(serving),
        engine.slots.snapshot(),
        engine.iteration,
    )


@pytest.mark.parametrize("op", [Dispatch(skip=True), Fail()])
@pytest.mark.parametrize("build", BUILDS)
def test_a_forward_that_did_not_run_leaves_both_pools_as_they_were(build: str, op: Dispatch | Fail) -> None:
    serving = world(config(max_num_tokens=40), build)
    submit(serving, spec(0, 8, 20), spec(1, 80), spec(2, 60))
    step(serving)  # 0 generates, 1 is in its context, 2 waits
    before = image(serving)
    outcome = serving.apply(op)
    assert (outcome.applied, outcome.plan) == (True, None)
    assert image(serving) == before
    totals = serving.engine.totals
    assert (totals.skipped_forwards, totals.failed_forwards) == ((1, 0) if isinstance(op, Dispatch) else (0, 1))
    serve(serving)
    assert {record.state for record in serving.engine.records.values()} == {"finished"}
    assert codes(serving) == set()


@pytest.mark.parametrize("op", [Dispatch(skip=True), Fail()])
def test_a_forward_may_fail_while_another_is_in_flight(op: Dispatch | Fail) -> None:
    serving = world(config(), "paired-22")
    submit(serving, spec(0, 8, 20))
    step(serving)
    dispatch(serving)
    before = image(serving)
    for _ in range(3):
        assert serving.apply(op).applied
    assert image(serving) == before
    settle(serving)
    serve(serving)
    assert codes(serving) == set()


def test_forwards_without_anything_to_run_are_no_forwards() -> None:
    serving = world(config())
    for op in (Dispatch(), Dispatch(skip=True), Fail()):
        assert serving.apply(op).why == "no request is live"


def test_cached_pages_may_be_taken_at_any_time() -> None:
    serving = world(config())
    serve(serving, spec(0, PROMPT))
    assert serving.engine.twin.pools["target"].droppable == 8
    assert serving.apply(Shrink("target", 3)).applied
    assert serving.engine.twin.pools["target"].droppable == 3
    assert serving.apply(Shrink("target", 3)).why == "nothing to evict"
    assert serving.apply(Shrink("attic", 3)).why == "there is no pool 'attic'"
    assert serving.apply(Shrink("target", -5)).applied
    serve(serving, spec(1, PROMPT))
    assert serving.engine.records[1].cached_tokens == 0
    assert codes(serving) == set()


# -- refusals ---------------------------------------------------------------------------------------------------------

SET_BACK = "request 1 may be preempted and then prefills up to 30 tokens at once, max_num_tokens is 32"


@pytest.mark.parametrize(
    ("prompt", "output", "limits", "why"),
    [
        (0, 4, {}, "request 1 needs a prompt and at least one output token"),
        (4, 0, {}, "request 1 needs a prompt and at least one output token"),
        (250, 7, {}, "request 1 needs 257 tokens, max_seq_len is 256"),
        (30, 4, {"chunked_prefill": False}, "request 1 prefills 30 tokens at once, max_num_tokens is 32"),
        (22, 9, {"chunked_prefill": False}, SET_BACK),
        (100, 4, {"pages": 20}, "request 1 needs up to 28 pages of pool 'target', which has 20"),
        (100, 4, {"draft_pages": 9}, "request 1 needs up to 12 pages of pool 'draft', which has 9"),
        # Preempted at its last token it computes 32 tokens in one chunk, not the 2 of its prompt.
        (2, 60, {"draft_pages": 11}, "request 1 needs up to 12 pages of pool 'draft', which has 11"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_in_one_sentence(
    prompt: int, output: int, limits: dict[str, int], why: str
) -> None:
    serving = world(config(**limits))  # pyright: ignore[reportArgumentType]
    outcome = serving.apply(Submit(spec(1, prompt, output)))
    assert (outcome.applied, outcome.why) == (False, why)
    assert serving.engine.refusal(spec(1, prompt, output)) == why
    assert not serving.engine.has_work()
    assert serving.engine.records == {}


def test_a_live_id_is_refused_until_it_is_free() -> None:
    serving = world(config())
    submit(serving, spec(0, 8))
    assert serving.apply(Submit(spec(0, 9))).why == "request 0 is still running"
    serve(serving)
    assert serving.apply(Submit(spec(0, 9))).applied


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("build", ["unified", "paired-22", "target-21"])
def test_what_is_not_refused_can_run_alone(build: str, length: int) -> None:
    """The smallest pools that a request is let into serve it, whatever else was cached there before."""
    for pool_pages in range(1, 40):
        serving = world(config(pages=pool_pages, draft_pages=pool_pages), build)
        if serving.engine.refusal(spec(0, 7 * length, 2 * length)) is None:
            serve(serving, spec(0, 7 * length, 2 * length), accepted=4)
            serve(serving, spec(1, 7 * length, 2 * length), accepted=1)
            assert [record.state for record in serving.engine.records.values()] == ["finished"] * 2
            assert codes(serving) == set()
            return
    raise AssertionError("no pool was large enough")


# -- what a content depends on ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope", [Scope(adapter="a"), Scope(salt="a"), Scope(target_weights=1), Scope(draft_weights=1)]
)
def test_requests_of_different_scopes_share_nothing(scope: Scope) -> None:
    serving = world(config())
    serve(serving, spec(0, PROMPT))
    serve(serving, spec(1, PROMPT, scope=scope))
    serve(serving, spec(2, PROMPT, scope=scope))
    cached = [record.cached_tokens for record in serving.engine.records.values()]
    assert cached == [0, 0, 31]
    assert codes(serving) == set()


def test_a_second_turn_reuses_the_whole_first_prompt_and_nothing_generated() -> None:
    serving = world(config())
    serve(serving, spec(0, PROMPT[:18], 6))
    turn = (Segment.of(tuple(PROMPT[:18])), Segment(500, 6), Segment(77, 4))  # its prompt, its answer, a new question
    serve(serving, replace(spec(1, 28), prompt=turn))
    assert serving.engine.records[1].cached_tokens == 18
    assert codes(serving) == set()


def test_a_run_without_checks_decides_like_one_with_them() -> None:
    digests, memories = set(), []
    for check in ("off", "incremental", "exhaustive"):
        serving = world(config(pages=24, draft_pages=18), check=check)
        serve(serving, *(spec(number, [*PROMPT[: 4 * number], number], 12) for number in range(4)))
        digests.add(serving.decision_digest())
        memories.append(serving.memory_digest())
    assert len(digests) == 1
    assert memories[0] == "not computed"
    assert memories[1] == memories[2]
    with pytest.raises(ValueError, match="check is 'some', expected one of off, incremental, exhaustive"):
        world(config(), check="some")


def test_ops_are_recorded_as_they_came() -> None:
    serving = world(config(drafter=Drafter("dflash", 0, 8)), record_ops=True)
    first = spec(0, 4, 1)
    submit(serving, first)
    serving.apply(Cancel(9))
    step(serving)
    assert serving.ops == [Submit(first), Cancel(9), Dispatch(), Settle(())]
