"""Row slots of a batch, as the plans bind them: who gets one, with which base, and what a failed forward restores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from model.builds import BUILDS, Build
from model.config import Drafter, PublishPolicy
from model.drafter import Seed
from model.events import Kind, named_fields
from model.ops import Cancel, Fail, World
from model.rules.slots import Slots
from property_tests.model_core.helpers import codes, config, serve, settle, spec, step, submit, world

PROMPT = list(range(10, 30))


def slotted(**rules: object) -> Build:
    answers = replace(BUILDS["paired-22"].rules, **rules)  # pyright: ignore[reportArgumentType]
    return replace(BUILDS["paired-22"], rules=answers)


def bindings(serving: World) -> list[dict[str, Any]]:
    """Every binding that a plan carried: slot, owner, target length, base page, drafter length."""
    return [named_fields(kind, values) for kind, values in serving.log.decisions.records() if kind is Kind.BIND]


def test_a_cold_request_starts_at_zero_and_a_hit_at_its_claim() -> None:
    serving = world(config(policy=PublishPolicy.PER_CONVERSATION), "paired-22", keep_events=True)
    serve(serving, spec(0, PROMPT))
    serve(serving, spec(1, [*PROMPT, 1, 2]))
    first, second = bindings(serving)
    assert (first["length"], first["base"], first["draft_length"]) == (0, 0, 0)
    assert (second["length"], second["base"], second["draft_length"]) == (20, 0, 20)  # the window was claimed along


def test_a_fresh_mirror_hides_what_it_never_saw() -> None:
    serving = world(config(policy=PublishPolicy.PER_CONVERSATION), "paired-22", keep_events=True)
    serve(serving, spec(0, PROMPT))
    serving.engine.twin.pools["draft"].evict_down_to(0)
    serve(serving, spec(1, [*PROMPT, *range(500, 512)]))
    assert serving.engine.records[1].claim_kind == "fresh"
    assert (bindings(serving)[1]["length"], bindings(serving)[1]["base"]) == (20, 5)


@pytest.mark.parametrize(
    ("rule", "base", "draft_length"),
    [
        (Slots(), 0, 24),
        (Slots("seeded-page", parks=False, seed=Seed.PAGE), 6, 24),
        (Slots("seeded-position", parks=False, seed=Seed.POSITION), 6, 24),
        (Slots("seeded-zero", parks=False, seed=Seed.ZERO), 0, 0),
    ],
)
def test_a_request_that_missed_a_batch_comes_back_with_its_base(rule: Slots, base: int, draft_length: int) -> None:
    """It stands at position 24 of its target; the row is its own again, its context by the rule."""
    serving = world(config(), slotted(slots=rule), keep_events=True)
    submit(serving, spec(0, PROMPT, 16), spec(1, [7, 8, 9], 40))
    while serving.engine.live[0].settled_position() < 24:
        step(serving)
    serving.engine.binder.bind_rows([serving.engine.live[1]], [])  # a batch without it
    assert list(serving.engine.slots.parked) == [1]
    step(serving)
    back = [binding for binding in bindings(serving) if binding["owner"] == 1][-1]
    assert (back["length"], back["base"], back["draft_length"]) == (24, base, draft_length)


def test_a_slot_is_free_again_when_its_request_ends_or_is_cancelled() -> None:
    serving = world(config(), "paired-22")
    submit(serving, spec(0, PROMPT, 1), spec(1, [7, 8, 9], 40))
    step(serving)
    slots = serving.engine.slots
    assert list(slots.slot_of.values()) == [1]
    assert serving.apply(Cancel(1)).applied
    assert (slots.slot_of, slots.base, slots.parked) == ({}, {}, {})
    assert sorted(slots.free) == [0, 1, 2, 3]


def test_a_failed_forward_binds_nobody() -> None:
    serving = world(config(), "paired-22", keep_events=True)
    submit(serving, spec(0, PROMPT, 8))
    slots = serving.engine.slots
    assert serving.apply(Fail()).applied
    assert (slots.slot_of, slots.base) == ({}, {})
    step(serving)
    saved = slots.snapshot()
    submit(serving, spec(1, [7, 8, 9], 4))
    assert serving.apply(Fail()).applied
    assert slots.snapshot() == saved
    step(serving)
    assert [binding["owner"] for binding in bindings(serving)] == [1, 2]
    settle_all(serving)
    assert codes(serving) == set()


def settle_all(serving: World) -> None:
    """Serve what is left to its end."""
    while serving.engine.in_flight:
        settle(serving)
    serve(serving)


def test_a_reused_request_id_inherits_nothing_of_a_slot() -> None:
    serving = world(config(), "paired-22", keep_events=True)
    serve(serving, spec(0, PROMPT, 4))
    serve(serving, spec(0, [7, 8, 9], 4))
    assert [(binding["owner"], binding["base"]) for binding in bindings(serving)] == [(1, 0), (2, 0)]
    assert codes(serving) == set()


def test_a_drafter_without_slots_follows_its_target() -> None:
    serving = world(config(drafter=Drafter("eagle3", 3, None)), "paired-22", keep_events=True)
    serve(serving, spec(0, PROMPT), spec(1, [*PROMPT, 1, 2]))
    hit = bindings(serving)[1]
    assert (hit["length"], hit["base"], hit["draft_length"]) == (19, 0, 19)
