"""Rules that crash: one wording everywhere, and two errors of one rule are two failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from model.ops import Dispatch
from model.rules.claim import Claim, ClaimView, WindowedPair
from property_tests.fuzz.cache_shrink import shrink as shrink_cache
from property_tests.fuzz.cache_swarm import play_cache
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.causes import Causes
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.engine_shards import hunt
from property_tests.fuzz.generate.mix import mix_for
from sim.crashes import CRASH, HANG
from sim.findings import Cause, Failure
from sim.optrace import Trace
from sim.sampling import samples


class TwoErrors(WindowedPair):
    """A claim rule that gives up in two ways: a shorter match leads from the first to the second."""

    def decide(self, view: ClaimView) -> Claim:
        if view.target > 12:
            raise IndexError("far")
        if view.target > 8:
            raise KeyError("near")
        return super().decide(view)


LINE = TwoErrors.decide.__code__.co_firstlineno
PLACE = f"IndexError in decide ({__name__}, line {LINE + 2})"
FAR = f"{PLACE}: far"
TWO = replace(BUILDS["unified"], rules=replace(BUILDS["unified"].rules, claim=TwoErrors()), correct=False)


def crash() -> Failure:
    """A far match crashed the rule; the failure is shrunk."""
    failure = hunt(TWO, "swarm", 60, seed=1, focus=("claim",), shrinks=True).failure
    assert failure is not None
    return failure


def test_a_rule_with_two_errors_shrinks_to_the_one_that_was_found() -> None:
    assert (crash().law, crash().violation.message) == (CRASH, FAR)


def test_a_rule_with_two_errors_shrinks_to_the_one_that_was_found_in_the_cache_layer() -> None:
    worlds = (play_cache(Seeded(seed), TWO, mix_for(("claim",))) for seed in range(200))
    world = next(world for world in worlds if world.violations and world.violations[0].message == FAR)
    minimal = shrink_cache(world.config, TWO, world.ops, world.violations[0])
    violation = CacheWorld(world.config, TWO).run(minimal)
    assert violation is not None
    assert violation.message == FAR


def test_two_errors_are_two_causes() -> None:
    failure = crash()
    other = replace(failure, violation=replace(failure.violation, message=FAR.replace("IndexError", "KeyError")))
    below = replace(failure, violation=replace(failure.violation, message=FAR.replace("line ", "line 1")))
    same = replace(failure, violation=replace(failure.violation, message=f"{PLACE}: elsewhere"))
    assert len({failure.cause, other.cause, below.cause}) == 3
    assert failure.cause == same.cause == (f"CRASH {PLACE}",)
    kept = Cause(failure.law, failure.kinds, TWO.name, failure.driver, failure.seed, failure.violation.message)
    assert kept.key == failure.cause


def test_a_crash_is_told_alike_where_it_was_found_and_where_it_is_looked_at() -> None:
    failure = crash()
    assert isinstance(failure.minimal, Trace)
    last = list(samples(failure.minimal, TWO))[-1]
    assert last.violations == (failure.violation,)
    assert last.outcome.why == FAR


@pytest.mark.parametrize(("law", "causes"), [(CRASH, 1), (HANG, 1), ("KEY", 2)])
def test_one_place_is_one_cause_whatever_came_before(law: str, causes: int) -> None:
    """A rule that gives up at one line does so after many programs; a law that breaks is told apart by them."""
    failure = crash()
    assert isinstance(failure.minimal, Trace)
    failure = replace(failure, violation=replace(failure.violation, code=law))
    longer = replace(failure, minimal=replace(failure.minimal, ops=(*failure.minimal.ops, Dispatch())))
    found = Causes()
    for seed, one in enumerate((failure, longer)):
        found.take(Cause(law, one.kinds, TWO.name, one.driver, seed, one.violation.message))
    assert len({failure.cause, longer.cause}) == len(found.all()) == causes
    assert sum(cause.count for cause in found.all()) == 2
