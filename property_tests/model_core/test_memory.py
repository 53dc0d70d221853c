"""The tagged memory: what cells hold after each kind of step, and deferred writes that nobody can tell from others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model.builds import BUILDS
from model.config import Drafter, PublishPolicy
from model.geometry import Lifecycle
from model.ops import Cancel, Dispatch, Fail, Settle, Suspend, World
from model.reader import MASKED, PROVISIONAL, UNWRITTEN
from model.shadow import Shadow
from property_tests.model_core.helpers import codes, config, dispatch, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 42))


def memory(serving: World) -> Shadow:
    assert serving.watch is not None
    return serving.watch.shadow


def cells(serving: World, column: int = 0, owner: int = 1) -> list[int]:
    """Cells of a running request in one lifecycle, from position 0 on (released blocks as unwritten ones)."""
    shadow = memory(serving)
    request = serving.engine.owners[owner]
    row = serving.engine.twin.rows(request)[column]
    found = [UNWRITTEN] * (row.base * shadow.page)
    for slot in row.view:
        found += shadow.cells[shadow.pool_of[column]][slot].tolist()
    return found


def named(values: list[int]) -> str:
    """One letter a cell: final, provisional, masked, or unwritten."""
    letters = {UNWRITTEN: ".", PROVISIONAL: "p", MASKED: "m"}
    return "".join(letters.get(value, "F") for value in values)


# -- what a step writes -----------------------------------------------------------------------------------------------


def test_a_chunk_writes_its_own_cells_and_nothing_else() -> None:
    serving = world(config(drafter=Drafter("dflash", 3, 64)))
    submit(serving, spec(0, 40, 8))
    step(serving)
    assert named(cells(serving, 0)) == "F" * 32
    assert named(cells(serving, 1)) == "F" * 32
    step(serving)
    assert named(cells(serving, 0)) == "F" * 40 + "." * 4


def test_equal_tokens_give_equal_cells_and_different_ones_differ_from_there_on() -> None:
    serving = world(config(policy=PublishPolicy.NONE))
    submit(serving, spec(0, PROMPT[:12], 8), spec(1, [*PROMPT[:7], 1, 2, 3, 4, 5], 8))
    step(serving)
    first, second = cells(serving, 0, 1)[:12], cells(serving, 0, 2)[:12]
    assert [a == b for a, b in zip(first, second, strict=True)] == [True] * 7 + [False] * 5
    assert not set(first) & set(cells(serving, 1, 1)[:12])  # another lifecycle, other tags


@pytest.mark.parametrize(("kind", "draft"), [("dflash", "ppp"), ("pard", "ppp"), ("eagle3", "pp")])
def test_a_verify_row_leaves_final_cells_and_provisional_ones_behind_them(kind: str, draft: str) -> None:
    """12 tokens of prompt, K = 3: one of 4 target cells is committed; the drafter adds K in a block, K - 1 in turn."""
    window = 64 if kind == "dflash" else None
    serving = world(config(drafter=Drafter(kind, 3, window)))
    submit(serving, spec(0, PROMPT[:12], 8))
    step(serving)
    step(serving)
    assert named(cells(serving, 0)).rstrip(".") == "F" * 13 + "ppp"
    assert named(cells(serving, 1)).rstrip(".") == "F" * 13 + draft


def test_accepted_cells_are_rewritten_from_what_was_verified() -> None:
    serving = world(config())
    submit(serving, spec(0, PROMPT[:12], 20))
    for _ in range(2):
        step(serving)
    for count, known in ((4, 17), (2, 19), (3, 22)):
        step(serving, count)
        assert named(cells(serving, 0)).rstrip(".") == "F" * known + "p" * (4 - count)


def test_a_partial_page_is_copied_up_to_the_claim_and_its_source_stays() -> None:
    serving = world(config())
    serve(serving, spec(0, PROMPT[:12], 2))
    submit(serving, spec(1, [*PROMPT[:10], 1, 2, 3], 4))
    source = serving.engine.twin.target.tree.index
    pages = [node.pages[0] for node in source.values()]
    before = memory(serving).cells[0][pages].copy()
    step(serving)
    assert np.array_equal(memory(serving).cells[0][pages], before)
    assert cells(serving, 0, 2)[8:10] == before[2][:2].tolist()
    assert cells(serving, 0, 2)[10] != before[2][2]


def test_a_page_that_changes_tiers_keeps_its_cells() -> None:
    serving = world(config(pages=12, draft_pages=12, host=12))
    serve(serving, spec(0, PROMPT, 2))
    serve(serving, spec(1, 28, 2))  # pushes cached pages down
    target = serving.engine.twin.pools["target"]
    assert target.host_droppable > 0
    serve(serving, spec(2, PROMPT, 2))
    assert serving.engine.records[2].cached_tokens > 0
    assert codes(serving) == set()


def test_a_granted_page_forgets_its_last_tenant() -> None:
    serving = world(config(policy=PublishPolicy.NONE))
    serve(serving, spec(0, PROMPT[:12], 2))
    submit(serving, spec(1, 8, 4))
    step(serving)
    assert named(cells(serving, 0, 2)) == "F" * 8 + "...."


# -- deferred writes --------------------------------------------------------------------------------------------------


def eventful(check: str, kind: str, build: str) -> World:
    """A run on pages of 16 with everything that ends a quiet stretch: suspensions, failures, ends, hits, cancels."""
    window = 24 if kind == "dflash" else None
    settings = config(
        drafter=Drafter(kind, 3, window, chain=2),
        page_size=16,
        chunk_unit=16,
        max_num_tokens=96,
        max_seq_len=512,
        target=(Lifecycle("target", "target", "target"), Lifecycle("recent", "recent", "target", window=40, sinks=4)),
    )
    serving = world(settings, build, check=check)
    submit(serving, *(spec(number, [*PROMPT[: 8 * number], 70 + number], 60) for number in range(4)))
    reached = False
    for turn in range(60):
        if turn == 20:
            serving.apply(Suspend(1))
        if turn == 25:
            serving.apply(Fail())
        if turn == 30:
            serving.apply(Dispatch(skip=True))
        if turn == 35:
            serving.apply(Cancel(2))
            submit(serving, spec(9, [*PROMPT, 5], 30))
        serving.apply(Dispatch())
        if serving.engine.in_flight > 1:
            rows = len(serving.engine.plans[0].generation)
            serving.apply(Settle(tuple(1 + (turn + place) % 4 for place in range(rows))))
        reached = reached or bool(memory(serving).dirty)
    assert reached == (check == "incremental")
    serve(serving, accepted=3)
    return serving


@pytest.mark.parametrize("build", ["unified", "paired-22", "target-21"])
@pytest.mark.parametrize("kind", ["dflash", "pard", "eagle3", "mtp"])
def test_deferred_writes_change_neither_what_is_recorded_nor_what_is_found(kind: str, build: str) -> None:
    lazy, eager = eventful("incremental", kind, build), eventful("exhaustive", kind, build)
    assert lazy.decision_digest() == eager.decision_digest()
    assert lazy.memory_digest() == eager.memory_digest()
    assert codes(lazy) == codes(eager) == set()


def test_what_was_deferred_is_in_memory_before_somebody_else_reads_it() -> None:
    """A stray write to a page is found by its owner although its own writes to it were not carried out yet."""
    for check in ("incremental", "exhaustive"):
        serving = world(config(page_size=16, chunk_unit=16), check=check)
        submit(serving, spec(0, PROMPT[:12], 60))
        for _ in range(3):
            step(serving)
        shadow = memory(serving)
        slot = serving.engine.twin.rows(serving.engine.live[0])[0].view[0]
        shadow.cells[0][slot][3] ^= np.uint64(1)
        shadow.versions[0][slot] += 1  # as every write through a table does
        step(serving)
        assert [(violation.code, violation.position) for violation in serving.violations] == [("KEY", 3)]


# -- device rules travel with the plan --------------------------------------------------------------------------------


def test_a_plan_brings_the_rules_by_which_it_is_carried_out() -> None:
    serving = world(config())
    submit(serving, spec(0, 8))
    assert dispatch(serving).device == replace(BUILDS["unified"].rules).device()
    settle(serving)


def test_the_window_of_a_drafting_pass_is_wholly_valid_after_a_cold_prefill() -> None:
    serving = world(config())
    assert serving.coverage(0) == 1.0  # nobody yet
    submit(serving, spec(0, 20, 12))
    assert serving.coverage(0) == 1.0
    for _ in range(4):
        step(serving, 2)
        assert serving.coverage(0) == 1.0
    assert world(config(drafter=Drafter("ngram", 3))).coverage(0) == 1.0
