"""Chain drafters in a replay: cells that look ahead, drafts one by one, as plain speculation has them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from gpu_backend.acceptance.draws import signed
from gpu_backend.acceptance.metrics import accept_trace
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.modules.chain import Chain
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.plain import PlainTarget
from gpu_backend.modules.plain_chain import PlainChain, speculate_chain
from gpu_backend.modules.tier0 import TINY, chain_for, random_pair
from gpu_backend.replay.modelled import models_for
from gpu_backend.replay.natural import WEIGHTS
from gpu_backend.replay.result import NATURAL, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from gpu_backend.train.speculation import measure
from model.faults import FAULTS
from model.ops import Submit
from model.tokens import prompt_tokens
from property_tests.gpu_room.test_replay_natural import codes, natural, scenario_of
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.rulespec import find

CPU = torch.device("cpu")  # in float32, for what is compared with plain speculation: bfloat16 has ties
EAGLE3, MTP, EAGLE = "tiny-eagle3, vocabulary: 3", "tiny-mtp, vocabulary: 8", "tiny-mtp-eagle, vocabulary: 8"
DEEP = "tiny-mtp, vocabulary: 2"  # with three modules
PREFIXED = """
geometry: {{preset: {geometry}}}
limits: {{max_num_tokens: {budget}, chunk_unit: 1}}
workload:
  concurrency: 1
  prefixes: {{shared: 17}}
  sessions:
    - {{name: work, copies: 2, prompt: [shared, 4], output: 8}}
acceptance: {{forced: 2}}
"""
DISTURBED = """
geometry: {{preset: {geometry}}}
limits: {{max_num_tokens: 16, graph_batches: [4]}}
workload:
  concurrency: 3
  prefixes: {{shared: 12}}
  sessions:
    - {{name: work, copies: 3, prompt: [shared, 9], output: 8}}
acceptance: {{forced: 2}}
disturbances:
  - {{at_iteration: 5, action: suspend, request: 1}}
  - {{at_iteration: 7, action: fail}}
  - {{at_iteration: 9, action: suspend, request: 0}}
"""


def prefixed(geometry: str, budget: int) -> Scenario:
    """A prompt of 21 tokens in chunks of at most ``budget``, and another one that finds 17 of them."""
    deep = "drafter: {chain: 3, drafts: 3}\n" if geometry == DEEP else ""
    return scenario_of(PREFIXED.format(geometry=geometry, budget=budget) + deep)


def assert_plain(scenario: Scenario, replayed: Replayed) -> None:
    """Tokens and accept traces of all requests are those of plain speculation behind one step of placeholders."""
    assert replayed.trace is not None and replayed.measured is not None
    config = scenario.engine_config(find(scenario.build))
    models = models_for(config, WEIGHTS, CPU, exact=False)
    assert isinstance(models.drafter, Chain)
    target = PlainTarget(models.target.config, models.target.state_dict(), torch.float64)
    drafter = PlainChain(models.drafter.config, models.drafter.state_dict(), torch.float64)
    submitted = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    for request, spec in enumerate(submitted):
        prompt = prompt_tokens(spec.prompt, config.vocabulary).tolist()
        wanted, steps = speculate_chain(target, drafter, prompt, len(spec.output), placeholders=1)
        assert list(spec.output) == wanted[: len(spec.output)]
        trace = [committed for _, committed in accept_trace(replayed.measured.steps, request)]
        assert trace and trace == steps[1 : 1 + len(trace)]


# 21 = 11 + 9 + 1: what the last cells of the second chunk need beyond the prompt, the last chunk chooses
@pytest.mark.parametrize(("geometry", "budget"), [
    (EAGLE3, 11), (EAGLE3, 5), (EAGLE, 32), (MTP, 11), (MTP, 7), (DEEP, 11),
])  # fmt: skip
def test_tokens_and_accept_traces_are_plain_whatever_the_chunks(geometry: str, budget: int) -> None:
    scenario = prefixed(geometry, budget)
    replayed = natural(scenario, CPU)
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.result.totals.cached_tokens >= 14
    assert_plain(scenario, replayed)


@pytest.mark.parametrize("geometry", [EAGLE3, MTP])
def test_a_chain_goes_on_where_it_was_suspended_in_graphs_as_eagerly(geometry: str) -> None:
    scenario = scenario_of(DISTURBED.format(geometry=geometry))
    eager, graphs = (natural(scenario, CPU, exact=True, graphs=wanted) for wanted in (False, True))
    assert graphs.findings == () and graphs.exit_code == 0
    assert eager.result.totals.suspensions > 0
    assert_plain(scenario, eager)
    assert eager.trace is not None and graphs.trace is not None
    assert graphs.trace.ops == eager.trace.ops and graphs.trace.memory_digest == eager.trace.memory_digest
    assert eager.acceptance_length is not None and eager.acceptance_length > 1
    assert sum(worker.in_graphs for worker in graphs.workers) > 3


def assert_dense(scenario: Scenario, rule: Rule) -> None:
    """LOSSLESS holds sampled tokens to the rule; dense speculation, with the same draws, commits the same step by
    step. All prompts have one length."""
    replayed = natural(scenario, CPU, exact=True, sampling=rule.value, temperature=1.5)
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.trace is not None and replayed.measured is not None
    config = scenario.engine_config(find(scenario.build))
    models = models_for(config, WEIGHTS, CPU, exact=True)
    specs = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    prompts = torch.tensor([prompt_tokens(spec.prompt, config.vocabulary).tolist() for spec in specs])
    keys = torch.tensor([signed(spec.output_seed) for spec in specs])
    dense = measure(
        models.target, models.drafter, prompts, 8, placeholders=1, sampling=Sampling(rule, 1.5, 0), requests=keys
    )
    for request, spec in enumerate(specs):
        assert dense.outputs[request] == spec.output[:8]
        found, wanted = (accept_trace(one.steps, request) for one in (replayed.measured, dense))
        assert found[: len(wanted) - 1] == wanted[:-1]
    counted = replayed.measured.steps.counted()
    assert counted.committed.max() > 1


@pytest.mark.parametrize(("geometry", "rule"), [(EAGLE3, Rule.TOKEN), (MTP, Rule.BLOCK)])
def test_sampled_drafts_are_judged_by_what_they_were_drawn_from(geometry: str, rule: Rule) -> None:
    assert_dense(prefixed(geometry, 11), rule)


def test_a_base_hides_cells_from_later_modules_of_the_cold_run_as_well(device: torch.device) -> None:
    """Pools that are not paired: the target's prefix is reused, and the drafter begins behind it."""
    replayed = natural(prefixed(MTP, 32), device, "target-21")
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.result.totals.cached_tokens >= 16 and replayed.result.totals.draft_cached_tokens == 0


