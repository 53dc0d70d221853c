"""Copies between the tiers that take time: what waits for them, what they bring, and what is lost with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.copies import Copy, CopyBook
from model.events import FIELDS, Kind
from model.geometry import Lifecycle
from model.ops import Dispatch, Land, Lose, Op, Settle, Submit, Suspend, World
from model.plan import StepPlan
from model.rules.offload import Offload
from model.tokens import Segment

OLD, YOUNG, AGAIN = 0, 1, 2  # request ids


def spec(request_id: int, prompt: int, output: int, stream: int | None = None) -> RequestSpec:
    seed = 100 + request_id if stream is None else stream
    return RequestSpec(request_id, (Segment(seed, prompt),), output, 900 + request_id)


def tiered(*specs: RequestSpec, pages: int = 12, host: int = 12, check: str = "exhaustive", **rule: bool) -> World:
    """A world whose target pool has a host tier; ``rule`` changes answers of the offload rule."""
    config = EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(),
        drafter=Drafter("ngram", 1),
        limits=Limits(4, 4, 64, 128, 4, extra_tokens=0, run_ahead=1, max_util_for_resume=1.0, stall_passes=20),
        pools={"target": PoolSize(pages, host)},
        vocabulary=4096,
        asynchronous_copies=True,
    )
    build = BUILDS["unified"]
    build = replace(build, rules=replace(build.rules, offload=Offload("changed", **rule))) if rule else build
    world = World(config, build, check=check, keep_events=True)
    for one in specs:
        assert world.apply(Submit(one)).applied
    return world


def dispatch(world: World) -> StepPlan:
    plan = world.apply(Dispatch()).plan
    assert plan is not None
    return plan


def settle(world: World) -> None:
    rows = world.engine.plans[0].generation
    outcome = world.apply(Settle((1,) * len(rows)))
    assert outcome.applied, outcome.why


def flying(world: World, store: bool | None = None) -> list[Copy]:
    assert world.engine.book is not None
    return [copy for copy in world.engine.book.open.values() if store in (None, copy.store)]


def serve(world: World, fails: tuple[int, ...] = ()) -> None:
    """Run to the end; copies in ``fails`` are lost, the others land as soon as they may."""
    for _ in range(400):
        if not world.engine.has_work():
            break
        if world.engine.in_flight > 1 or not world.apply(Dispatch()).applied:
            for copy in flying(world):
                world.apply(Lose(copy.number) if copy.number in fails else Land(copy.number))
            settle(world)
    world.drain()


def pressed() -> World:
    """OLD grows into a full pool with its row and YOUNG's in flight: YOUNG steps aside and a page of it falls."""
    world = tiered(spec(OLD, 17, 16), spec(YOUNG, 15, 16), pages=12)
    for _ in range(40):
        if world.engine.in_flight > 1:
            settle(world)
        dispatch(world)
        if flying(world):
            return world
    raise AssertionError("nothing fell into the host tier")


# -- who waits for whom -----------------------------------------------------------------------------------------------


def test_a_store_waits_for_the_step_ahead_and_the_step_that_was_granted_its_page_waits_for_the_store() -> None:
    world = pressed()
    store = flying(world)[0]
    ahead, new = world.engine.plans
    assert (store.store, store.fence) == (True, ahead.iteration)
    assert store.number in new.waits
    assert world.apply(Land(store.number)).why == f"{store} waits for iteration {ahead.iteration}"
    settle(world)
    assert world.apply(Settle((1,) * len(new.generation))).why == f"the step waits for {store}"
    assert world.apply(Land(store.number)).applied
    settle(world)
    assert world.violations == []


def test_a_copy_waits_for_an_earlier_one_that_uses_its_slot() -> None:
    book = CopyBook(Offload())
    first = book.begin(0, 5, (3, 9), store=True)
    back = book.begin(0, 5, (9, 4), store=False)
    other = book.begin(0, 6, (7, 10), store=True)
    assert (first.after, back.after, other.after) == ((), (first.number,), ())
    assert book.refusal(back.number, None) == f"{back} waits for {first}"
    assert book.refusal(other.number, None) == ""
    book.end(first.number)
    assert book.refusal(back.number, None) == ""


def test_a_copy_waits_for_what_the_records_ahead_of_it_wait_for() -> None:
    book = CopyBook(Offload())
    store = book.begin(0, 5, (3, 9), store=True)
    book.named(0, (3,))  # the slot is granted
    later = book.begin(0, 6, (7, 10), store=True)
    assert later.after == (store.number,)
    assert book.waits(()) == (store.number,)
    assert book.waits(()) == ()


def test_the_number_of_a_copy_that_is_not_under_way_is_a_skip() -> None:
    world = pressed()
    assert world.apply(Land(99)).why == "copy 99 is not under way"
    plain = World(replace(world.config, asynchronous_copies=False), world.build)
    for op in (Land(0), Lose(0)):
        assert plain.apply(op).why == "copies between the tiers are done at once here"
    assert plain.skips == 2


def test_every_end_of_a_copy_is_recorded() -> None:
    world = pressed()
    settle(world)
    store, *others = flying(world)
    world.apply(Lose(store.number))
    for copy in others:
        world.apply(Land(copy.number))
    serve(world)
    seen = dict(world.log.decisions.records())
    for kind in (Kind.START, Kind.LAND, Kind.LOSE):
        assert len(seen[kind]) == len(FIELDS[kind])
    assert seen[Kind.LOSE] == (store.number,)


