"""A trace run again: it is served to its end as a program is."""

from __future__ import annotations

from dataclasses import replace

from model.builds import BUILDS
from model.config import RequestSpec
from model.ops import Submit
from model.tokens import Segment
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.generate.engine import engine
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.rerun import rerun
from sim.optrace import Trace


def test_what_is_left_of_a_trace_is_drained_as_long_as_a_program_is() -> None:
    """150 tokens, one a step: a shorter patience would call it stuck."""
    config = engine(Seeded(0), Mix())
    config = replace(config, limits=replace(config.limits, run_ahead=0))
    spec = RequestSpec(1, (Segment(11, 4),), 150, 1001, drafts=False)
    result = rerun(Trace("long", "unified", 0, "exhaustive", config, (Submit(spec),)), BUILDS["unified"])
    assert result.violation is None
    assert result.world.records()[1].state == "finished"
    assert len(result.ops) > 300