def faulty(name: str, device: torch.device) -> Replayed:
    """A wrong rule on the scenario that shows it."""
    fault = FAULTS[name]
    return replay(catalog.load(fault.scenario), fault.build, ReplayOrder(device.type, acceptance=NATURAL))


def test_placeholders_at_a_chunk_end_leave_other_cells_than_a_cold_run(device: torch.device) -> None:
    """KEY names the very cell, and does so before a drafter's pass has read it; the memories stay equal."""
    replayed = faulty("placeholder-lookahead", device)
    assert replayed.equal and codes(replayed) == {"SHADOW", "KEY"}
    key = next(one for one in replayed.result.violations if one.code == "KEY")
    shadow = next(one for one in replayed.findings if one.code == "SHADOW")
    assert (key.request, key.page, key.position) == (shadow.request, shadow.page, shadow.position) == (0, 1, 7)
    chunks = 24 // 8
    assert key.step < chunks, "the prompt is not even whole"
    assert {one.position for one in replayed.findings if one.request == 0 and one.code == "SHADOW"} == {7, 15, 23}


@pytest.mark.parametrize("name", ["raw-keys", "trim-only", "publish-tail"])
def test_a_claim_that_looks_ahead_too_little_reuses_another_requests_cell(device: torch.device, name: str) -> None:
    replayed = faulty(name, device)
    key = next(one for one in replayed.result.violations if one.code == "KEY")
    wrong = [(one.request, one.position) for one in replayed.findings if one.code == "SHADOW"]
    assert (key.request, key.position) in wrong and replayed.equal


def test_drafts_left_where_accepted_tokens_belong_are_other_cells(device: torch.device) -> None:
    scenario = prefixed(EAGLE3, 32)
    build = find("fault:kept-provisional")
    replayed = replay(scenario, build, ReplayOrder(device.type, acceptance=NATURAL))
    assert replayed.equal and replayed.findings[0].code == "SHADOW"


@cache
def plain_pair(config: DrafterConfig) -> tuple[PlainTarget, PlainChain]:
    target, drafter = random_pair(replace(TINY, layers=4), config, 7, "cpu")
    return PlainTarget(target.config, target.state_dict()), PlainChain(config, drafter.state_dict())


def test_a_cell_hangs_on_the_tokens_that_it_looks_ahead_to_and_no_other() -> None:
    config = chain_for(replace(TINY, layers=4), "mtp", drafts=2, depth=2)
    target, drafter = plain_pair(config)
    tokens = list(range(40, 60))
    _, cells = drafter.drafts(target, tokens)
    _, others = drafter.drafts(target, [*tokens[:12], 7, *tokens[13:]])
    for module, first in ((0, 11), (1, 10)):
        known, other = cells.k[module], others.k[module]
        assert known is not None and other is not None
        assert torch.equal(known[:first], other[:first]) and not torch.allclose(known[first], other[first])


def test_a_chain_of_several_modules_needs_a_draft_each(device: torch.device) -> None:
    scenario = scenario_of(PREFIXED.format(geometry=MTP, budget=32) + "drafter: {drafts: 3}\n")
    with pytest.raises(InputError, match="drafts: expected 2 drafts, one of each module of the chain, found 3"):
        natural(scenario, device)


def test_what_later_modules_start_from_goes_with_the_pages_to_another_worker() -> None:
    scenario = scenario_of(PREFIXED.format(geometry=MTP, budget=32) + "workers: {kind: disaggregated}\n")
    replayed = natural(scenario, CPU)
    assert replayed.findings == () and replayed.exit_code == 0 and len(replayed.workers) == 2
    assert_plain(scenario, replayed)
