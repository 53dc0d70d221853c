"""Answers that no build gives and that are not wrong: they break no law, and differ in what they reuse or recompute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from model.builds import BUILDS, Build
from model.config import PublishPolicy
from model.drafter import Seed
from model.ops import Dispatch, Settle, World
from model.rules.claim import RecomputeTail
from model.rules.publish import Publish
from model.rules.scheduling import Deferral
from model.rules.slots import Slots
from property_tests.laws.worlds import random_world
from property_tests.model_core.helpers import codes, config, serve, spec, world

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # A slot that is seeded on the boundary of the prompt's last page writes that page again: it must not be published.
    "seeded on the page boundary": (
        "paired-22",
        {"slots": Slots("seeded-page", parks=False), "publish": Publish("whole-pages", partial_pages=False)},
    ),
    "seeded at the position": ("paired-22", {"slots": Slots("seeded-position", parks=False, seed=Seed.POSITION)}),
    "seeded without a trailing page": ("unified", {"slots": Slots("seeded-page", parks=False)}),
    "commits fill holes": ("unified", {"publish": Publish("fills-holes", draft_at_endpoint=False, fill_holes=True)}),
    "stale pages wait": ("unified", {"publish": Publish("keeps-stale", draft_at_endpoint=False, keep_stale=True)}),
    "nobody is deferred": ("unified", {"deferral": Deferral("never", by_prefix=False)}),
    "a short tail": ("recompute-tail", {"claim": RecomputeTail("tail-of-6", tokens=6)}),
    "all is recomputed": ("recompute-tail", {"claim": RecomputeTail("no-claim", tokens=-1)}),
}


def variant(name: str) -> Build:
    """The base build with its rules replaced."""
    base, changes = VARIANTS[name]
    return Build(name, replace(BUILDS[base].rules, **changes), name, "a variant")


@pytest.mark.parametrize("seed", range(600, 610))
@pytest.mark.parametrize("name", VARIANTS)
def test_a_sound_variant_breaks_no_law_in_a_random_world(name: str, seed: int) -> None:
    build = variant(name)
    drawn, driver = random_world(seed, VARIANTS[name][0], tight=seed % 2 == 0)
    driver.world = World(drawn.config, build, check="exhaustive")
    assert driver.run()
    assert driver.world.violations == []


def prefilled(build: Build, **options: Any) -> int:
    """Tokens that four requests behind one prefix prefill when they come together."""
    serving = world(config(**options), build)
    serve(serving, *(spec(request, [*range(10, 34), 100 + request], 2) for request in range(4)))
    assert codes(serving) == set()
    return serving.engine.totals.prefilled_tokens


def test_without_deferral_everybody_computes_the_shared_prefix() -> None:
    options = {"max_num_tokens": 128, "policy": PublishPolicy.ALL_REUSABLE}
    together, deferred = prefilled(variant("nobody is deferred"), **options), prefilled(BUILDS["unified"], **options)
    assert (together, deferred) == (4 * 25, 25 + 3 * 1)


def hit_after_a_hole(build: Build) -> int:
    """What a third request claims when the second one recomputed a page that the pool had lost."""
    serving = world(config(policy=PublishPolicy.PER_CONVERSATION), build)
    prompt = list(range(10, 42))
    serve(serving, spec(0, prompt, 2))
    pool = serving.engine.twin.pools["draft"]
    pool.evict_down_to(0)
    serve(serving, spec(1, prompt, 2))
    serve(serving, spec(2, prompt, 2))
    assert codes(serving) == set()
    return serving.engine.records[2].cached_tokens


def test_a_commit_that_fills_holes_lets_the_next_request_hit() -> None:
    filled, left = hit_after_a_hole(variant("commits fill holes")), hit_after_a_hole(BUILDS["unified"])
    assert filled == 31
    assert left < filled


def kept_pages(build: Build) -> int:
    """Drafter pages in the tree after a prompt of four windows that is published at its end."""
    serving = world(config(policy=PublishPolicy.PER_CONVERSATION, max_num_tokens=12, chunk_unit=8), build)
    serve(serving, spec(0, 32, 1))
    assert codes(serving) == set()
    return serving.engine.twin.pools["draft"].droppable


def test_stale_pages_that_wait_for_a_late_commit_are_published_with_the_rest() -> None:
    assert (kept_pages(variant("stale pages wait")), kept_pages(BUILDS["unified"])) == (8, 2)


def test_the_variants_are_driven_op_by_op() -> None:
    serving = World(config(), variant("seeded at the position"))
    assert not serving.apply(Settle(())).applied
    assert not serving.apply(Dispatch()).applied
