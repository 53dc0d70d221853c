"""What a prompt shares with those sent before it, against the token ids themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model.config import Scope
from model.tokens import Segment, prompt_tokens
from scenarios import catalog
from sim.prefixes import SentPrompts
from sim.rulespec import find
from sim.run import run_scenario

VOCABULARY = 200_064  # two streams agree by chance in one id of so many
RUNS = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 6)).map(lambda run: Segment(*run)),
    st.lists(st.integers(0, 1), min_size=1, max_size=4).map(lambda ids: Segment.of(tuple(ids))),
)
PROMPTS = st.lists(st.lists(RUNS, min_size=1, max_size=4), min_size=1, max_size=6)


def common(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(PROMPTS)
def test_never_more_than_the_tokens_share_and_all_of_a_prompt_sent_twice(prompts: list[list[Segment]]) -> None:
    sent, before = SentPrompts(), []
    for prompt in prompts:
        ids = prompt_tokens(tuple(prompt), VOCABULARY).tolist()
        shared = sent.shared(prompt, Scope())
        assert shared <= max((common(ids, other) for other in before), default=0)
        assert sent.shared(prompt, Scope()) == len(ids)
        before.append(ids)


def test_a_shared_prefix_ends_where_the_prompts_part() -> None:
    sent = SentPrompts()
    assert sent.shared([Segment(1, 100), Segment(2, 8)], Scope()) == 0
    assert sent.shared([Segment(1, 100), Segment(3, 8)], Scope()) == 100
    assert sent.shared([Segment(1, 60), Segment(4, 8)], Scope()) == 60
    assert sent.shared([Segment(1, 100), Segment(2, 20)], Scope()) == 108
    assert sent.shared([Segment.of((5, 6, 7))], Scope()) == 0
    assert sent.shared([Segment.of((5, 6, 8, 9))], Scope()) == 2


def test_prompts_of_another_scope_share_nothing() -> None:
    sent = SentPrompts()
    sent.shared([Segment(1, 10)], Scope())
    assert sent.shared([Segment(1, 10)], Scope(salt="other")) == 0


def test_a_later_turn_shares_the_whole_prompt_before_it() -> None:
    scenario = catalog.load("smoke/conversation")
    result = run_scenario(scenario, find("unified"))
    prompts = {(timing.session, timing.turn): timing for timing in result.timings}
    lengths = {record.request_id: record.prompt_tokens for record in result.records}
    later = [timing for timing in result.timings if timing.turn > 0]
    assert later
    for timing in later:
        assert timing.shared == lengths[prompts[timing.session, timing.turn - 1].request_id]
