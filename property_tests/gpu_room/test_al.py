"""Cold against hit with tier T0: sound reuse changes no step, every condition does what it says, laws can fail."""

from __future__ import annotations

import gc
import weakref
from array import array
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.metrics import Steps
from gpu_backend.al import conditions, prompts
from gpu_backend.al.arms import arm, beside_sound, may_hide
from gpu_backend.al.conditions import pasts
from gpu_backend.al.experiment import Ask, Results, Served, measure, subject
from gpu_backend.al.laws import caught_by
from gpu_backend.al.measure import Run, Watching, run
from gpu_backend.al.order import (
    AGENTIC,
    BROKEN,
    CHUNKED,
    CONDITIONS,
    COSTS,
    DECLARED,
    FREE,
    GAINS,
    HOST_LOAD,
    IDENTICAL,
    NOISE,
    REFUSED,
    SUSPEND,
    TRANSFER,
    Order,
)
from gpu_backend.al.session import measure_here, row_of
from gpu_backend.replay.graphs import fits
from gpu_backend.replay.page_batch import PageBatch
from model.builds import BUILDS
from model.rules.claim import Claim, ClaimView, WindowedPair
from model.tokens import prompt_tokens
from scenarios.errors import InputError
from sim.rulespec import find

HITS, TOKENS = 4, 8
CPU = torch.device("cpu")


def asked(*builds: str, faults: tuple[str, ...] = (), only: tuple[str, ...] = tuple(CONDITIONS)) -> Ask:
    """Four requests of twelve tokens, each with its reuse ending elsewhere in a page."""
    pair, texts = subject(None, CPU, HITS, exact=True, seed=0)
    return Ask(pair, texts, TOKENS, builds, faults, only)


@cache
def sound() -> Results:
    """All conditions on the unified build."""
    return measure(asked("unified"))


def test_sound_reuse_changes_no_step_under_any_condition() -> None:
    results = sound()
    assert [found.condition for found in results.arms] == list(CONDITIONS) and not results.interrupted
    for found in results.arms:
        assert found.run is not None and not found.broken, (found.condition, found.broken)
        assert found.owed.all() and found.same.all() and found.same_output.all()
        assert found.verdict == IDENTICAL and found.change(None) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("build", ["paired-22", "vllm-lookahead", "recompute-tail"])
def test_every_layout_drafts_on_a_hit_as_it_does_cold(build: str) -> None:
    (found,) = measure(asked(build, only=("repeat",))).arms
    assert found.verdict == IDENTICAL and found.owed.all()


def test_a_device_without_room_is_told_in_one_line_and_is_no_law_that_a_build_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = asked("unified", only=("repeat",))
    served = Served(ask, Results())
    served.cold("repeat")
    monkeypatch.setattr("gpu_backend.pool.free_bytes", lambda _: 1024)
    with pytest.raises(InputError, match=r"^device: pool .* needs .* pages; fewer --prompts, --tokens or --drafters"):
        served.arm("repeat", BUILDS["unified"])
    with pytest.raises(InputError, match=r"^device: pool "):
        measure(ask)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.5 GiB. See"), "CUDA out of memory"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might"), "CUDA error: out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_in_whatever_words_a_device_says_that_it_is_full_no_build_is_blamed(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError, told: str
) -> None:
    def full(*told: object, **more: object) -> Run:
        raise error

    monkeypatch.setattr("gpu_backend.al.experiment.run", full)
    monkeypatch.setattr("gpu_backend.al.experiment.load", full)
    with pytest.raises(InputError, match=f"^device: {told}.*; fewer --prompts, "):
        measure(asked("unified"))
    with pytest.raises(InputError, match=f"^device: {told}.*; fewer --prompts, "):
        subject(Path(), CPU, 1, exact=True, seed=0)
    error = RuntimeError("no such kernel")
    with pytest.raises(RuntimeError, match=r"^no such kernel$"):
        subject(Path(), CPU, 1, exact=True, seed=0)


