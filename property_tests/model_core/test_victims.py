"""Pages run short: who is preempted or suspended, where the victims come back, and what they keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS, Build
from model.config import Drafter, PublishPolicy
from model.ops import Dispatch, Settle, World
from model.request import State
from model.rules.scheduling import Victim
from model.sequence import Status
from property_tests.model_core.helpers import codes, config, dispatch, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 42))
PLAIN = Drafter("dflash", 0, 8)  # no drafts: one token a step
THREE = [spec(number, 15 - number, 20) for number in range(3)]  # the oldest is always the next to need a page


def ruled(**rules: object) -> Build:
    answers = replace(BUILDS["unified"].rules, **rules)  # pyright: ignore[reportArgumentType]
    return replace(BUILDS["unified"], rules=answers)


def preemptions(serving: World) -> list[int]:
    return [record.preemptions for record in serving.engine.records.values()]


def suspensions(serving: World) -> list[int]:
    return [record.suspensions for record in serving.engine.records.values()]


def first_victim(serving: World) -> int:
    """Step until a request has to give way; its number."""
    while not any(preemptions(serving)) and not any(suspensions(serving)):
        step(serving)
    given = [one or other for one, other in zip(preemptions(serving), suspensions(serving), strict=True)]
    return given.index(1)


@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_the_newest_request_gives_way_first(build: str) -> None:
    """Three requests of about 14 + 20 tokens on 21 pages: they need up to 9 each."""
    serving = world(config(drafter=PLAIN, max_num_tokens=64, pages=21), build)
    submit(serving, *THREE)
    assert first_victim(serving) == 2
    assert preemptions(serving) == [0, 0, 1]
    serve(serving)
    assert {record.output_tokens for record in serving.engine.records.values()} == {20}
    assert codes(serving) == set()


def test_by_another_rule_the_next_one_behind_gives_way() -> None:
    oldest = ruled(victim=Victim("oldest", newest_first=False))
    serving = world(config(drafter=PLAIN, max_num_tokens=64, pages=21), oldest)
    submit(serving, *THREE)
    assert first_victim(serving) == 1


def test_a_preempted_request_gives_both_pools_up_and_computes_again_what_it_generated() -> None:
    serving = world(config(drafter=PLAIN, max_num_tokens=64, pages=21), "paired-22")
    submit(serving, *THREE)
    first_victim(serving)
    victim = serving.engine.live[2]
    assert (victim.state, victim.cursor) == (State.WAITING, 0)
    assert serving.engine.twin.sequences(victim) == []
    generated = victim.generated
    assert generated > 0
    serve(serving)
    record = serving.engine.records[2]
    assert record.claims == [0, 12]  # the full pages of its prompt of 13 were still cached
    assert record.recomputed_tokens == 1 + generated
    assert record.cached_tokens == 0  # a hit on its own pages is no reuse
    assert codes(serving) == set()


def test_a_victim_keeps_its_place_in_the_line() -> None:
    serving = world(config(drafter=PLAIN, max_num_tokens=64, pages=21))
    submit(serving, *THREE)
    first_victim(serving)
    submit(serving, spec(3, 4, 2))
    step(serving)
    assert [request.request_id for request in serving.engine.scheduler.active] == [0, 1, 2, 3]
    assert serving.engine.live[2].order == 2


def test_who_has_nobody_behind_suspends_itself_and_comes_back() -> None:
    serving = world(config(drafter=PLAIN, pages=13))
    submit(serving, spec(0, 12, 20), spec(1, 12, 20))
    assert first_victim(serving) == 1
    assert (preemptions(serving), suspensions(serving)) == ([0, 0], [0, 1])
    waiting = serving.engine.live[1]
    assert waiting.state is State.GENERATION
    assert {sequence.status for sequence in serving.engine.twin.sequences(waiting)} == {Status.SUSPENDED}
    serve(serving)
    assert serving.engine.records[1].recomputed_tokens == 0 or serving.engine.records[1].preemptions
    assert codes(serving) == set()


def test_with_a_host_tier_a_victim_is_suspended_and_its_pages_fall() -> None:
    serving = world(config(drafter=PLAIN, max_num_tokens=64, pages=21, host=20))
    submit(serving, *THREE)
    assert first_victim(serving) == 2
    assert (preemptions(serving), suspensions(serving)) == ([0, 0, 0], [0, 0, 1])
    target = serving.engine.twin.pools["target"]
    assert target.host_resident(serving.engine.twin.sequences(serving.engine.live[2])[0].tables[0].pages) > 0
    serve(serving)
    assert serving.engine.totals.recomputed_tokens == 0
    assert codes(serving) == set()


def test_a_later_chunk_takes_the_pages_of_the_newest_started_request() -> None:
    """Request 1 is about to complete: nothing of it is in this pass, so it is the one that may be taken."""
    serving = world(config(chunk_unit=16, max_num_tokens=31), check="off")
    submit(serving, spec(0, 64), spec(1, 8, 2))
    dispatch(serving)
    dispatch(serving)
    settle(serving)
    target = serving.engine.twin.pools["target"]
    target.evict_down_to(0)
    target.grant(target.free_count())
    assert not serving.apply(Dispatch()).applied  # the pass ends there
    assert preemptions(serving) == [0, 1]
    outcome = serving.apply(Dispatch())
    assert outcome.plan is not None
    assert outcome.plan.context[0][:1] + outcome.plan.context[0][3:5] == (0, 32, 48)


def test_a_chunk_alone_with_nobody_to_take_from_begins_again_with_nothing() -> None:
    serving = world(config(), check="off")
    submit(serving, spec(0, 64))
    step(serving)
    target = serving.engine.twin.pools["target"]
    held = target.grant(target.free_count())
    assert not serving.apply(Dispatch()).applied
    request = serving.engine.live[0]
    assert (request.state, request.started, request.cursor) == (State.WAITING, False, 0)
    target.release_locked(held)
    step(serving)
    assert serving.engine.records[0].claims == [0, 32]  # what it had published is claimed again


def test_two_contexts_that_block_each_other_are_resolved() -> None:
    """With a host tier a chunk takes nobody's pages: where no one can go on, the newest holder starts over."""
    serving = world(config(host=2, max_num_tokens=34), check="off")
    serve(serving, spec(9, PROMPT[:2]))
    submit(serving, spec(0, [*PROMPT[:2], *range(500, 560)]), spec(1, 60))
    assert [(row.start, row.end) for row in step(serving).context] == [(2, 32), (0, 4)]
    for request in serving.engine.live.values():
        serving.engine.twin.suspend_all(request)
    target = serving.engine.twin.pools["target"]
    target.grant(target.free_count() + target.droppable)
    assert not serving.apply(Dispatch()).applied
    assert preemptions(serving) == [0, 0, 1]
    assert serving.engine.live[0].cursor == 32


@pytest.mark.parametrize("policy", list(PublishPolicy)[:3])
@pytest.mark.parametrize("build", ["unified", "paired-22", "paired-22-nobranch", "joint-backoff", "unified-page"])
def test_under_pressure_every_request_finishes_and_no_law_is_broken(build: str, policy: PublishPolicy) -> None:
    serving = world(config(pages=22, draft_pages=16, policy=policy), build)
    for number in range(8):
        submit(serving, spec(number, [*PROMPT[: 4 * (number % 4)], *range(100 * number, 100 * number + 9)], 14))
    turn = 0
    while serving.engine.has_work():
        if not serving.apply(Dispatch()).applied:
            drafted = serving.engine.plans[0].generation
            serving.apply(Settle(tuple(1 + (turn + place) % 4 for place in range(len(drafted)))))
            turn += 1
    serving.drain()
    assert {record.output_tokens for record in serving.engine.records.values()} == {14}
    assert serving.engine.totals.preemptions > 0
    assert codes(serving) == set()
