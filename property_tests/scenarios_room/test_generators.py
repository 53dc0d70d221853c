"""Generated workloads: the shapes of the seeds and of the common workload, equal for equal seeds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from model.tokens import Segment
from scenarios import catalog
from scenarios.generate import agentic_workload, apportion, generator, groups_workload, layers_workload, lognormal
from scenarios.workload import Workload, prompt_lengths, segments_length
from scenarios.workload_schema import AgenticSpec, GroupsSpec, LayersSpec, Lognormal, RestartSpec

V = 200_064


@pytest.fixture(scope="module")
def agentic() -> Workload:
    return catalog.load("workloads/agentic").workload()


def test_the_agentic_replay_has_the_counts_of_the_seeds(agentic: Workload) -> None:
    assert len(agentic.sessions) == 52
    assert agentic.requests == 531
    assert agentic.concurrency == 48
    firsts = [session.turns[0].append[0] for session in agentic.sessions]
    (system, conversations) = Counter(firsts).most_common(1)[0]
    assert (system.length, conversations) == (30_600, 40)
    assert max(Counter(firsts).values(), default=0) == 40 and len(set(firsts)) == 13


def test_the_first_branching_request_of_the_replay_is_that_of_x10(agentic: Workload) -> None:
    publisher, branch = agentic.sessions[:2]
    assert publisher.turns[0].append[0] == branch.turns[0].append[0]
    assert prompt_lengths(branch)[0] == 30_893
    assert prompt_lengths(publisher)[0] >= 30_600 + 4_096


def test_new_tokens_of_the_replay_sum_to_what_s2_is_fitted_to(agentic: Workload) -> None:
    new, seen = 0, set[Segment]()
    for session in agentic.sessions:
        produced = 0
        for turn in session.turns:
            new += produced + sum(part.length for part in turn.append if part not in seen)
            seen.update(turn.append)
            produced = turn.max_new_tokens
    assert new == 535_000


def test_prompts_of_the_replay_add_up_to_18_million(agentic: Workload) -> None:
    lengths = [length for session in agentic.sessions for length in prompt_lengths(session)]
    assert sum(lengths) == pytest.approx(18.3e6, rel=0.01)


def test_runs_of_private_tokens_in_the_replay_start_differently(agentic: Workload) -> None:
    private = [part.first for session in agentic.sessions for turn in session.turns for part in turn.append[-1:]]
    assert len(set(private)) == len(private) == 531


@pytest.mark.parametrize("order", ["random", "round-robin"])
def test_the_common_workload_has_the_counts_of_the_peers(order: str) -> None:
    spec = GroupsSpec(order=order)  # pyright: ignore[reportArgumentType]
    workload = groups_workload(spec, 8, V, None)
    assert workload.requests == len(workload.sessions) == 1000
    groups = defaultdict(set)
    for session in workload.sessions:
        (turn,) = session.turns
        shared, private = turn.append
        assert (shared.length, private.length, turn.max_new_tokens) == (1536, 512, 200)
        assert private.first not in groups[shared], "two first private tokens of a group are equal"
        groups[shared].add(private.first)
    assert len(groups) == 8
    times = [session.arrival_s for session in workload.sessions]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1000 / 8, rel=0.15)


def test_a_burst_arrives_at_once() -> None:
    workload = groups_workload(GroupsSpec(rate=None), 8, V, None)
    assert {session.arrival_s for session in workload.sessions} == {0.0}


@pytest.mark.parametrize("seed", [0, 1])
def test_equal_seeds_give_equal_workloads_and_others_differ(seed: int) -> None:
    for make in (
        lambda value: groups_workload(GroupsSpec(requests=50), value, V, None),
        lambda value: agentic_workload(AgenticSpec(), value, V, 48),
        lambda value: layers_workload(LayersSpec(sessions=6), value, None),
    ):
        assert make(seed) == make(seed)
        assert make(seed) != make(seed + 2)


def test_layered_sessions_share_their_layers_and_nothing_else() -> None:
    spec = LayersSpec(sessions=60)
    workload = layers_workload(spec, 3, None)
    parents = {session.name for session in workload.sessions if session.parent is None}
    assert len(parents) == 60
    firsts = [session.turns[0].append for session in workload.sessions if session.name in parents]
    assert {parts[0].length for parts in firsts} == {32_000}
    assert len({parts[0] for parts in firsts}) == 1
    assert 1 < len({parts[1] for parts in firsts}) < 60
    assert {parts[1].length for parts in firsts} == {10_000}
    assert len({parts[2] for parts in firsts}) == 60
    assert max(length for session in workload.sessions for length in prompt_lengths(session)) <= 200_000


def test_a_restart_begins_on_the_layers_of_the_session_that_it_replaces() -> None:
    spec = LayersSpec(sessions=40, restart=RestartSpec(share=1.0, first=2, last=4))
    sessions = {session.name: session for session in layers_workload(spec, 4, None).sessions}
    again = [session for session in sessions.values() if session.parent is not None]
    assert len(again) >= 35
    for session in again:
        assert session.parent is not None
        parent, turn = session.parent
        assert turn == len(sessions[parent].turns) - 1
        assert session.turns[0].append[:3] == sessions[parent].turns[0].append[:3]
        assert session.turns[0].append[3:] != sessions[parent].turns[0].append[3:]


def test_a_reset_sends_the_layers_again_with_a_summary() -> None:
    workload = layers_workload(LayersSpec(sessions=40), 5, None)
    resets = [(session, turn) for session in workload.sessions for turn in session.turns if turn.whole]
    assert 0 < len(resets) < workload.requests / 5
    for session, turn in resets:
        assert turn.append[:3] == session.turns[0].append[:3]
        assert len(turn.append) == 5


def test_a_lognormal_has_the_median_and_the_mean_it_is_given() -> None:
    draws = lognormal(generator(1, "test"), Lognormal(median=4000.0, mean=6000.0, max=None), 400_000)
    assert np.median(draws) == pytest.approx(4000, rel=0.01)
    assert np.mean(draws) == pytest.approx(6000, rel=0.01)
    assert lognormal(generator(1, "test"), Lognormal(median=4000.0, mean=6000.0, max=5000.0), 1000).max() == 5000


@pytest.mark.parametrize("total", [7, 8, 100, 12_345])
def test_shares_sum_to_the_total_and_leave_nobody_out(total: int) -> None:
    shares = apportion(total, np.array([1.0, 2.0, 4.0, 0.001, 3.0, 1.0, 1.0]))
    assert sum(shares) == total
    assert min(shares) >= 1
    with pytest.raises(ValueError, match="6 cannot give 1 to each of 7"):
        apportion(6, np.ones(7))


def test_the_shipped_layers_workload_is_a_branch_heavy_one() -> None:
    workload = catalog.load("workloads/agent_layers").workload()
    prompts = [length for session in workload.sessions for length in prompt_lengths(session)]
    added = sum(segments_length(turn.append) for session in workload.sessions for turn in session.turns)
    assert 200 <= workload.requests <= 600
    assert sum(prompts) > 5 * added
    assert not math.isnan(sum(turn.think_s for session in workload.sessions for turn in session.turns))