def test_what_was_measured_before_the_device_was_full_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(done: int, wanted: int) -> None:
        if done:
            monkeypatch.setattr("gpu_backend.pool.free_bytes", lambda _: 1024)

    results = measure(asked("unified", "paired-22", only=("repeat",)), filled)
    assert [one.build for one in results.arms] == ["unified"] and not results.interrupted
    assert str(results.refused).startswith("device: pool ")
    monkeypatch.undo()
    order = Order(None, ("unified", "paired-22"), (), ("repeat",), 2, 4, "cpu", drafters=("dflash",), calibrate=True)
    told = measure_here(order, filled)
    assert [row["build"] for row in told.arms] == ["unified"] and told.failed["dflash"].code == told.exit_code == 2
    assert not told.calibrations, "a part is not fitted as if it were the whole"


def test_a_run_that_broke_off_holds_no_pools_however_long_its_error_is_kept() -> None:
    def breaks(worker: Watching) -> None:
        pools.append(weakref.ref(worker.memory))
        raise LookupError("no such row")

    ask, pools = asked(), list[weakref.ref[object]]()
    scenario = conditions.warm(ask.pair, conditions.whole_prompts(ask.pair, ask.texts, 2))
    with pytest.raises(LookupError) as kept:
        run(scenario, BUILDS["unified"], ask.pair, prepare=breaks)
    gc.collect()
    assert kept.value.__traceback__ is not None and [held() for held in pools] == [None]


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_reuses_and_disturbs_as_it_says(name: str) -> None:
    found = next(one.run for one in sound().arms if one.condition == name and one.build == "unified")
    hits = sound().conditions[name].hits
    assert found is not None and not found.hidden.any()
    cold = sound().cold[sound().conditions[name].cold_name]
    assert not any(record.cached_tokens for record in cold.records)
    assert (cold.measured.prefilled["target"] >= [record.prompt_tokens for record in cold.records]).all()
    if name == TRANSFER:
        assert all(record.received_tokens for record in found.records)
    else:
        later = [hit.stage > 0 or name != AGENTIC for hit in hits]  # the first turn of a conversation finds nothing
        assert [record.cached_tokens > 0 for record in found.records] == later and any(later)
        less = found.measured.prefilled["target"] < cold.measured.prefilled["target"]
        assert less.tolist() == later
    if name == SUSPEND:
        assert any(record.suspensions for record in found.records)
    assert [len(output) for output in found.measured.outputs] == [TOKENS] * len(hits)


def test_pages_come_back_from_the_host() -> None:
    ask = asked()
    workers: list[Watching] = []
    scenario = conditions.warm(ask.pair, conditions.whole_prompts(ask.pair, ask.texts, 2, HOST_LOAD))
    found = run(scenario, BUILDS["unified"], ask.pair, prepare=workers.append)
    assert all(record.cached_tokens for record in found.records)
    pools = workers[0].engine.twin.pools.values()
    assert all(pool.host_pages for pool in pools)


def test_copies_of_pages_come_together_behind_the_grants_unless_one_needs_what_another_writes() -> None:
    ask = asked()
    workers: list[Watching] = []
    run(conditions.warm(ask.pair, conditions.shared_prefix(ask.pair, ask.texts, 2, "short-tail")), BUILDS["unified"],
        ask.pair, prepare=workers.append)  # fmt: skip
    memory = workers[0].memory
    assert not memory.spells and (memory.planes[0].pool.cells.tags == memory.planes[0].pool.cells.tags[0, 0]).all()
    batch = PageBatch(memory)
    assert batch.copy(0, 3, 5, 2) and batch.copy(0, 3, 8, 1), "a page is copied twice"
    for source, target in ((5, 6), (7, 3), (7, 5), (9, 9), (1, memory.planes[0].device_pages)):
        assert not batch.copy(0, source, target, 1), (source, target)
    assert not batch.grant(0, array("i", [3]), 1) and not batch.grant(0, array("i", [5]), 1)
    assert batch.grant(0, array("i", [9]), 1) and fits(batch, []) == (False, []), "no graph copies pages"


