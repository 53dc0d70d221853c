"""Sampled acceptance in a replay: recorded, run again to equal digests, held to cold logits and the same draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.judge import ColdTokens, by_block, by_token
from gpu_backend.acceptance.rules import RULES, Rule, Sampling
from gpu_backend.modules.own_pages import OwnPages
from gpu_backend.replay.agreed import Evidence, Ran
from gpu_backend.replay.modelled import models_for
from gpu_backend.replay.natural import WEIGHTS
from gpu_backend.replay.result import NATURAL, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from model.faults import FAULTS
from model.ops import Submit
from model.plan import GenerationRow
from model.tokens import prompt_tokens
from property_tests.gpu_room.test_replay_natural import (
    FEW_WORDS,
    PADDED,
    PAIR,
    RANKS,
    codes,
    natural,
    scenario_of,
    with_few_words,
)
from scenarios import catalog
from scenarios.errors import InputError
from sim.rulespec import find

FEW = FEW_WORDS.replace("copies: 3", "copies: 2").replace("output: 16", "output: 8")
GRAPHED = {  # in graphs: a scenario, its rule
    "padded": (PADDED.replace("output: 24", "output: 8"), "block"),
    "pair": (PAIR.replace("copies: 3", "copies: 1"), "token"),
    "attention-DP": (RANKS.replace("output: 24", "output: 8"), "match"),
}
PLAIN = RULES  # the batched rules, which the judge's own are held to


def outputs(replayed: Replayed) -> list[tuple[int, ...]]:
    """Recorded outputs in the order of submission, as long as they were asked for."""
    assert replayed.trace is not None
    specs = [op.spec for op in replayed.trace.ops if isinstance(op, Submit)]
    return [spec.output[: spec.max_new_tokens] for spec in specs]


@pytest.mark.parametrize("sampling", ["token", "block"])
def test_a_sound_build_commits_what_the_rule_gives_from_cold_logits(device: torch.device, sampling: str) -> None:
    replayed = natural(scenario_of(FEW), device, sampling=sampling, temperature=1.5, exact=True)
    assert replayed.findings == () and replayed.exit_code == 0
    (worker,) = replayed.workers
    assert worker.device_digest == worker.memory_digest
    assert worker.tokens >= replayed.result.totals.output_tokens and worker.ties == 0
    assert replayed.acceptance_length is not None and replayed.acceptance_length > 1


def test_suspended_requests_meet_the_same_draws(device: torch.device) -> None:
    replayed = natural(with_few_words("smoke/disturbed"), device, sampling="block")
    assert replayed.findings == () and replayed.exit_code == 0
    assert sum(worker.tokens for worker in replayed.workers) > 20


@pytest.mark.parametrize(("text", "sampling"), GRAPHED.values(), ids=GRAPHED)
def test_sampled_steps_in_graphs_commit_what_eager_ones_do(device: torch.device, text: str, sampling: str) -> None:
    eager, graphs = (
        natural(scenario_of(text), device, exact=True, graphs=wanted, sampling=sampling) for wanted in (False, True)
    )
    assert graphs.findings == () and graphs.exit_code == 0
    assert graphs.trace is not None and eager.trace is not None
    assert graphs.trace.ops == eager.trace.ops, "tokens and accepted counts"
    assert graphs.trace.memory_digest == eager.trace.memory_digest
    assert sum(worker.in_graphs for worker in graphs.workers) > 4


def test_what_is_sampled_depends_on_the_temperature_but_not_on_the_batch(device: torch.device) -> None:
    scenario, one_by_one = scenario_of(FEW), scenario_of(FEW.replace("concurrency: 2", "concurrency: 1"))
    together = natural(scenario, device, exact=True, sampling="block")
    alone = natural(one_by_one, device, exact=True, sampling="block")
    assert outputs(together) == outputs(alone)
    assert together.measured is not None and alone.measured is not None
    assert together.measured.table()["AL"] == alone.measured.table()["AL"]
    cooler = natural(scenario, device, exact=True, sampling="block", temperature=0.3)
    assert outputs(cooler) != outputs(together)


def test_matched_outputs_are_plain_sampling_token_by_token(device: torch.device) -> None:
    scenario = scenario_of(FEW.replace("copies: 2", "copies: 1"))
    replayed = natural(scenario, device, exact=True, sampling="match", temperature=0.8)
    config, sampling = scenario.engine_config(find(scenario.build)), Sampling(Rule.MATCH, 0.8, scenario.seed)
    models = models_for(config, WEIGHTS, device, exact=True)
    assert replayed.trace is not None
    spec = next(op.spec for op in replayed.trace.ops if isinstance(op, Submit))
    prompt = prompt_tokens(spec.prompt, config.vocabulary).tolist()
    pages = OwnPages(models.target, None, 1, len(prompt) + spec.max_new_tokens, 4)
    key = torch.tensor(spec.output_seed - (1 << 64) if spec.output_seed >> 63 else spec.output_seed, device=device)
    logits, tokens = pages.prefill(0, prompt), list[int]()
    for place in range(spec.max_new_tokens):
        position = torch.tensor(len(prompt) + place, device=device)
        tokens.append(int(sampling.token(logits, key, position)))
        output = pages.run([0], [tokens[-1:]])
        pages.settle([0], [1], [1], output)
        logits = output.logits[0]
    assert list(spec.output[: spec.max_new_tokens]) == tokens


def test_a_wrong_rule_spoils_sampled_tokens_or_context_rows(device: torch.device) -> None:
    fault = FAULTS["narrow-keys"]
    order = ReplayOrder(device.type, acceptance=NATURAL, sampling="block")
    replayed = replay(catalog.load(fault.scenario), fault.build, order)
    assert codes(replayed) & {"SHADOW", "LOSSLESS"}


@pytest.mark.parametrize("rule", [Rule.TOKEN, Rule.BLOCK])
def test_the_judge_who_was_written_apart_agrees_with_the_rules(rule: Rule) -> None:
    draw = np.random.default_rng(4)
    apart = by_token if rule is Rule.TOKEN else by_block
    p, q = draw.dirichlet(np.ones(4), (300, 4)), draw.dirichlet(np.ones(4), (300, 3))
    drafts, u = draw.integers(0, 4, (300, 3)), draw.random((300, 3))
    accepted, weights = PLAIN[rule](*(torch.tensor(one) for one in (p, q, drafts, u)))
    for row in range(300):
        count, rest = apart(p[row], q[row], drafts[row].tolist(), u[row].tolist())
        assert count == int(accepted[row])
        assert np.allclose(rest / rest.sum(), (weights[row] / weights[row].sum()).numpy(), atol=1e-12)
    assert len(accepted.unique()) == 4, "every length was seen"


def judged_step(change: Callable[[torch.Tensor], torch.Tensor], *, exact: bool) -> tuple[list[int], list[bool], int]:
    """Positions that are wrong, whether they are tied, and committed tokens: logits of the pass are ``change`` of the
    cold ones."""
    draw, sampling, key = torch.Generator().manual_seed(8), Sampling(Rule.BLOCK, 1.0, 2), 77
    cold = torch.randn(1, 4, 16, generator=draw) * 3
    request, start = torch.tensor([key]), torch.tensor([9])
    drafts, q = sampling.draft(cold[:, :3] + torch.randn(1, 3, 16, generator=draw) / 4, request, start)
    assert q is not None
    own = change(cold)
    found = sampling.verify(own, drafts, request, start, q)
    count = int(found.accepted)
    first = int(sampling.token(torch.zeros(16), request[0], start[0]))
    output = [first, *found.choice[0, :count].tolist()]
    logits = torch.cat([torch.zeros(1, 16), cold[0, :count]])
    told = ColdTokens(logits, 9, output, key, sampling, torch.float32, exact=exact)
    row = GenerationRow(0, 0, 0, 4, True, ())
    ran = Ran(row, count, output[1:], 9, Evidence(drafts[0], own[0], q[0]))
    wrong = told.wrong(9, 1) + told.wrong(10, count, ran)
    return [place for place, _ in wrong], [one.tied for _, one in wrong], count


def test_a_step_by_the_cold_logits_is_right_one_by_other_logits_is_not() -> None:
    assert judged_step(lambda cold: cold, exact=True)[:2] == ([], [])
    wrong, tied, _ = judged_step(lambda cold: -cold, exact=False)
    assert wrong and tied == [False]


def test_a_committed_token_that_was_changed_is_found_at_its_position() -> None:
    sampling, key = Sampling(Rule.MATCH, 1.0, 2), 5
    logits = torch.randn(6, 12, generator=torch.Generator().manual_seed(1))
    position = 20 + torch.arange(6)
    output = sampling.token(logits, torch.tensor(key), position).tolist()
    output[3] = (output[3] + 1) % 12
    for exact in (True, False):
        told = ColdTokens(logits, 20, output, key, sampling, torch.float32, exact=exact)
        assert [place for place, _ in told.wrong(20, 6)] == [23]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"sampling": "block"}, "sampling: expected natural acceptance beside block, found forced"),
        ({"acceptance": NATURAL, "sampling": "token", "temperature": 0.0}, "temperature: expected a number above 0"),
        ({"acceptance": NATURAL, "sampling": "token", "temperature": float("inf")}, "temperature: expected a number"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(device: torch.device, order: dict[str, object], said: str) -> None:
    wanted = dataclasses.replace(ReplayOrder(device.type), **order)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=said):
        replay(scenario_of(FEW_WORDS), find("unified"), wanted)