# -- what a copy brings -----------------------------------------------------------------------------------------------


def test_the_bytes_move_when_a_copy_lands_and_not_before() -> None:
    world = pressed()
    assert world.watch is not None
    store = flying(world)[0]
    settle(world)
    cells = world.watch.shadow.cells[store.pool]
    before = cells[store.source].copy()
    assert (cells[store.target] != before).any()
    world.apply(Land(store.number))
    assert (cells[store.target] == before).all()


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
def test_requests_that_take_turns_in_the_host_tier_finish(check: str) -> None:
    world = tiered(spec(OLD, 17, 16), spec(YOUNG, 15, 16), pages=12, check=check)
    serve(world)
    assert [record.state for record in world.engine.records.values()] == ["finished"] * 2
    assert world.engine.totals.stores
    assert world.engine.totals.loads
    assert world.violations == []
    assert world.docket.evaluations["FLIGHT"] > 0


def test_copies_that_are_under_way_at_the_end_are_waited_for() -> None:
    world = tiered(spec(OLD, 17, 2), spec(YOUNG, 15, 2), pages=8)
    for _ in range(60):
        if not world.engine.has_work():
            break
        if world.engine.in_flight > 1 or not world.apply(Dispatch()).applied:
            for number in world.engine.plans[0].waits:
                world.apply(Land(number))
            settle(world)
    world.drain()
    assert flying(world) == []
    assert world.violations == []


# -- what is lost with a copy -----------------------------------------------------------------------------------------


def repeat(fails: int) -> tuple[World, int]:
    """YOUNG pushes OLD's prompt to the host; AGAIN repeats it, and the load with the place ``fails`` among its loads is
    lost. Returns the world at its end and the first token of the lost page."""
    world = tiered(spec(OLD, 24, 2, stream=7), pages=12)
    serve(world)
    assert world.apply(Submit(spec(YOUNG, 38, 2))).applied
    serve(world)
    assert world.apply(Submit(spec(AGAIN, 26, 2, stream=7))).applied
    dispatch(world)
    loads = flying(world, store=False)
    assert len(loads) > 2
    table = world.engine.twin.sequences(world.engine.live[AGAIN])[0].tables[0]
    block = table.pages.index(loads[fails].page)
    for copy in flying(world):
        world.apply(Lose(copy.number) if copy is loads[fails] else Land(copy.number))
    serve(world)
    assert world.violations == []
    return world, 4 * block


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_hit_is_cut_at_the_page_whose_load_failed_and_counted_as_far_as_it_goes(place: int) -> None:
    world, lost = repeat(place)
    record = world.engine.records[AGAIN]
    assert record.claims == [24, lost]
    assert (record.cached_tokens, record.state, record.preemptions) == (lost, "finished", 1)
    assert world.engine.totals.cached_tokens == lost


def test_a_suspended_request_whose_page_is_lost_on_its_way_to_the_host_begins_again() -> None:
    world = pressed()
    settle(world)
    store = flying(world)[0]
    young = world.engine.live[YOUNG]
    owner = young.owner
    world.apply(Lose(store.number))
    assert (young.owner, young.record.preemptions, young.started) == (-1, 1, False)
    assert owner not in world.engine.owners
    serve(world)
    assert [record.state for record in world.engine.records.values()] == ["finished"] * 2
    assert world.violations == []


def test_rows_that_wait_for_a_lost_load_compute_nothing_and_what_they_published_goes() -> None:
    world = tiered(spec(OLD, 24, 2, stream=7), pages=12)
    serve(world)
    world.apply(Submit(spec(YOUNG, 38, 2)))
    serve(world)
    world.apply(Submit(spec(AGAIN, 32, 8, stream=7)))
    dispatch(world)  # its chunk publishes blocks that depend on the loads
    index, keys = world.engine.twin.target.tree.index, world.engine.live[AGAIN].keys
    assert keys is not None
    published = [key in index for key in keys.keys]
    lost = flying(world, store=False)[1]
    for copy in flying(world):
        world.apply(Lose(copy.number) if copy is lost else Land(copy.number))
    late = world.engine.totals.late_outputs
    settle(world)
    assert world.engine.totals.late_outputs == late + 1
    assert published == [True] * 8
    assert [key in index for key in keys.keys] == [True, True] + [False] * 6
    serve(world)
    assert world.violations == []


def test_a_suspension_in_the_middle_of_a_load_leaks_nothing() -> None:
    world = tiered(spec(OLD, 17, 16), spec(YOUNG, 15, 16), pages=12)
    ops: list[Op] = [Suspend(OLD), Suspend(YOUNG)]
    for turn in range(200):
        if not world.engine.has_work():
            break
        if flying(world, store=False):
            world.apply(ops[turn % 2])
        if world.engine.in_flight > 1 or not world.apply(Dispatch()).applied:
            for copy in flying(world):
                world.apply(Land(copy.number))
            settle(world)
    serve(world)
    assert world.violations == []
    assert all(use.held == use.locked == 0 for use in world.engine.occupancy())