def test_reuse_ends_beside_and_on_page_boundaries() -> None:
    ask = asked()
    page = ask.pair.page
    assert pasts(page) == (1, page - 1, page, page + 1)
    for name in CONDITIONS:
        hits = sound().conditions[name].hits
        if name == AGENTIC:  # turns end where answers and messages make them end
            assert [hit.stage for hit in hits] == [0, 1, 2] and hits[2].prompt[: len(hits[1].prompt)] == hits[1].prompt
            continue
        assert {hit.past for hit in hits} == ({page} if name == CHUNKED else set(pasts(page))), name
        for hit in hits:
            parts = [one != other for one, other in zip(hit.prompt, hit.publisher, strict=False)]
            reused = min(parts.index(True) if True in parts else len(parts), len(hit.prompt) - 1)
            assert reused % page == hit.past % page, name


def test_a_build_that_hides_what_its_drafter_never_saw_breaks_no_law() -> None:
    results = measure(asked("target-21", only=("repeat",)))
    (found,) = results.arms
    assert found.run is not None and found.run.hidden.all() and not found.owed.any()
    assert found.verdict == DECLARED and not found.broken
    assert may_hide(BUILDS["target-21"]) and may_hide(BUILDS["unified-target-sent"]) and not may_hide(BUILDS["unified"])


def test_a_fault_that_costs_and_one_that_does_not_are_told_apart() -> None:
    ask = replace(asked(faults=("store-at-zero", "raw-keys"), only=("repeat",)), tokens=16)
    costs, free = measure(ask).arms
    assert costs.verdict == COSTS and not costs.same.any() and costs.same_output.all()
    change = costs.change(16)
    assert change is not None and change.high < 1
    assert free.verdict == FREE and free.same.all() and not free.owed.any()


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("kept-provisional", "INIT"),
        ("freed-on-hope", "WINDOW"),
        ("freed-by-highest", "WINDOW"),
        ("no-draft-lookahead-pages", "OWN"),
    ],
)
def test_the_laws_are_asked_with_drafts_that_are_accepted_and_others_that_are_not(fault: str, law: str) -> None:
    ask = asked()
    condition = conditions.whole_prompts(ask.pair, ask.texts, 16)
    assert law in caught_by(ask.pair, condition, find(f"fault:{fault}"))
    assert not caught_by(ask.pair, condition, BUILDS["unified"])


def test_a_device_that_runs_full_in_the_midst_of_a_run_is_no_crash_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*told: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.5 GiB.")

    served = Served(asked("unified", only=("repeat",)), Results())
    served.cold("repeat")
    monkeypatch.setattr(Watching, "settled", full)
    with pytest.raises(InputError, match=r"^device: CUDA out of memory; fewer --prompts, "):
        served.arm("repeat", BUILDS["unified"])


@dataclass(frozen=True)
class Stumbles(WindowedPair):
    """A rule of one's own that is not finished."""

    name: str = "stumbles"

    def decide(self, view: ClaimView) -> Claim:
        raise LookupError("no such page")


def test_a_rule_that_raises_is_the_arms_error_and_leaves_the_others() -> None:
    ask = asked("unified", only=("repeat",))
    served, sound = Served(ask, Results()), BUILDS["unified"]
    own = replace(sound, name="own", correct=False, rules=replace(sound.rules, claim=Stumbles()))
    found = served.arm("repeat", own)
    assert found.verdict == REFUSED and "LookupError" in found.error and "no such page" in found.error
    assert served.arm("repeat", sound).verdict == IDENTICAL
    assert served.arm("repeat", replace(own, correct=True)).broken[0].startswith("PROGRESS: LookupError")


