"""Worlds that random search found to break a law on a correct build, cut down; each stays silent now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec, Scope
from model.fleet import Fleet
from model.geometry import Lifecycle
from model.linkops import Arrive, Send
from model.ops import CHECKS, At, Dispatch, Fail, Op, Settle, Submit, Suspend, World
from model.pair import Pair
from model.tokens import Segment
from property_tests.laws.healthy import FIRST, finish, healthy, pool_of, request_of, sequence_of
from property_tests.laws.worlds import fitted, random_world

LIMITS = Limits(4, 4, 24, 160, 4, extra_tokens=2, stall_passes=20)


def world(
    build: str,
    kind: str,
    window: int | None,
    *,
    sinks: int = 0,
    drafts: int = 1,
    check: str = "exhaustive",
    **changes: Any,
) -> World:
    """A world with 40 pages of 4 tokens in each pool, unless ``changes`` of its configuration say otherwise."""
    config = EngineConfig(
        target=(Lifecycle("full", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", window, sinks),) if kind != "ngram" else (),
        drafter=Drafter(kind, drafts, window),
        limits=LIMITS,
        pools={"target": PoolSize(40), "draft": PoolSize(40)},
        vocabulary=4096,
    )
    return World(replace(config, **changes), BUILDS[build], check=check)


def ask(request_id: int, *prompt: tuple[int, int], output: int = 4) -> Submit:
    """A request whose prompt is runs of (stream, tokens)."""
    return Submit(RequestSpec(request_id, tuple(Segment(*run) for run in prompt), output, 5000 + request_id))


def served(world: World, *ops: Op) -> World:
    """``world`` after ``ops`` and the end of all work."""
    for op in ops:
        world.apply(op)
        finish(world)
    return world


@pytest.mark.parametrize("page_end", [1, 4, 5, 8])
@pytest.mark.parametrize(("build", "kind"), [("target-21", "mtp"), ("unified", "dflash"), ("paired-22", "dspark")])
def test_a_drafter_with_sinks_does_not_read_sinks_that_a_hit_never_wrote(build: str, kind: str, page_end: int) -> None:
    # A mirror that starts behind a hit has no sinks: they are hidden by its base, or the drafter starts with the hit.
    sinking = world(build, kind, 3, sinks=8)
    served(sinking, ask(0, (1, page_end), output=1), ask(1, (1, page_end), (2, 14), output=9))
    assert sinking.violations == []


def test_a_mirror_without_history_is_refused_where_its_whole_prompt_does_not_fit() -> None:
    # An attending drafter beside the target's reuse backs everything below the hit, however narrow its window is.
    first, long = ask(0, (1, 24), output=1), ask(1, (1, 24), (2, 17))
    limits, pools = replace(LIMITS, max_num_tokens=8), {"target": PoolSize(24), "draft": PoolSize(10)}
    narrow = world("target-21", "mtp-eagle", 8, limits=limits, pools=pools)
    assert "pages of pool 'draft', which has 10" in narrow.apply(long).why
    fits = fitted(narrow.config, narrow.build, [first.spec, long.spec], slack=0)
    roomy = served(World(fits, narrow.build, check="exhaustive"), first, long)
    assert [record.state for record in roomy.engine.records.values()] == ["finished", "finished"]
    assert roomy.engine.records[1].cached_tokens == 24
    assert roomy.violations == []


def test_fused_pages_are_as_many_as_the_targets_whatever_the_drafters_pool_is_told() -> None:
    short = world("sglang-fused", "mtp", 8, pools={"target": PoolSize(10), "draft": PoolSize(90)})
    assert "which has 10" in short.apply(ask(0, (1, 50))).why
    roomy = world("sglang-fused", "mtp", 8, pools={"target": PoolSize(20), "draft": PoolSize(1)})
    assert served(roomy, ask(0, (1, 50))).engine.records[0].state == "finished"
    assert roomy.violations == []


def test_a_preempted_request_keeps_its_own_cells_behind_the_prompt() -> None:
    # At lookahead 1 the prompt's last cell depends on the first output: when a request prefills again with its
    # outputs, the full page that another request published there holds that one's cell.
    limits = replace(LIMITS, max_batch=5, max_num_tokens=21, extra_tokens=0, max_util_for_resume=0.5)
    pools = {"target": PoolSize(22), "draft": PoolSize(13)}
    crowded = world("unified", "eagle3", 8, limits=limits, pools=pools, policy=PublishPolicy.PER_CONVERSATION)
    one, other = ((2, 16), (100, 12)), ((1, 28), (100, 12))
    step = Dispatch()
    ops: list[Op] = [ask(0, *one, output=11), step, step, Settle(()), ask(1, *one, output=4), Settle(())]
    ops += [ask(2, *other, output=6), step, ask(3, *other, output=1), step, Settle((1,)), step, Settle((1, 1)), step]
    ops += [Settle((2, 2)), step, Settle((1, 1, 1)), step, Settle((1, 1)), Settle((2, 2)), step, step, Settle((1, 1))]
    ops += [Settle((1,)), step, step, Settle(()), Settle((1,))]
    for op in ops:
        crowded.apply(op)
    assert crowded.engine.totals.preemptions > 0
    finish(crowded)
    assert crowded.violations == []


def test_a_memory_without_a_drafters_pool_defers_cells_and_tells_the_same() -> None:
    told, limits = {}, replace(LIMITS, extra_tokens=12)
    for check in CHECKS[1:]:
        plain = world("unified", "ngram", None, check=check, limits=limits)
        told[check] = served(plain, ask(0, (1, 14), output=30)).memory_digest()
    assert told["incremental"] == told["exhaustive"]


@pytest.mark.parametrize("again", [Dispatch(skip=True), Fail()])
def test_a_failed_step_after_a_suspension_is_charged_with_its_own_growth_only(again: Op) -> None:
    # The step in flight settles while its request is suspended; the resume in the failing pass applies it.
    suspended = healthy()
    suspended.apply(Dispatch())
    suspended.apply(Suspend(FIRST))
    suspended.apply(Settle((1, 4)))
    behind = sequence_of(suspended).history
    assert suspended.apply(again).applied
    assert sequence_of(suspended).history == behind + 1 == request_of(suspended).settled_position()
    assert suspended.violations == []
    finish(suspended)
    assert suspended.violations == []
    assert pool_of(suspended).used() == 0


def test_suspended_requests_that_step_aside_in_turn_do_not_wait_for_ever() -> None:
    # With a host tier three requests hold more than any of them can resume beside; a pass in which the one that
    # resumed steps aside again is no progress, so the newest gives its pages up.
    limits = replace(LIMITS, page_size=2, max_num_tokens=47, extra_tokens=0)
    pools = {"target": PoolSize(39, 5), "draft": PoolSize(62, 5)}
    full = world("unified", "eagle3", 8, drafts=3, limits=limits, pools=pools)
    for request_id, (prompt, output) in enumerate(((38, 4), (48, 20), (22, 20))):
        assert full.apply(ask(request_id, (request_id, prompt), output=output)).applied
    finish(full)
    assert [record.state for record in full.engine.records.values()] == ["finished"] * 3
    assert full.violations == []


@pytest.mark.parametrize(
    ("seed", "build"), [(70_018, "vllm-lookahead"), (70_553, "paired-22"), (80_188, "recompute-tail")]
)
def test_worlds_in_which_the_laws_of_refusals_and_preemptions_spoke_without_need(seed: int, build: str) -> None:
    # A preempted request gives its sinks as well; a mirror that is told no history stands where its context ends.
    drawn, driver = random_world(seed, build, tight=True)
    assert driver.run()
    assert drawn.engine.totals.preemptions > 0
    assert drawn.violations == []


@pytest.mark.parametrize(
    ("seed", "build", "tight"),
    [
        (200_024, "unified", True),  # what a request published before a loss set it back stays published
        (200_032, "recompute-tail", True),  # a sibling that was lost later was there when its block was matched
        (300_198, "unified-page", False),  # a page whose load failed holds what was there before, under other keys
        (200_291, "sglang-fused", True),  # a hit is taken back while its own epoch lasts, not after a preemption
    ],
)
def test_worlds_in_which_lost_copies_misled_the_laws(seed: int, build: str, tight: bool) -> None:
    drawn, driver = random_world(seed, build, tight=tight)
    assert driver.run()
    assert drawn.engine.totals.lost_copies > 0
    assert drawn.violations == []


def test_a_narrow_layer_publishes_the_page_in_which_a_branch_point_lies() -> None:
    # One drafter layer sees 16 tokens, another one: it has released the page of the branch when the prompt ends.
    drawn, driver = random_world(301_086, "paired-22")
    assert driver.run()
    assert drawn.engine.totals.branch_windows > 0
    assert drawn.violations == []


def test_a_branch_in_the_last_block_of_a_prompt_is_published_although_a_longer_block_is_cached() -> None:
    # The second prompt is the start of the first one: its last token is computed again, the branch lies before it, and
    # the block there is a part of the cached one, whose drafter page was outside the window at the first one's end.
    limits = replace(LIMITS, page_size=8)
    branching = world("paired-22", "dflash", 4, limits=limits)
    served(branching, ask(1, (1, 19), output=1), ask(2, (1, 2), output=3))
    assert branching.engine.totals.branch_windows == 1
    assert branching.violations == []
    assert served(branching, ask(3, (1, 2), output=3)).engine.records[3].draft_cached_tokens == 1


def test_a_chain_longer_than_the_prompt_that_was_received_rewrites_no_cell_before_its_start() -> None:
    # Three modules behind a prompt of one token: the cells that still change would begin two tokens before it.
    chained = world("unified", "mtp", None)
    config = replace(chained.config, drafter=Drafter("mtp", 1, None, 3))
    pair = Pair((config, config), chained.build, check="exhaustive")
    for op in (ask(1, (1, 1), output=2), At(0, Dispatch()), At(0, Settle(())), Send(1), Arrive(1)):
        assert pair.apply(op).applied
    for op in (At(1, Dispatch()), At(1, Settle((1,)))):
        assert pair.apply(op).applied
    pair.drain()
    assert pair.records()[1].state == "finished"
    assert pair.violations == []


def test_a_rank_whose_device_pages_are_all_locked_cannot_run_a_dummy_however_empty_its_host_tier_is() -> None:
    limits = replace(LIMITS, max_batch=2, max_num_tokens=11, extra_tokens=3, max_util_for_resume=1.0)
    pools = {"target": PoolSize(19, 12), "draft": PoolSize(1, 12)}
    layers = (Lifecycle("full", "target", "target"), Lifecycle("swa", "target", "target", 5))
    full = world("sglang-fused", "dspark", None, drafts=2, limits=limits, pools=pools, target=layers)
    fleet = Fleet((full.config, full.config), full.build, check="exhaustive")
    for request in (ask(1, (1, 2), (2, 8), output=6), ask(2, (1, 6), output=3)):
        fleet.apply(At(0, request))
    for counts in ((), (), (), (1, 1), (3,)):
        fleet.apply(Dispatch())
        if fleet.workers[0].in_flight > 1 or counts:
            fleet.apply(At(0, Settle(counts)))
            fleet.apply(At(1, Settle(())))
    fleet.apply(Dispatch())
    assert fleet.violations == []


def test_two_partial_blocks_that_begin_with_the_same_token_are_two_children() -> None:
    # Below two children no block is matched in part. The drafter's tree has both, the target's has lost one of them:
    # a preempted request finds its own last block and not a token of it, and claims the evidence less of the rest.
    limits = replace(LIMITS, max_batch=2, max_num_tokens=64, extra_tokens=3, max_util_for_resume=1.0, run_ahead=0)
    limits = replace(limits, partial_children=2)
    pools = {"target": PoolSize(12), "draft": PoolSize(12)}
    lone = world("joint-backoff", "mtp-eagle", 7, drafts=4, limits=limits, pools=pools)
    pair = Pair((lone.config, lone.config), lone.build, check="exhaustive")
    prompts = (
        (Segment(11, 14, first=1),),
        (Segment(11, 13), Segment(14, 1)),
        (Segment(11, 13, first=1), Segment(14, 1)),
    )
    first, other, last = (
        Submit(RequestSpec(number, prompt, output, 5000 + number))
        for number, prompt, output in zip((1, 2, 3), prompts, (1, 2, 2), strict=True)
    )
    step, settle = Dispatch(), Settle(())
    for op in (first, other, step, last, settle, step, settle, step, step, settle):
        pair.apply(At(0, op))
    assert pair.prefill.engine.totals.preemptions == 1
    assert pair.records()[3].claims == [12, 11]
    assert pair.violations == []


def test_equal_target_pages_under_keys_that_look_ahead_lie_in_two_nodes() -> None:
    # Both prompts hold tokens 4 to 7 and part at 8, which the key of that block depends on: the window of the second
    # one is no part of the first one's path, so a third prompt on that path does not find it.
    layers = (Lifecycle("full", "target", "target"), Lifecycle("swa", "target", "target", 10))
    shifted = world("sglang-fused", "mtp", None, target=layers, policy=PublishPolicy.PER_REQUEST)
    parts = ask(2, (11, 8), (13, 1), output=1)
    served(shifted, ask(1, (11, 17), output=1), parts, ask(3, (11, 14), output=1))
    assert shifted.engine.records[3].cached_tokens == 0
    assert shifted.violations == []


def test_children_are_told_by_their_parents_key_not_by_what_its_last_drafter_cell_depends_on() -> None:
    # The drafter's tree has two children below the first block, published by prompts that part three tokens behind it.
    limits = replace(
        LIMITS, max_batch=1, max_num_tokens=64, extra_tokens=0, max_util_for_resume=1.0, partial_children=2
    )
    pools = {"target": PoolSize(7), "draft": PoolSize(9)}
    chained = world("paired-22-nobranch", "mtp", None, drafts=5, limits=limits, pools=pools)
    config = replace(chained.config, drafter=Drafter("mtp", 5, None, 3))
    crowded = World(config, chained.build, check="exhaustive")
    step, one = Dispatch(), Settle((1,))
    ops = [ask(1, (11, 8), output=2), step, ask(2, (11, 5), (13, 1), output=5), Settle(()), step, one, ask(3, (11, 8))]
    for op in (*ops, step, Settle(()), step, one, step, one, step, step, one, one, step, Settle(())):
        crowded.apply(op)
    assert crowded.engine.records[3].claims == [1]
    assert crowded.violations == []


def test_a_pair_that_agrees_on_no_endpoint_claims_nothing_although_both_hold_the_prompts_start() -> None:
    # The drafter sees up to 16 and one token of evidence; the target has two children there, matches no block in part
    # and gives 15; there the drafter lacks its window and gives 8. The pair falls back to no reuse.
    limits = replace(LIMITS, page_size=8, max_batch=1, max_num_tokens=64, extra_tokens=0, partial_children=2)
    apart = world("paired-22", "mtp", 1, sinks=8, limits=limits)
    plain = Submit(RequestSpec(1, (Segment(11, 24, first=1),), 1, 5001, drafts=False))
    parts = Submit(RequestSpec(2, (Segment(11, 17, first=1), Segment(12, 1)), 1, 5002))
    served(apart, plain, parts, Submit(RequestSpec(3, (Segment(11, 24, first=1),), 2, 5003)))
    assert apart.engine.totals.fallbacks == 1
    assert apart.engine.records[3].cached_tokens == 0
    assert apart.violations == []


def test_the_newest_makes_room_where_the_gate_shut_in_the_pass_that_set_it_back() -> None:
    # A suspended request may not resume above half of 22 pages. The first one's growth reaches that before its turn.
    limits = replace(LIMITS, page_size=2, max_batch=3, max_num_tokens=9, extra_tokens=0, max_util_for_resume=0.5)
    gated = world("sglang-fused", "ngram", None, limits=limits, pools={"target": PoolSize(22)})
    other = RequestSpec(3, (Segment(11, 3), Segment(13, 3)), 1, 5003, scope=Scope(salt="s"))
    step = Dispatch()
    ops = [ask(1, (11, 7), output=6), step, ask(2, (11, 1)), step, Submit(other), Settle(()), step, Settle((1,)), step]
    for op in (*ops, Settle((2, 1)), Suspend(2), step):
        gated.apply(op)
    assert gated.engine.records[3].preemptions == 1
    finish(gated)
    assert gated.violations == []
