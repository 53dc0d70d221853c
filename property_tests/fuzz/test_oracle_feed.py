"""The naive oracle beside engines at work: silent on correct builds, and it speaks where claims or pages are bad."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from model.builds import BUILDS
from model.config import PublishPolicy
from model.faults import FAULTS, resolve_build
from model.ops import World
from model.rules.claim import WindowedPair
from model.tree import Node, PrefixTree
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.engine_shards import CONSULTED, consults, run_shard
from property_tests.fuzz.generate.engine import engine, realistic
from property_tests.fuzz.generate.mix import SLOTTED, Mix, mix_for
from property_tests.fuzz.generate.setup import setup
from property_tests.fuzz.oracle_feed import ORACLE, OracleFeed
from property_tests.fuzz.order import Order
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.swarm import Driver, consulted
from property_tests.laws.worlds import CORRECT
from sim.optrace import Trace

ALWAYS = ((PublishPolicy.ALL_REUSABLE, 1),)
# Fault, programs to search through, what the oracle says.
SPEAKS = (
    ("claim-plus1", 400, "the limit without draft pages is"),
    ("raw-keys", 60, "which no published page holds for this prompt"),
    ("untyped-scope", 60, "which no published page holds for this prompt"),
    ("node-coverage", 100, "which no published page holds for this prompt"),
    ("last-manager-wins", 40, "which no published page holds for this prompt"),
    ("evidence-cut", 40, "but published pages serve"),
    ("group-veto", 200, "but published pages serve"),
    ("publish-unwritten", 60, "cells of that page may enter under"),
)

# What a fault needs more often than the mix for its rules has it: starts without draft pages below a window.
OFTEN: dict[str, dict[str, Any]] = {
    "claim-plus1": {
        "kinds": (*SLOTTED, ("draft-target-one-model", 2)),
        "windowless": 0,
        "calm": 60,
        "tight": 40,
        "requests": (6, 8),
    }
}


def listened(name: str, seed: int, mix: Mix, tree: type[PrefixTree] = PrefixTree) -> OracleFeed:
    """One program on ``name`` over prefix trees of a kind, unjudged, and what the oracle said of it."""
    build, choices = resolve_build(name), Seeded(seed)
    plan = setup(choices, build, replace(mix, workers=(1, 0, 0, 0)))
    world = plan.open(build, "off")
    assert isinstance(world, World)
    for manager in world.engine.twin.managers:
        manager.tree.__class__ = tree
    oracle = OracleFeed(world.engine, build)
    Driver(world, plan, choices, oracle).run()
    return oracle


@pytest.mark.parametrize("build", CORRECT)
def test_the_oracle_agrees_with_every_correct_build(build: str) -> None:
    """Goal: two implementations, one answer. Method: 40 programs, each claim and each published page."""
    claims = depths = pages = 0
    for seed in range(40):
        oracle = listened(build, seed, Mix())
        assert oracle.objections == [], f"program {seed}"
        claims, depths, pages = claims + oracle.claims, depths + oracle.depths, pages + oracle.pages
    assert claims > 150 and depths > 40 and pages > 250


def objections(name: str, programs: int) -> Iterator[str]:
    """What the oracle says of a fault, program by program."""
    mix = mix_for(rule for rule, _ in FAULTS[name].changes)
    mix = replace(mix, **OFTEN.get(name, {}))
    for seed in range(programs):
        yield from listened(f"fault:{name}", seed, mix).objections


@pytest.mark.parametrize(("name", "programs", "words"), SPEAKS, ids=[entry[0] for entry in SPEAKS])
def test_the_oracle_speaks_where_a_claim_or_a_page_is_bad(name: str, programs: int, words: str) -> None:
    """Goal: its silence means something. Method: programs until it objects, and what it objects to."""
    assert any(words in sentence for sentence in objections(name, programs))


@pytest.mark.parametrize(("build", "seed"), [("sglang-fused", 1051), ("joint-18093", 1302), ("sglang-fused", 1302)])
def test_all_first_pages_are_siblings_where_two_are_too_many(build: str, seed: int) -> None:
    """With shifted keys the first tokens of two pages may differ, and both hang from the root."""
    oracle = listened(build, seed, Mix())
    assert oracle.asked is not None and oracle.asked.world.children == 2 and not oracle.asked.whole
    assert oracle.objections == []


def test_a_rule_of_somebody_elses_is_asked_for_soundness_alone() -> None:
    """Goal: claiming less on purpose is no fault. Method: a rule derived from the paired one, and the paired one."""

    class Shy(WindowedPair):
        """Claims like its base; what it promises is its own affair."""

    build = resolve_build("unified")
    assert isinstance(build.rules.claim, WindowedPair)
    shy = replace(build, rules=replace(build.rules, claim=Shy()))
    plan = setup(Seeded(1), build, replace(Mix(), workers=(1, 0, 0, 0), windowless=0, policies=ALWAYS))
    for kind, whole in ((build, False), (shy, True)):
        world = plan.open(kind, "off")
        assert isinstance(world, World)
        oracle = OracleFeed(world.engine, kind)
        assert oracle.asked is not None and oracle.asked.whole is whole


@pytest.mark.parametrize("seed", [237, 324, 376, 574, 747])
def test_programs_on_which_oracle_and_model_once_disagreed(seed: int) -> None:
    """Pages behind a change of tier, a sibling that agrees on part of a page, a window gone at a rewound cursor."""
    for build in ("unified", "target-21", "recompute-tail", "joint-backoff"):
        assert listened(build, seed, Mix()).objections == []


class Forgetful(PrefixTree):
    """A new block makes it forget a leaf beside it, and the pages there, although no pool gave them up."""

    def insert(self, parent: Node, key: int, items: bytes, length: int) -> Node | None:
        node = super().insert(parent, key, items, length)
        leaves = [child for child in parent.children.values() if child is not node and not child.children]
        if node is not None and leaves:
            self._remove_subtree(leaves[0])
        return node


def test_a_page_that_the_index_forgets_is_missed_although_every_claim_agrees_with_the_index() -> None:
    """Goal: what stands is no matter of the index. Method: a forgetful tree, and what the oracle says of it."""
    said = [text for seed in range(30) for text in listened("unified", seed, Mix(), Forgetful).objections]
    assert said and all(text.endswith("although nothing took it") for text in said)


def test_one_example_in_eight_of_a_campaign_has_the_oracle_beside_it_in_turn_on_every_build() -> None:
    for builds in (1, 2, 7, 8, 12):
        order = Order(("unified",) * builds)
        asked = [number for number in range(CONSULTED * builds) if consults(order, number)]
        assert sorted(number % builds for number in asked) == list(range(builds))


def test_what_the_oracle_alone_objects_to_is_found_by_a_campaign_and_shrunk_under_its_own_law() -> None:
    """Goal: silence of the laws is not the end. Method: a fault whose loss of depth no law sees in one program."""
    result = run_shard(Order(("fault:backoff-after-prune",)), CONSULTED, 1)
    assert result.evaluations[ORACLE] > 0
    (failure,) = result.failures
    assert failure.law == ORACLE and "but published pages serve" in failure.violation.message
    trace, build = failure.minimal, resolve_build("fault:backoff-after-prune")
    assert isinstance(trace, Trace) and isinstance(failure.trace, Trace)
    assert len(trace.ops) < len(failure.trace.ops)
    assert rerun(trace, build).violation is None
    assert rerun(trace, build, consult=True).violation == failure.violation


def test_a_realistic_engine_is_not_put_before_a_brute_force_oracle() -> None:
    """A prompt of 17,000 tokens once took it longer than an example may take, which was told as a HANG."""
    for config, heard in ((engine(Seeded(1), Mix()), True), (realistic(Seeded(1), Mix()), False)):
        world = World(config, BUILDS["unified"])
        assert (consulted(world, BUILDS["unified"]) is not None) is heard
