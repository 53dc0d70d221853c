"""A trace run again: it is served to its end as a program is."""

from __future__ import annotations

from dataclasses import replace

from model.builds import BUILDS
from model.config import RequestSpec
from model.faults import resolve_build
from model.ops import Submit
from model.tokens import Segment
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.generate.engine import engine
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.rerun import rerun
from property_tests.fuzz.shrink import shrink
from property_tests.fuzz.swarm import play_seed
from sim.optrace import Trace
from sim.replay import replay_trace


def test_what_is_left_of_a_trace_is_drained_as_long_as_a_program_is() -> None:
    """150 tokens, one a step: a shorter patience would call it stuck."""
    config = engine(Seeded(0), Mix())
    config = replace(config, limits=replace(config.limits, run_ahead=0))
    spec = RequestSpec(1, (Segment(11, 4),), 150, 1001, drafts=False)
    result = rerun(Trace("long", "unified", 0, "exhaustive", config, (Submit(spec),)), BUILDS["unified"])
    assert result.violation is None
    assert result.world.records()[1].state == "finished"
    assert len(result.ops) > 300


def test_the_digests_of_a_program_that_broke_a_law_are_those_of_its_replay() -> None:
    """A program stops where a law breaks, a replay goes on to the end of the run: both take in what came last."""
    build = resolve_build("fault:raw-keys")
    codes = set()
    for seed in (6, 16, 19):
        found = play_seed(seed, build, Mix()).trace(build.name, seed)
        shrunk = shrink(found, build, 20)
        assert shrunk is not None
        codes.add(shrunk.violation.code)
        for trace in (found, shrunk.trace):
            result = replay_trace(trace, build, check=trace.check)
            assert result.violations[0].code == shrunk.violation.code
            assert (result.missed, result.memory_digest) == ([], trace.memory_digest)
    assert codes == {"KEY", "REUSE"}