@pytest.mark.parametrize("kind", ["dflash", "mtp"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_is_made_of_the_shortest_prompts_too(name: str, kind: str) -> None:
    pair, texts = subject(None, CPU, HITS, exact=True, seed=0, spans=1, kind=kind)
    (found,) = measure(Ask(pair, texts, 4, ("unified",), (), (name,))).arms
    assert not found.broken and found.owed.any()


def test_a_correct_build_whose_traces_differ_breaks_a_law() -> None:
    served = Served(asked(), Results())
    wrong = served.arm("repeat", BUILDS["target-21"]).run
    found = arm("repeat", BUILDS["unified"], "correct", served.cold("repeat"), hides_nothing(wrong), exact=True)
    assert found.verdict == BROKEN and found.broken[0].startswith("AL: ")
    tied = arm("repeat", BUILDS["unified"], "correct", served.cold("repeat"), hides_nothing(wrong), exact=False)
    assert not tied.broken and not tied.owed.any()
    ended = arm("repeat", BUILDS["unified"], "correct", served.cold("repeat"), None, exact=True, error="KeyError: 7")
    assert ended.verdict == BROKEN and ended.broken == ["PROGRESS: KeyError: 7"]
    refused = arm("repeat", BUILDS["unified"], "fault", served.cold("repeat"), None, exact=True, error="KeyError: 7")
    assert refused.verdict == REFUSED and not refused.broken


def drafted(found: Run, *rows: tuple[int, int]) -> Run:
    """A run each of whose hits committed so many tokens behind each of these anchors."""
    steps = Steps.of([(hit, anchor, count, True) for hit in range(HITS) for anchor, count in rows])
    return replace(found, measured=replace(found.measured, steps=steps))


def test_an_acceptance_length_counts_the_steps_of_the_first_tokens_alone() -> None:
    cold = sound().cold["repeat"]
    found = arm("repeat", BUILDS["unified"], "fault", drafted(cold, (1, 4), (20, 1)), drafted(cold, (1, 2), (20, 3)),
                exact=True)  # fmt: skip
    row = row_of(found)
    assert (row["AL16_cold"], row["AL16"], row["AL16_change"]) == (4, 2, -0.5)
    assert (row["AL32_cold"], row["AL32"], row["AL_change"]) == (2.5, 2.5, 0)
    assert found.verdict == COSTS, "by its first tokens, whatever comes later"


def test_a_fault_is_judged_beside_the_default_builds_own_hit() -> None:
    cold = sound().cold["repeat"]
    hit = drafted(cold, (1, 3), (20, 1))  # other batches than cold: less is accepted, without a fault
    alone = arm("repeat", find("fault:raw-keys"), "fault", cold, hit, exact=False)
    base = arm("repeat", BUILDS["unified"], "correct", cold, hit, exact=False)
    elsewhere = arm("suspend", BUILDS["unified"], "correct", cold, hit, exact=False)
    assert drafted(cold, (1, 4), (20, 1)).trace(0) != hit.trace(0)
    less = arm("repeat", find("fault:store-at-zero"), "fault", cold, drafted(cold, (1, 2), (20, 1)), exact=False)
    more = arm("repeat", find("fault:adjacent-slot"), "fault", cold, drafted(cold, (1, 4), (20, 1)), exact=False)
    other = arm("repeat", BUILDS["paired-22"], "correct", cold, cold, exact=False)
    told = {one.build: one.verdict for one in beside_sound([alone, base, other, less, more])}
    assert told == {
        "fault:raw-keys": FREE, "unified": NOISE, "paired-22": IDENTICAL, "fault:store-at-zero": COSTS,
        "fault:adjacent-slot": GAINS,
    }  # fmt: skip
    assert alone.verdict != FREE and beside_sound([alone, elsewhere])[0].verdict == alone.verdict
    assert beside_sound([alone, base])[0].change(16) == alone.change(16), "figures stay those against cold"


def test_a_request_that_was_preempted_owes_nothing() -> None:
    cold = sound().cold["repeat"]
    cut = [replace(record, preemptions=1) if not place else record for place, record in enumerate(cold.records)]
    other = drafted(cold, (1, 4))
    run = replace(cold, records=tuple(cut))
    found = arm("repeat", BUILDS["unified"], "correct", cold, run, exact=True)
    assert found.owed.tolist() == [False] + [True] * (HITS - 1) == [not one for one in found.restarted]
    steps = Steps.of([(hit, 1, 4 if hit else 1, True) for hit in range(HITS)])
    fault = arm("repeat", find("fault:raw-keys"), "fault", other,
                replace(run, measured=replace(run.measured, steps=steps)), exact=True)  # fmt: skip
    assert fault.same.tolist() == [False] + [True] * (HITS - 1)
    assert fault.verdict == FREE, "what differs is the preempted request's"
    wrong = arm("repeat", BUILDS["unified"], "correct", other, run, exact=True)
    assert wrong.broken[0].startswith(f"AL: {HITS - 1} of {HITS - 1} accept traces"), "of those that owe"


def hides_nothing(found: Run | None) -> Run:
    """A run that differs from its cold one although no part of a window was hidden."""
    assert found is not None
    return Run(
        found.scenario, found.build, found.measured, found.records, np.zeros_like(found.hidden), found.seconds,
        found.violations, found.notes,
    )  # fmt: skip


def test_the_same_requests_run_cold_and_on_a_hit() -> None:
    ask = asked()
    for name, condition in sound().conditions.items():
        told = []
        for scenario in (conditions.cold(ask.pair, condition), conditions.warm(ask.pair, condition)):
            sessions = [session for session in scenario.workload().sessions if session.name.startswith("hit")]
            told.append([(session.name, prompt_tokens(session.turns[0].append, 5).tolist()) for session in sessions])
        assert told[0] == told[1] and len(told[0]) == len(condition.hits), name


def test_a_later_turn_goes_on_from_the_answer_that_was_really_given() -> None:
    results = sound()
    condition, cold = results.conditions[AGENTIC], results.cold[AGENTIC]
    first, second = condition.hits[:2]
    answer = cold.measured.outputs[0]
    assert second.prompt[: len(first.prompt) + TOKENS] == (*first.prompt, *answer)


def test_requests_that_the_weights_have_no_positions_for_are_refused() -> None:
    ask = replace(asked(), tokens=5000)
    with pytest.raises(InputError, match="expected at most 4096 positions, which the weights have, found"):
        Served(ask, Results()).cold("repeat")


def test_texts_are_the_prompts_of_a_training_or_cut_from_what_it_held_out(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    (tokens / "prompts.json").write_text('[{"ids": [1, 2, 3, 4]}, {"ids": [5, 6, 7]}]')
    assert [text.ids for text in prompts.held_out(tmp_path, 1, 4)] == [(1, 2, 3, 4)]
    assert [text.ids for text in prompts.held_out(tmp_path, 2, 3)] == [(1, 2, 3), (5, 6, 7)]
    with pytest.raises(InputError, match="expected 2 pieces of 4 tokens of held-out text, found fewer"):
        prompts.held_out(tmp_path, 2, 4)
    np.save(tokens / "held.npy", np.arange(100, dtype=np.uint16))
    cut = prompts.held_out(tmp_path, 3, 4)
    assert [text.ids[0] for text in cut] == [0, 32, 64] and len({text.name for text in cut}) == 3


def test_texts_are_named_by_their_ids() -> None:
    one, other = prompts.drawn(2, 8, 5, 0)
    assert one.name == prompts.Text.of(np.array(one.ids)).name != other.name
    assert prompts.digest([one, other]) != prompts.digest([other, one])
