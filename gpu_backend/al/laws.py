"""Which laws see a fault in the sim, without a device, under the condition in which it costs acceptance."""

from __future__ import annotations

from dataclasses import replace

from gpu_backend.al import conditions
from gpu_backend.al.conditions import Condition
from gpu_backend.al.order import AGENTIC
from gpu_backend.al.pair import LoadedPair
from model.builds import Build
from scenarios.behaviour_schema import Acceptance
from sim.crashes import ENDS
from sim.run import run_scenario

HITS, TOKENS = 8, 48  # as many show which law is first


def caught_by(pair: LoadedPair, condition: Condition, build: Build) -> list[str]:
    """Codes of the laws that break, in the order in which they first do; of a run that breaks off, what ended it.

    Steps commit no draft, all of them, none, one, in turn: rows of accepted drafts and of refused ones both come up.
    """
    hits = condition.hits if condition.name == AGENTIC else condition.hits[:HITS]
    few = replace(condition, hits=hits, tokens=min(condition.tokens, TOKENS))
    scenario = conditions.warm(pair, few)
    counts = Acceptance(forced=[1, 1 + pair.drafts, 1, 2])
    drawn = scenario.replace(acceptance=counts).serving(scenario.workload())
    try:
        result = run_scenario(drawn, build, check="incremental").whole()
    except ENDS as error:
        return [type(error).__name__]
    return list(dict.fromkeys(one.code for one in result.violations))
