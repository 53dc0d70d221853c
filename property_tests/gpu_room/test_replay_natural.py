"""Natural acceptance in a replay: recorded, run again to equal digests, held to cold runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_backend.backend import kernels_for
from gpu_backend.modules.own_pages import greedy_cold
from gpu_backend.replay.device_faults import DEVICE_FAULTS
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled import models_for
from gpu_backend.replay.modelled_world import RecordingWorld
from gpu_backend.replay.natural import WEIGHTS, Recorder
from gpu_backend.replay.result import NATURAL, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from model.faults import FAULTS
from model.ops import Land, Settle, Submit
from model.plan import GenerationRow
from model.tokens import prompt_tokens
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from sim.optrace import load_trace, save_trace
from sim.replay import replay_trace
from sim.rulespec import find
from sim.run import run_scenario

FEW_WORDS = """
geometry: {preset: tiny, vocabulary: 5}
workload:
  concurrency: 2
  prefixes: {shared: 9}
  sessions:
    - {name: work, copies: 3, prompt: [shared, 6], output: 16}
acceptance: {forced: 2}
"""

PAIR = """
geometry: {preset: tiny, vocabulary: 3}
workers: {kind: disaggregated, link: {latency_s: 0.02, loss: 0.3, recompute: true}}
workload:
  concurrency: 2
  prefixes: {shared: 9}
  sessions:
    - {name: work, copies: 3, prompt: [shared, 6], output: 10}
acceptance: {forced: 2}
"""
PADDED = """
geometry: {preset: tiny, vocabulary: 3}
limits: {graph_batches: [4]}
workload:
  concurrency: 3
  prefixes: {shared: 9}
  sessions:
    - {name: work, copies: 3, prompt: [shared, 6], output: 24}
acceptance: {forced: 2}
"""
RANKS = PADDED.replace("limits: {graph_batches: [4]}", "workers: {kind: attention_dp, count: 2}")
SLOW_COPIES = """
geometry: {preset: tiny, vocabulary: 3}
host_link: {gib_per_s: 1, latency_us: 8000}
limits: {max_num_tokens: 16}
pools:
  target: {device_pages: 12, host_pages: 24}
  draft: {device_pages: 12, host_pages: 24}
workload:
  concurrency: 1
  prefixes: {left: 24, right: 28}
  sessions:
    - {name: left, prompt: [left, 4], output: 6}
    - {name: right, prompt: [right, 4], output: 6}
    - {name: left-again, prompt: [left, 6], output: 6}
