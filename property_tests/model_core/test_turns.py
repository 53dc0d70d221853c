"""Endpoints of conversations: which windows stay cached once a conversation has moved on, and what policies publish."""

from __future__ import annotations

import pytest

from model.config import Drafter, EngineConfig, PublishPolicy
from model.ops import Shrink, World
from property_tests.model_core.helpers import codes, config, serve, spec, world

PROMPT = list(range(10, 42))


def conversing(keep: int, **fields: object) -> EngineConfig:
    """The policy per_conversation with the last ``keep`` endpoints kept; the drafter's window is two pages."""
    values = {"policy": PublishPolicy.PER_CONVERSATION, **fields}
    settings = config(**values)  # pyright: ignore[reportArgumentType]
    return EngineConfig(**{**{name: getattr(settings, name) for name in settings.__slots__}, "max_num_turns": keep})


def turns(serving: World, *lengths: int, conversation: int = 1) -> None:
    """Prompts of growing length, one after the other, in one conversation."""
    for length in lengths:
        number = len(serving.engine.records)
        serve(serving, spec(number, PROMPT[:length], 3, conversation=conversation))


def joint_claim(serving: World, shared: int) -> tuple[int, str]:
    """What a request that shares a prefix and then goes on for less than a window claims, and how."""
    number = len(serving.engine.records)
    serve(serving, spec(number, [*PROMPT[:shared], 1000 + number, 1001 + number], 3))
    record = serving.engine.records[number]
    return record.cached_tokens, record.claim_kind


@pytest.mark.parametrize("build", ["unified", "paired-22"])
@pytest.mark.parametrize(("keep", "joint"), [(1, {28}), (2, {20, 28}), (3, {12, 20, 28})])
def test_the_last_endpoints_of_a_conversation_stay(build: str, keep: int, joint: set[int]) -> None:
    for shared in (12, 20, 28):
        serving = world(conversing(keep), build)
        turns(serving, 12, 20, 28)
        tokens, kind = joint_claim(serving, shared)
        assert (tokens == shared and kind == "joint") == (shared in joint), shared
        assert codes(serving) == set()


def test_an_endpoint_that_another_conversation_needs_stays_too() -> None:
    serving = world(conversing(1), "unified")
    turns(serving, 12, conversation=1)
    turns(serving, 12, conversation=2)
    turns(serving, 28, conversation=1)  # moves on; the window at 12 is also the other one's endpoint
    assert joint_claim(serving, 12) == (12, "joint")
    turns(serving, 28, conversation=2)
    assert joint_claim(serving, 12)[0] < 12
    assert codes(serving) == set()


def test_a_page_that_went_to_another_prompt_is_no_longer_the_old_endpoints() -> None:
    """Three endpoints of one page each are evicted; the next conversation's endpoint gets one of their pages."""
    serving = world(conversing(1, drafter=Drafter("dflash", 3, 4)), "unified")
    for number in range(3):
        serve(serving, spec(number, 12, 3, conversation=number))
    nodes = serving.engine.twin.pools["draft"].node
    old = {page for page in range(64) if nodes[page] is not None}
    assert serving.apply(Shrink("draft", 0)).applied
    serve(serving, spec(3, PROMPT[:12], 3, conversation=3))
    assert {page for page in range(64) if nodes[page] is not None} < old
    serve(serving, spec(4, PROMPT, 3, conversation=3))
    assert joint_claim(serving, 12)[0] < 12


def test_requests_of_no_conversation_keep_their_endpoints() -> None:
    serving = world(conversing(1), "unified")
    turns(serving, 12, 20, conversation=-1)
    assert joint_claim(serving, 12) == (12, "joint")


def test_full_attention_keeps_the_whole_prefix_whatever_the_windows_do() -> None:
    serving = world(conversing(1), "unified")
    turns(serving, 12, 20, 28)
    assert serving.engine.twin.pools["target"].droppable == 7


@pytest.mark.parametrize(
    ("policy", "target", "draft"),
    [
        (PublishPolicy.ALL_REUSABLE, 8, 8),
        (PublishPolicy.PER_REQUEST, 8, 2),
        (PublishPolicy.PER_CONVERSATION, 8, 2),
        (PublishPolicy.NONE, 0, 0),
    ],
)
def test_a_policy_says_which_pages_of_a_context_become_reusable(policy: PublishPolicy, target: int, draft: int) -> None:
    """32 tokens in chunks of one page, a window of 8: every written page, or what is live at the endpoint."""
    serving = world(config(policy=policy, max_num_tokens=8), "unified")
    serve(serving, spec(0, PROMPT))
    assert [pool.droppable for pool in serving.engine.twin.pools.values()] == [target, draft]
    serve(serving, spec(1, PROMPT))
    assert serving.engine.records[1].cached_tokens == (31 if target else 0)
    assert codes(serving) == set()


def test_pages_of_a_higher_priority_outlive_newer_ones() -> None:
    serving = world(config(pages=26, draft_pages=26), "unified")
    serve(serving, spec(0, PROMPT, 3, priority=1))
    serve(serving, spec(1, 32, 3))
    serve(serving, spec(2, 48, 3))  # needs room: the pages of the second request go, the first one's stay
    serve(serving, spec(3, PROMPT, 3))
    assert serving.engine.records[3].cached_tokens == 31
    assert codes(serving) == set()
