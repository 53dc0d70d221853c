"""Which laws see a fault in the sim, without a device, under the condition in which it costs acceptance."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.al import conditions
from gpu_backend.al.conditions import Condition
from gpu_backend.al.order import AGENTIC
from gpu_backend.al.pair import LoadedPair
from model.builds import Build
from sim.crashes import ENDS
from sim.run import run_scenario

HITS, TOKENS = 8, 16  # as many show which law is first


def caught_by(pair: LoadedPair, condition: Condition, build: Build) -> list[str]:
    """Codes of the laws that break, in the order in which they first do; of a run that breaks off, what ended it."""
    hits = condition.hits if condition.name == AGENTIC else condition.hits[:HITS]
    few = replace(condition, hits=hits, tokens=min(condition.tokens, TOKENS))
    try:
        result = run_scenario(conditions.warm(pair, few), build, check="incremental")
    except ENDS as error:
        return [type(error).__name__]
    return list(dict.fromkeys(one.code for one in result.violations))