acceptance: {forced: 2}
"""


def natural(scenario: Scenario, device: torch.device, build: str | None = None, **order: object) -> Replayed:
    """Replay ``scenario`` with natural acceptance."""
    wanted = ReplayOrder(device.type, acceptance=NATURAL, **order)  # pyright: ignore[reportArgumentType]
    return replay(scenario, find(build or scenario.build), wanted)


def few_words() -> Scenario:
    """A vocabulary so small that random weights agree now and then."""
    return scenario_of(FEW_WORDS)


def scenario_of(text: str) -> Scenario:
    """The scenario that a text of YAML says."""
    return parse_scenario(text, "few_words.yaml", Path())


def with_few_words(name: str) -> Scenario:
    """A scenario of the catalog whose vocabulary has three words, so that drafts are accepted."""
    scenario = catalog.load(name)
    return scenario.model_copy(update={"geometry": scenario.geometry.model_copy(update={"vocabulary": 3})})


def codes(replayed: Replayed) -> set[str]:
    """Codes of the findings."""
    return {finding.code for finding in replayed.findings}


@pytest.mark.parametrize("name", ["smoke/hello", "smoke/subagents", "smoke/disturbed", "smoke/host_tier", "smoke/ops"])
def test_a_sound_build_is_lossless_and_its_context_is_that_of_a_cold_run(device: torch.device, name: str) -> None:
    replayed = natural(catalog.load(name), device)
    assert replayed.findings == () and replayed.exit_code == 0
    (worker,) = replayed.workers
    assert worker.tokens >= replayed.result.totals.output_tokens
    assert worker.context_rows > worker.tokens and worker.slots > 0


def test_each_rank_of_attention_dp_has_modules_of_its_own(device: torch.device) -> None:
    replayed = natural(catalog.load("reports/o31"), device)
    assert replayed.exit_code == 0 and len(replayed.workers) == 2
    assert all(worker.tokens and worker.context_rows for worker in replayed.workers)


@pytest.mark.parametrize("mode", ["equality", "free"])
def test_a_request_goes_on_decoding_where_its_pages_were_sent(device: torch.device, mode: str) -> None:
    replayed = natural(scenario_of(PAIR), device, mode=mode)
    assert replayed.findings == () and replayed.exit_code == 0
    prefill, decode = replayed.workers
    assert prefill.tokens >= 3 and decode.tokens > 2 * prefill.tokens
    assert prefill.context_rows and decode.context_rows
    assert replayed.acceptance_length is not None and replayed.acceptance_length > 1
    assert replayed.trace is not None
    submitted = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    assert [len(spec.output) >= 10 for spec in submitted] == [True] * 3


def test_a_step_runs_behind_the_copies_that_it_waits_for(device: torch.device) -> None:
    replayed = natural(scenario_of(SLOW_COPIES), device)
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.trace is not None
    assert sum(isinstance(op, Land) for op in replayed.trace.ops) > 4
    assert replayed.result.totals.cached_tokens > 0


@pytest.mark.parametrize("build", ["target-21", "paired-22", "recompute-tail", "vllm-lookahead", "sglang-fused"])
def test_every_layout_is_lossless(device: torch.device, build: str) -> None:
    replayed = natural(catalog.load("smoke/hello"), device, build)
    assert replayed.exit_code == 0 and replayed.result.totals.cached_tokens > 0


def test_drafts_are_accepted_where_target_and_drafter_agree(device: torch.device) -> None:
    replayed = natural(few_words(), device, check="full")
    assert replayed.exit_code == 0, replayed.findings
    assert replayed.acceptance_length is not None and replayed.acceptance_length > 1
    assert replayed.trace is not None
    counts = [count for op in replayed.trace.ops if isinstance(op, Settle) for count in op.accepted]
    assert max(counts) > 1


@pytest.mark.parametrize("text", [PADDED, PAIR, RANKS], ids=["padded", "pair", "attention-DP"])
def test_steps_in_graphs_commit_and_leave_what_eager_ones_do(device: torch.device, text: str) -> None:
    eager, graphs = (natural(scenario_of(text), device, exact=True, graphs=wanted) for wanted in (False, True))
    assert graphs.findings == () and graphs.exit_code == 0
    assert graphs.trace is not None and eager.trace is not None
    assert graphs.trace.ops == eager.trace.ops, "tokens and accepted counts"
    assert graphs.trace.memory_digest == eager.trace.memory_digest
    assert graphs.acceptance_length is not None and graphs.acceptance_length > 1
    assert sum(worker.in_graphs for worker in eager.workers) == 0
    assert sum(worker.in_graphs for worker in graphs.workers) > 8


def test_rows_of_different_widths_run_one_kernel_after_the_other(device: torch.device) -> None:
    worlds: list[DeviceWorld] = []
    scenario = scenario_of(PADDED)
    order = ReplayOrder(device.type, acceptance=NATURAL, graphs=True)
    assert replay(scenario, find(scenario.build), order, prepare=worlds.append).exit_code == 0
    steps = worlds[0].steps
    assert steps.graphs is not None and steps.graphs.modules is not None
    row = GenerationRow(0, 0, 0, 4, True, ())
    assert not steps.graphs.modules.ready([row, row._replace(width=1)])
    assert not steps.graphs.modules.ready([row, row._replace(drafts=False)])


def test_an_exact_replay_knows_no_ties(device: torch.device) -> None:
    replayed = natural(few_words(), device, exact=True)
    assert replayed.exit_code == 0 and sum(worker.ties for worker in replayed.workers) == 0


def test_outputs_are_plain_decoding_token_by_token(device: torch.device) -> None:
    """In exact mode, where no tie may fall the other way."""
    scenario = few_words()
    replayed = natural(scenario, device, exact=True)
    config = scenario.engine_config(find(scenario.build))
    models = models_for(config, WEIGHTS, device, exact=True)
    assert replayed.trace is not None
    submitted = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    for spec in submitted[:2]:
        prompt = prompt_tokens(spec.prompt, config.vocabulary).tolist()
        plain, _ = greedy_cold(models.target, prompt, spec.max_new_tokens, 4)
        assert list(spec.output[: len(plain)]) == plain


def test_the_recorded_ops_run_again_to_equal_digests_without_a_device(device: torch.device, tmp_path: Path) -> None:
    replayed = natural(few_words(), device)
    assert replayed.trace is not None
    save_trace(tmp_path / "ops.jsonl", replayed.trace)
    again = replay_trace(load_trace(tmp_path / "ops.jsonl"), find(replayed.trace.build), check="exhaustive")
    assert again.missed == [] and again.violations == []
    assert again.memory_digest == replayed.result.memory_digest == replayed.workers[0].device_digest


def test_in_free_mode_the_device_sets_the_order_and_the_sim_runs_it_again(device: torch.device) -> None:
    replayed = natural(catalog.load("smoke/conversation"), device, mode="free", launch="dispatch")
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.workers[0].ahead == 2
    assert replayed.trace is not None
    assert replay_trace(replayed.trace, find(replayed.trace.build)).missed == []


def test_what_the_device_takes_is_the_time_of_a_free_run(device: torch.device) -> None:
    scenario = few_words()
    build = find(scenario.build)
    recorder = Recorder(free=True)
    models = models_for(scenario.engine_config(build), WEIGHTS, device, exact=False)
    result = run_scenario(
        scenario, build, check="off", measured=recorder,
        opened=lambda world: recorder.devices.append(
            RecordingWorld(world.workers[0], device, kernels_for(device), models, free=True)
        ),
    )  # fmt: skip
    assert result.device_busy_ns == sum(recorder.devices[0].took.values())


def test_ops_have_an_order_of_their_own(device: torch.device) -> None:
    with pytest.raises(InputError, match="mode: expected equality, found free: ops come in an order of their own"):
        natural(catalog.load("smoke/ops"), device, mode="free")
    with pytest.raises(InputError, match="found free: a step is timed when it goes out, before the copies"):
        natural(catalog.load("smoke/host_link"), device, mode="free")


WRONG_RULES = ["store-at-zero", "copy-in-place", "narrow-keys", "rebase-reads-only", "restored-prefix-read"]


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_spoils_tokens_or_context_rows(device: torch.device, name: str) -> None:
    fault = FAULTS[name]
    replayed = replay(catalog.load(fault.scenario), fault.build, ReplayOrder(device.type, acceptance=NATURAL))
    told = [finding for finding in replayed.findings if finding.code in ("SHADOW", "LOSSLESS")]
    assert told, codes(replayed)
    assert all(finding.request >= 0 and finding.pool and finding.position >= 0 for finding in told)


@pytest.mark.parametrize(("name", "graphs"), [("kept-provisional", True), ("no-trail", False)])
def test_a_wrong_rule_that_acts_on_accepted_drafts_spoils_context_rows_where_some_are(
    device: torch.device, name: str, graphs: bool
) -> None:
    fault = FAULTS[name]
    order = ReplayOrder(device.type, acceptance=NATURAL, graphs=graphs)
    replayed = replay(with_few_words(fault.scenario), fault.build, order)
    assert replayed.acceptance_length is not None and replayed.acceptance_length > 1
    assert replayed.findings[0].code == "SHADOW" and replayed.equal


@pytest.mark.parametrize("name", ["row-write-skipped", "copy-one-short", "copy-out-of-order", "stale-table-buffer"])
def test_a_fault_of_the_device_spoils_tokens_or_context_rows(device: torch.device, name: str) -> None:
    fault = DEVICE_FAULTS[name]
    scenario = catalog.load(fault.scenario)
    order = ReplayOrder(device.type, acceptance=NATURAL)
    replayed = replay(scenario, find(scenario.build), order, prepare=fault.put)
    assert codes(replayed) & {"SHADOW", "LOSSLESS"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reports/o08", "expected a drafter of kind dflash, dspark, eagle3, mtp-eagle or mtp, found draft-target-one"),
        ("smoke/two_windows", "expected lifecycles without sinks"),
        ("reports/o75", "attention_dp or disaggregated for natural acceptance, found tensor_parallel: ranks sum"),
    ],
)
def test_what_natural_acceptance_does_not_serve_is_one_line(device: torch.device, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        natural(catalog.load(name), device)
