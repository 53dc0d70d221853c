"""Clients: closed and open loop, turns with think time, sub-agents, and what a turn's prompt is made of."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from model.ops import Submit
from model.tokens import Segment, named_seed
from property_tests.sim_room.helpers import MS, served, submit_ms, tiny
from sim.result import RunResult


def prompts(result: RunResult) -> list[tuple[Segment, ...]]:
    return [op.spec.prompt for op in result.ops if isinstance(op, Submit)]


def by_name(result: RunResult, name: str) -> list[Any]:
    return [timing for timing in result.timings if timing.session == name]


@pytest.mark.parametrize("concurrency", [1, 2, 3])
def test_a_closed_loop_keeps_so_many_sessions_in_flight(concurrency: int) -> None:
    turns = [{"prompt": 6, "output": 5}, {"append": 3, "output": 4}]
    result = served(tiny([{"name": "s", "copies": 7, "turns": turns}], concurrency=concurrency))
    spans: dict[str, list[int]] = {}
    for timing in result.timings:
        spans.setdefault(timing.session, [timing.submit_ns, 0])[1] = timing.finish_ns
    most = max(sum(begin <= start < end for begin, end in spans.values()) for start, _ in spans.values())
    assert most == concurrency
    assert [begin for begin, _ in spans.values()] == sorted(begin for begin, _ in spans.values())


def test_an_open_loop_sends_at_the_arrivals_whatever_the_server_does() -> None:
    result = served(tiny([{"name": "s", "copies": 8, "every_s": 0.02, "prompt": 9, "output": 6}], concurrency=None))
    assert submit_ms(result) == pytest.approx([20.0 * copy for copy in range(8)])


def test_a_turn_is_sent_its_think_time_after_the_turn_before() -> None:
    turns = [{"prompt": 6, "output": 5}, {"append": 3, "output": 4, "think_s": 1.5}, {"append": 2, "output": 3}]
    first, second, third = served(tiny([{"name": "s", "turns": turns}])).timings
    assert second.submit_ns == first.finish_ns + 1_500 * MS
    assert third.submit_ns == second.finish_ns
    assert [first.turn, second.turn, third.turn] == [0, 1, 2]


def test_an_absolute_arrival_waits_for_the_turn_before_at_most() -> None:
    turns = [
        {"prompt": 6, "output": 9},
        {"append": 3, "output": 4, "at_s": 0.01},
        {"append": 2, "output": 3, "at_s": 9},
    ]
    first, second, third = served(tiny([{"name": "s", "turns": turns}])).timings
    assert second.submit_ns == first.finish_ns > 10 * MS
    assert third.submit_ns == 9_000 * MS


def test_a_prompt_is_the_one_before_its_output_and_what_is_appended() -> None:
    turns = [{"prompt": 6, "output": 5}, {"append": 3, "output": 4}, {"prompt": 10, "output": 2}]
    scenario = tiny([{"name": "s", "turns": turns}], seed=7)
    result = served(scenario, record_ops=True)
    first, second, third = prompts(result)
    turn = scenario.workload().sessions[0].turns
    assert first == turn[0].append
    assert second == (*first, Segment(named_seed("output", 7, "s", 0), 5), *turn[1].append)
    assert third == turn[2].append  # a whole prompt starts over
    assert [record.prompt_tokens for record in result.records] == [6, 14, 10]
    assert result.records[1].cached_tokens > 0


def test_continuations_reuse_their_conversation_and_are_told_apart() -> None:
    turns = [{"prompt": 40, "output": 5}, {"append": 3, "output": 4}]
    result = served(tiny([{"name": "s", "copies": 3, "turns": turns}]))
    summary = result.summary()
    assert summary["first_turns"]["time_to_first_token_ms"]["count"] == 3
    assert summary["continuation_turns"]["time_to_first_token_ms"]["count"] == 3
    assert {record.cached_tokens > 0 for record in result.records[::2]} | {True} == {True, False}
    assert result.hits() == {timing.request_id for timing in result.timings if timing.turn == 1}


AGENT = [
    {"name": "agent", "turns": [{"prompt": 30, "output": 6}, {"append": 6, "output": 6}]},
    {
        "name": "heir",
        "parent": {"session": "agent"},
        "inherit": True,
        "turns": [{"append": 5, "output": 6, "think_s": 1}],
    },
    {"name": "fresh", "parent": {"session": "agent", "turn": 1}, "turns": [{"prompt": 11, "output": 6}]},
]


def test_a_sub_agent_starts_when_its_parents_turn_ends_beside_the_lanes() -> None:
    result = served(tiny(AGENT, concurrency=1), record_ops=True)
    agent, (heir,), (fresh,) = by_name(result, "agent"), by_name(result, "heir"), by_name(result, "fresh")
    assert heir.submit_ns == agent[0].finish_ns + 1_000 * MS
    assert agent[1].submit_ns == agent[0].finish_ns  # the parent does not wait for it
    assert fresh.submit_ns == agent[1].finish_ns


def test_a_sub_agent_inherits_its_parents_prompt_and_so_its_pages() -> None:
    result = served(tiny(AGENT, concurrency=1), record_ops=True)
    (heir,), (fresh,) = by_name(result, "heir"), by_name(result, "fresh")
    sent = prompts(result)
    assert sent[heir.request_id][:-1] == sent[0]
    assert result.records[heir.request_id].cached_tokens >= 28
    assert result.records[fresh.request_id].prompt_tokens == 11


def test_conversations_are_numbered_by_session() -> None:
    result = served(tiny(AGENT, concurrency=1))
    conversation = {timing.session: result.records[timing.request_id].conversation for timing in result.timings}
    assert conversation == {"agent": 0, "heir": 1, "fresh": 2}


def test_a_cancelled_turn_ends_and_the_session_goes_on_with_what_it_produced() -> None:
    turns = [{"prompt": 8, "output": 40}, {"append": 3, "output": 4}]
    cancel = {"at_s": 0.33, "action": "cancel", "request": 0}
    result = served(tiny([{"name": "s", "turns": turns}], disturbances=[cancel]), record_ops=True)
    first, second = result.timings
    assert result.records[0].state == "cancelled"
    assert first.finish_ns == second.submit_ns == 330 * MS
    assert 0 < first.tokens < 40
    assert result.records[1].prompt_tokens == 8 + first.tokens + 3
    assert result.records[1].state == "finished"


def test_requests_are_numbered_in_the_order_of_submission() -> None:
    result = served(tiny(AGENT, concurrency=2))
    assert [timing.request_id for timing in result.timings] == list(range(4))
    assert all(before.submit_ns <= after.submit_ns for before, after in pairwise(result.timings))
