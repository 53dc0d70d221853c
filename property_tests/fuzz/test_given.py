"""The constants of engines: what the generator gives, and what a simpler world may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.generate.engine import engine
from property_tests.fuzz.generate.given import could_be_generated
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.generate.setup import setup
from property_tests.fuzz.simpler import given, plainer_worlds
from sim.optrace import Trace

MIX = Mix(realistic=10)
LIMITS = (
    {"max_num_tokens": 8, "chunk_unit": 8},
    {"chunked_prefill": False, "max_num_tokens": 15, "max_seq_len": 65},
    {"max_batch": 3, "graph_batches": (1, 2)},
)


def generated(seed: int) -> Trace:
    plan = setup(Seeded(seed), BUILDS["unified"], MIX)
    config = plan.workers.configs[0] if plan.workers else plan.config
    return Trace("given", "unified", seed, "exhaustive", config, (), workers=plan.workers)


def test_every_generated_engine_could_be_generated() -> None:
    assert all(given(generated(seed)) for seed in range(400))


def test_no_plainer_world_is_one_that_is_never_generated() -> None:
    plainer = 0
    for seed in range(150):
        trace = generated(seed)
        for change in plainer_worlds(trace):
            simpler = change(trace)
            plainer += simpler is not None and simpler != trace
            assert simpler is None or given(simpler)
    assert plainer > 1000


@pytest.mark.parametrize("changes", LIMITS, ids=["no chunk fits", "no prompt fits", "no graph of a full batch"])
def test_limits_that_are_never_generated(changes: dict[str, object]) -> None:
    config = engine(Seeded(0), Mix())
    assert could_be_generated(config)
    assert not could_be_generated(replace(config, limits=replace(config.limits, **changes)))
