"""DSpark in a replay: its blocks are drafted slot by slot, eagerly and in graphs, as plain speculation drafts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_backend.acceptance.confidence import Confidence, table
from gpu_backend.acceptance.metrics import accept_trace
from gpu_backend.acceptance.rules import Rule
from gpu_backend.modules.plain import PlainDrafter, PlainTarget
from gpu_backend.modules.saver import save
from gpu_backend.modules.speculate import speculate_plain
from gpu_backend.modules.tier0 import TINY, drafter_for, random_drafter, random_target
from gpu_backend.replay.modelled import models_for
from gpu_backend.replay.natural import WEIGHTS
from model.ops import Submit
from model.tokens import prompt_tokens
from property_tests.gpu_room.test_replay_chain import assert_dense
from property_tests.gpu_room.test_replay_natural import FEW_WORDS, PADDED, natural, scenario_of
from sim.rulespec import find

ONE = FEW_WORDS.replace("copies: 3", "copies: 1") + "drafter: {kind: dspark}\n"
GRAPHED = PADDED.replace("output: 24", "output: 10") + "drafter: {kind: dspark}\n"


def test_tokens_and_accept_traces_equal_plain_speculation(device: torch.device) -> None:
    """Behind the first generation step, which verifies placeholders."""
    scenario = scenario_of(ONE)
    replayed = natural(scenario, device, exact=True)
    assert replayed.findings == () and replayed.exit_code == 0 and replayed.trace is not None
    (spec,) = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    config = scenario.engine_config(find(scenario.build))
    models = models_for(config, WEIGHTS, device, exact=True)
    assert models.drafter.config.kind == "dspark" and models.drafter.markov_head is not None
    prompt = prompt_tokens(spec.prompt, config.vocabulary).tolist()
    target = PlainTarget(models.target.config, models.target.state_dict())
    drafter = PlainDrafter(models.drafter.config, models.drafter.state_dict())
    wanted, steps = speculate_plain(target, drafter, [*prompt, spec.output[0]], spec.max_new_tokens - 1)
    assert list(spec.output[1 : spec.max_new_tokens]) == wanted[: spec.max_new_tokens - 1]
    assert replayed.measured is not None
    trace = [committed for _, committed in accept_trace(replayed.measured.steps, 0)]
    assert trace[: len(steps) - 1] == steps[:-1] and max(steps[:-1]) > 1
    assert replayed.confidence is None, "it has no such head"


@pytest.mark.parametrize("sampling", ["greedy", "block"])
def test_graphs_commit_what_eager_steps_do(device: torch.device, sampling: str) -> None:
    eager, graphs = (
        natural(scenario_of(GRAPHED), device, exact=True, graphs=wanted, sampling=sampling) for wanted in (False, True)
    )
    assert graphs.findings == () and graphs.exit_code == 0
    assert graphs.trace is not None and eager.trace is not None
    assert graphs.trace.ops == eager.trace.ops, "tokens and accepted counts"
    assert graphs.trace.memory_digest == eager.trace.memory_digest
    assert sum(worker.in_graphs for worker in graphs.workers) > 3


def test_sampled_drafts_are_those_that_dense_speculation_draws() -> None:
    assert_dense(scenario_of(ONE), Rule.BLOCK)


def test_chances_are_summed_for_drafts_that_were_tried() -> None:
    """A draft behind a rejected one is not, nor one of a placeholder, nor one that nobody told a chance."""
    kept = Confidence(4, 3, torch.device("cpu"))
    slot = torch.tensor([2, 0, 1, 3])
    kept.hear(slot[:3], torch.tensor([[0.5, 0.25, 0.125], [1.0, 0.75, 0.5], [0.9, 0.9, 0.9]]))
    kept.judge(slot, torch.tensor([2, 4, 1, 3]), torch.tensor([True, True, False, True]))
    assert table([kept]) == {"tried": [2, 2, 1], "chance": [0.75, 0.5, 0.5], "accepted": [1.0, 0.5, 1.0]}
    kept.forget(0)
    kept.judge(slot[:2], torch.tensor([1, 4]))
    assert table([kept, Confidence(1, 3, torch.device("cpu"))]) == {
        "tried": [3, 2, 1], "chance": [0.6667, 0.5, 0.5], "accepted": [0.6667, 0.5, 1.0],
    }  # fmt: skip
    assert table([]) is None and table([Confidence(1, 3, torch.device("cpu"))]) is None


def test_a_replay_reports_what_the_confidence_head_foretold(device: torch.device, tmp_path: Path) -> None:
    few = replace(TINY, vocabulary=3)
    drafter = replace(drafter_for(few, block=3, window=12, logits_start=0, markov_rank=4), confidence="markov")
    save(tmp_path / "target", random_target(few, 3, drafter.taps), few)
    save(tmp_path / "drafter", random_drafter(drafter, 3), drafter)
    eager, graphs = (
        natural(scenario_of(GRAPHED), device, exact=True, graphs=wanted, weights=str(tmp_path))
        for wanted in (False, True)
    )
    assert eager.confidence == graphs.confidence and eager.confidence is not None and eager.measured is not None
    tried = eager.confidence["tried"]
    assert tried[0] >= eager.measured.table()["verify_steps"], "passes whose request had ended are tried, too"
    assert tried == sorted(tried, reverse=True) and tried[1] > 0
    assert all(0 < chance < 1 for chance, count in zip(eager.confidence["chance"], tried, strict=True) if count)
