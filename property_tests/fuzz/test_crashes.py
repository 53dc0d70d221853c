"""Rules that crash: one wording everywhere, and two errors of one rule are two failures."""

from __future__ import annotations

from dataclasses import replace

from model.builds import BUILDS
from model.rules.claim import Claim, ClaimView, WindowedPair
from property_tests.fuzz.cache_shrink import shrink as shrink_cache
from property_tests.fuzz.cache_swarm import play_cache
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.engine_shards import hunt
from property_tests.fuzz.generate.mix import mix_for
from sim.crashes import CRASH
from sim.findings import Cause, Failure
from sim.optrace import Trace
from sim.sampling import samples

FAR = "IndexError in decide: far"


class TwoErrors(WindowedPair):
    """A claim rule that gives up in two ways: a shorter match leads from the first to the second."""

    def decide(self, view: ClaimView) -> Claim:
        if view.target > 12:
            raise IndexError("far")
        if view.target > 8:
            raise KeyError("near")
        return super().decide(view)


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
    other = replace(failure, violation=replace(failure.violation, message="KeyError in decide: 'near'"))
    same = replace(failure, violation=replace(failure.violation, message="IndexError in decide: elsewhere"))
    assert failure.cause != other.cause
    assert failure.cause == same.cause
    assert failure.cause[0] == "CRASH IndexError in decide"
    kept = Cause(failure.law, failure.kinds, TWO.name, failure.driver, failure.seed, failure.violation.message)
    assert kept.key == failure.cause


def test_a_crash_is_told_alike_where_it_was_found_and_where_it_is_looked_at() -> None:
    failure = crash()
    assert isinstance(failure.minimal, Trace)
    last = list(samples(failure.minimal, TWO))[-1]
    assert last.violations == (failure.violation,)
    assert last.outcome.why == FAR
