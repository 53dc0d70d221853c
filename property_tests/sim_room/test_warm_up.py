"""S5 in small: agents with long contexts, and prefill-only requests that branch off inside them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from model.builds import BUILDS
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from scenarios.workload import Session, segments_length
from sim.result import RunResult
from sim.run import run_scenario

WINDOW, PAGE, REQUESTS = 4096, 128, 42
SIZES = "context: {median: 28000, mean: 30000, max: 60000}, task: {median: 5000, mean: 6000, max: 9000}"


def warm_up(more: str = "agents: 6, open: 3, system: 6000, opening: 500") -> Scenario:
    branches = f"branches: {{requests: {REQUESTS}, {more}, {SIZES}}}"
    text = f"geometry: minimax-m3.1-flash-like\nworkload: {{concurrency: 8, {branches}}}\n"
    return parse_scenario(text, "warm_up", Path())


@cache
def prefilled(build: str) -> RunResult:
    return run_scenario(warm_up(), BUILDS[build])


def tokens(session: Session) -> int:
    return segments_length(session.turns[0].append)


def test_every_request_begins_with_the_system_prompt_and_an_agents_context() -> None:
    sessions = warm_up().workload().sessions
    assert len(sessions) == REQUESTS
    assert all(len(session.turns) == session.turns[0].max_new_tokens == 1 for session in sessions)
    assert {session.turns[0].append[0].length for session in sessions} == {6000}
    agents = {session.name.split("-")[0]: session.turns[0].append[1].seed for session in sessions}
    assert len(agents) == len(set(agents.values())) == 6
    for session in sessions:
        assert session.turns[0].append[1].seed == agents[session.name.split("-")[0]]


def test_an_agent_opens_then_sends_its_context_then_its_sub_agents_branch_off() -> None:
    for agent in range(6):
        own = [one for one in warm_up().workload().sessions if one.name.startswith(f"a{agent:03d}")]
        opening, context, *branches = [one.turns[0].append for one in own]
        assert (opening[1].length, len(opening), len(context)) == (500, 2, 2)
        assert len(branches) == 5
        for branch in branches:
            assert 0.5 * context[1].length - 1 <= branch[1].length <= context[1].length


def test_the_requests_of_open_agents_take_turns() -> None:
    names = [session.name[:4] for session in warm_up().workload().sessions]
    assert names[:6] == ["a000", "a001", "a002"] * 2
    assert all(one != other for one, other in pairwise(names))


def test_an_agent_without_an_opening_sends_its_context_first() -> None:
    sessions = warm_up("agents: 6, open: 1, system: 0, opening: 0").workload().sessions
    assert [len(session.turns[0].append) for session in sessions[:3]] == [1, 2, 2]
    assert tokens(sessions[0]) > 10_000


@pytest.mark.parametrize(("opening", "least"), [(500, 2), (0, 1)])
def test_more_agents_than_requests_are_refused(opening: int, least: int) -> None:
    with pytest.raises(InputError, match=f"expected at least {least} for each of 99 agents, found {REQUESTS}"):
        warm_up(f"agents: 99, opening: {opening}").workload()


def test_clipping_to_a_window_costs_less_than_a_window_and_a_page_a_request() -> None:
    unified, paired = (prefilled(build).totals.prefilled_tokens for build in ("unified", "paired-22"))
    assert abs(paired - unified) <= REQUESTS * (WINDOW + PAGE - 1)


def test_a_shallow_match_that_wins_over_a_deeper_fresh_mirror_multiplies_the_prefill() -> None:
    first, deeper = (prefilled(build) for build in ("paired-22-draft-first", "paired-22"))
    assert first.totals.prefilled_tokens > 2 * deeper.totals.prefilled_tokens
    assert first.totals.joint_claims > deeper.totals.joint_claims
    assert (first.violations, first.totals.preemptions) == ([], 0)


def test_the_target_alone_prefills_what_no_reuse_can_save_and_part_of_a_page_a_request() -> None:
    alone, unified = (prefilled(build).totals.prefilled_tokens for build in ("target-21", "unified"))
    assert alone <= unified + REQUESTS * PAGE


@pytest.mark.parametrize(("build", "low", "high"), [("target-21", 1.0, 1.2), ("unified", 1.9, 2.3)])
def test_misses_summed_over_groups_count_a_prefilled_page_once_a_group(build: str, low: float, high: float) -> None:
    """S8: 2.1 times the prefilled pages in the unified layout; the target's group alone agrees with the tokens."""
    result = prefilled(build)
    granted = {pool.name: pool.granted for pool in result.occupancy}
    pages = result.totals.prefilled_tokens / PAGE
    missed = sum(granted.values()) if build == "unified" else granted["target"]
    assert low <= missed / pages <= high
    assert 0.98 <= granted["target"] / pages <= 1.1
