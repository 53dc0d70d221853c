"""A prefill and a decode worker: what is sent, what stays until it has arrived, and what a request starts with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.builds import BUILDS, Build
from model.config import Drafter, EngineConfig, Limits, PoolSize, RequestSpec
from model.events import Kind, named_fields
from model.geometry import Lifecycle
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Settle, Shrink, Submit, Suspend
from model.pair import DECODE, PREFILL, Pair
from model.request import GENERATION, RECEIVING, SENDING
from model.tokens import Segment

PAGE, WINDOW = 4, 8


def config(*, kind: str = "dflash", pages: int = 40, draft_pages: int = 40, run_ahead: int = 1) -> EngineConfig:
    return EngineConfig(
        target=(Lifecycle("target", "target", "target"),),
        draft=(Lifecycle("draft", "draft", "draft", WINDOW),),
        drafter=Drafter(kind, 3, WINDOW),
        limits=Limits(PAGE, 4, 64, 128, PAGE, extra_tokens=4, run_ahead=run_ahead, stall_passes=10),
        pools={"target": PoolSize(pages), "draft": PoolSize(draft_pages)},
        vocabulary=4096,
    )


def pair_of(build: str | Build = "unified", *, drafts: bool = True, **settings: int | str) -> Pair:
    made = config(**settings)  # type: ignore[arg-type]
    return Pair((made, made), BUILDS[build] if isinstance(build, str) else build, drafts=drafts, check="exhaustive")


def request(request_id: int, length: int = 18, output: int = 12, shared: int = 0) -> Submit:
    own = Segment(100 + request_id, length - shared)
    prompt = (Segment(1, shared), own) if shared else (own,)
    return Submit(RequestSpec(request_id, prompt, output, 900 + request_id))


def step(pair: Pair, worker: int, tokens: int = 1) -> None:
    """One iteration of a worker, from dispatch to settle."""
    assert pair.apply(At(worker, Dispatch())).applied
    plans = pair.workers[worker].engine.plans
    assert pair.apply(At(worker, Settle((tokens,) * len(plans[0].generation)))).applied


def prefilled(pair: Pair, *ops: Submit) -> None:
    """Submit and prefill requests, one after the other."""
    for op in ops:
        assert pair.apply(op).applied
        while op.spec.request_id not in pair.ready():
            step(pair, PREFILL)


def finish(pair: Pair) -> None:
    """Deliver everything, generate to the end, drain; no law is broken."""
    for _ in range(200):
        for request_id in pair.ready():
            pair.apply(Send(request_id))
        for request_id in list(pair.transfers):
            pair.apply(Arrive(request_id))
        for worker in (PREFILL, DECODE):
            engine = pair.workers[worker].engine
            if not (engine.in_flight <= 1 and pair.apply(At(worker, Dispatch())).applied) and engine.in_flight:
                pair.apply(At(worker, Settle((2,) * len(engine.plans[0].generation))))
        if not pair.has_work():
            break
    pair.drain()
    assert not pair.has_work()
    assert pair.violations == []


def locked(pair: Pair, worker: int, pool: str = "target") -> int:
    return next(use.locked for use in pair.workers[worker].engine.occupancy() if use.name == pool)


# -- the life of a request ---------------------------------------------------------------------------------------


def test_a_prompt_is_computed_on_one_worker_and_generated_on_the_other() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    source = pair.prefill.engine.live[0]
    assert source.state is SENDING and source.generated == 1
    assert pair.apply(Send(0)).applied
    assert pair.decode.engine.live[0].state is RECEIVING
    assert pair.apply(Arrive(0)).applied
    assert pair.decode.engine.live[0].state is GENERATION
    finish(pair)
    sent, received = pair.prefill.engine.records[0], pair.decode.engine.records[0]
    assert (sent.state, sent.prefilled_tokens, sent.output_tokens) == ("sent", 18, 1)
    assert (received.state, received.prefilled_tokens, received.received_tokens) == ("finished", 0, 18)
    assert received.output_tokens == 11


def test_the_cells_are_those_of_the_prefill_worker() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    legs = pair.transfers[0].legs
    assert {leg.pool for leg in legs} == {"target", "draft"}
    assert pair.apply(Arrive(0)).applied
    assert pair.prefill.watch is not None and pair.decode.watch is not None
    here, there = pair.prefill.watch.shadow, pair.decode.watch.shadow
    for leg in legs:
        pool = here.pool_of[leg.need.column.index]
        whole = slice(0, len(leg.sources) - 1)
        assert np.array_equal(here.cells[pool][leg.sources[whole]], there.cells[pool][leg.targets[whole]])
    finish(pair)


def test_a_request_of_one_token_never_travels() -> None:
    pair = pair_of()
    assert pair.apply(request(0, output=1)).applied
    step(pair, PREFILL)
    assert pair.ready() == [] and not pair.has_work()
    assert pair.prefill.engine.records[0].state == "finished"


def test_generation_starts_with_the_capacity_and_history_of_the_whole_prompt() -> None:
    pair = pair_of()
    prefilled(pair, request(0, length=30))
    assert pair.apply(Send(0)).applied
    target = pair.decode.engine.live[0]
    for sequence in pair.decode.engine.twin.sequences(target):
        assert (sequence.capacity, sequence.history) == (30 + 3 + 4, 30)


def test_a_windowed_pool_receives_what_its_retention_keeps() -> None:
    pair = pair_of("paired-22")  # keeps one page below each window
    prefilled(pair, request(0, length=30))
    assert pair.apply(Send(0)).applied
    blocks = {leg.pool: leg.need.blocks for leg in pair.transfers[0].legs}
    assert blocks["target"] == tuple(range(8))
    assert blocks["draft"] == tuple(range((30 + 1 - WINDOW - PAGE) // PAGE, 8))


def test_what_the_decode_worker_has_is_not_sent_again() -> None:
    pair = pair_of()
    prefilled(pair, request(0, length=24, shared=16))
    assert pair.apply(Send(0)).applied and pair.apply(Arrive(0)).applied
    step(pair, DECODE)
    prefilled(pair, request(1, length=26, shared=16))
    assert pair.apply(Send(1)).applied
    target = next(leg for leg in pair.transfers[1].legs if leg.pool == "target")
    assert (target.need.begin, target.need.end) == (16, 26)
    finish(pair)
    assert pair.decode.engine.records[1].cached_tokens == 16
    assert pair.decode.engine.records[1].received_tokens == 10


def test_a_prompt_that_is_cached_whole_needs_no_bytes() -> None:
    pair = pair_of()
    prefilled(pair, request(0, length=16))
    assert pair.apply(Send(0)).applied and pair.apply(Arrive(0)).applied
    step(pair, DECODE)
    again = request(0, length=16)
    prefilled(pair, Submit(replace(again.spec, request_id=7)))
    assert pair.apply(Send(7)).applied
    assert pair.transfers[7].legs == []
    finish(pair)
    assert pair.decode.engine.records[7].cached_tokens == 16


# -- the drafter's part ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", ["unified", "paired-22", "mirror-21281"])
@pytest.mark.parametrize(("drafts", "coverage"), [(True, 1.0), (False, 0.0)])
def test_the_drafter_sees_its_window_only_if_its_pages_came_along(build: str, drafts: bool, coverage: float) -> None:
    pair = pair_of(build, drafts=drafts)
    prefilled(pair, request(0, length=32))
    assert pair.apply(Send(0)).applied and pair.apply(Arrive(0)).applied
    assert pair.apply(At(DECODE, Dispatch())).applied
    assert pair.decode.watch is not None
    base = pair.decode.engine.slots.base[pair.decode.engine.live[0].owner]
    assert base == (0 if drafts else 32 // PAGE)
    assert pair.apply(At(DECODE, Settle((1,)))).applied
    seen = pair.decode.coverage(0)
    assert seen == coverage if drafts else seen == pytest.approx(1 / (WINDOW - 1))  # the token it just folded
    finish(pair)


def test_a_trailing_slot_trails_on_after_a_missed_iteration() -> None:
    pair = pair_of("paired-22", drafts=False)
    prefilled(pair, request(0, length=18, output=40))
    assert pair.apply(Send(0)).applied and pair.apply(Arrive(0)).applied
    step(pair, DECODE)
    engine = pair.decode.engine
    target = engine.live[0]
    assert target.lag == 18 % PAGE
    assert engine.suspend(0)
    prefilled(pair, request(1))
    assert pair.apply(Send(1)).applied and pair.apply(Arrive(1)).applied
    finish(pair)


# -- nothing moves under a transfer ------------------------------------------------------------------------------


def test_pages_of_both_sides_stay_until_the_transfer_ended() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    held = locked(pair, PREFILL), locked(pair, DECODE)
    assert held[0] >= 5 and held[1] >= 5
    assert not pair.apply(At(PREFILL, Suspend(0))).applied
    assert not pair.apply(At(DECODE, Suspend(0))).applied
    pair.apply(At(PREFILL, Shrink("target", 0)))
    assert (locked(pair, PREFILL), locked(pair, DECODE)) == held
    assert pair.apply(Arrive(0)).applied
    assert locked(pair, PREFILL) == 0
    finish(pair)


@pytest.mark.parametrize("end", [Arrive(0), Abort(0), Abort(0, recompute=True)])
@pytest.mark.parametrize("worker", [PREFILL, DECODE])
def test_a_request_cancelled_in_mid_transfer_gives_its_pages_back_when_the_write_stops(
    end: Arrive | Abort, worker: int
) -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    assert pair.apply(At(worker, Cancel(0))).applied
    assert not pair.prefill.engine.live and not pair.decode.engine.live
    assert locked(pair, PREFILL) and locked(pair, DECODE)
    assert not pair.apply(request(0)).applied, "the id is in use until the transfer has ended"
    assert not pair.apply(Cancel(0)).applied
    assert pair.apply(end).applied
    assert locked(pair, PREFILL) == locked(pair, DECODE) == 0
    finish(pair)


def test_a_write_waits_for_the_steps_that_may_still_use_its_pages() -> None:
    pair = pair_of()
    prefilled(pair, request(0), request(1))
    assert pair.apply(Send(0)).applied and pair.apply(Arrive(0)).applied
    assert pair.apply(At(DECODE, Dispatch())).applied
    assert pair.apply(Cancel(0)).applied  # its pages are free while its step still writes them
    assert pair.apply(Send(1)).applied
    outcome = pair.apply(Arrive(1))
    assert not outcome.applied and "may still touch" in outcome.why
    assert pair.apply(At(DECODE, Settle((1,)))).applied
    assert pair.apply(Arrive(1)).applied
    finish(pair)


def test_nothing_is_sent_before_the_first_token_is_known() -> None:
    pair = pair_of()
    assert pair.apply(request(0)).applied
    assert pair.apply(At(PREFILL, Dispatch())).applied
    outcome = pair.apply(Send(0))
    assert not outcome.applied and "has not settled" in outcome.why


# -- losses ------------------------------------------------------------------------------------------------------


def test_a_lost_transfer_is_sent_again() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    for _ in range(3):
        assert pair.apply(Send(0)).applied
        assert pair.apply(Abort(0)).applied
        assert locked(pair, DECODE) == 0 and locked(pair, PREFILL) >= 5
    finish(pair)
    assert pair.decode.engine.records[0].received_tokens == 18


def test_a_transfer_is_recorded_with_the_fields_that_its_kinds_name() -> None:
    made = config()
    pair = Pair((made, made), BUILDS["unified"], check="exhaustive", keep_events=True)
    prefilled(pair, request(0))
    for op in (Send(0), Abort(0), Send(0), Arrive(0)):
        assert pair.apply(op).applied
    found = {}
    for channel in (pair.decode.log.decisions, pair.decode.log.memory):
        for kind, values in channel.records():
            found[kind] = named_fields(kind, values)
    assert found[Kind.SEND] == {"request": 0, "owner": 2, "position": 18, "claim": 0}
    assert found[Kind.ABORT] == {"request": 0, "owner": 1}
    assert found[Kind.ARRIVE] == {"request": 0, "owner": 2}
    assert found[Kind.MEM_RECEIVE]["owner"] == 2 and len(found[Kind.MEM_RECEIVE]["slots"]) == 3


def test_or_prefilled_where_it_was_lost() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    assert pair.apply(Abort(0, recompute=True)).applied
    assert locked(pair, PREFILL) == locked(pair, DECODE) == 0
    finish(pair)
    record = pair.decode.engine.records[0]
    assert (record.received_tokens, record.prefilled_tokens, record.output_tokens) == (0, 19, 11)


def test_a_full_decode_worker_takes_a_request_later() -> None:
    small, large = config(pages=12), config()
    pair = Pair((large, small), BUILDS["unified"], check="exhaustive")
    prefilled(pair, request(0), request(1))
    assert pair.apply(Send(0)).applied
    outcome = pair.apply(Send(1))
    assert not outcome.applied and "cannot give its pages now" in outcome.why
    finish(pair)
    assert {record.state for record in pair.decode.engine.records.values()} == {"finished"}


def test_ops_that_make_no_sense_are_skipped() -> None:
    pair = pair_of()
    for op in (Send(0), Arrive(0), Abort(0), At(2, Dispatch()), At(DECODE, request(0)), Dispatch(), Cancel(3)):
        assert not pair.apply(op).applied
    assert pair.skips == 7
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    assert not pair.apply(Send(0)).applied
    finish(pair)


def test_a_transfer_that_never_ends_is_reported() -> None:
    pair = pair_of()
    prefilled(pair, request(0))
    assert pair.apply(Send(0)).applied
    pair.drain()
    assert pair.violations[0].code == "PROGRESS"


def test_workers_with_pages_of_two_sizes_make_no_pair() -> None:
    made = config()
    other = replace(made, limits=replace(made.limits, page_size=8))
    with pytest.raises(ValueError, match="pages of one size"):
        Pair((made, other), BUILDS["unified"])
