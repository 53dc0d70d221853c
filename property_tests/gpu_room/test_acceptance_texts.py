"""Prompts of real text, and a trained pair on them: sound reuse accepts what a cold run does, broken reuse less."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_backend.acceptance.draws import signed
from gpu_backend.acceptance.metrics import accept_trace
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.acceptance.texts import Ids, Spoken, Texts, open_texts
from gpu_backend.modules.drafters import in_blocks
from gpu_backend.modules.loader import load_pair
from gpu_backend.replay.result import NATURAL, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from gpu_backend.train.encoding import END_OF_TEXT, SPECIAL, train_tokenizer
from gpu_backend.train.speculation import measure
from model.config import RequestSpec
from model.ops import Submit
from model.tokens import Segment, prompt_tokens
from property_tests.gpu_room.test_replay_natural import scenario_of
from property_tests.gpu_room.trained import RECIPE
from scenarios.errors import InputError
from sim.rulespec import find

LINE = np.random.default_rng(7).integers(len(SPECIAL), 90, 4000)
REUSE = """
geometry: tiny
workload:
  concurrency: 1
  prefixes: {document: 45}
  sessions:
    - {name: cold, prompt: document, output: 24}
    - {name: repeat, prompt: document, output: 24}
acceptance: {forced: 2}
"""
TURNS = """
geometry: tiny
workload:
  concurrency: 2
  prefixes: {shared: 20}
  sessions:
    - {name: one, copies: 2, turns: [{prompt: [shared, 9], output: 7}, {append: 5, output: 4}]}
acceptance: {forced: 2}
"""


def spoken(*prompt: Segment, written: Callable[[int], Ids | None] = lambda seed: None) -> list[int]:
    """A prompt in words, as ids."""
    told = Spoken(Texts(LINE, "a line"), written).told(RequestSpec(0, prompt, 4, 1))
    return prompt_tokens(told.prompt, 90).tolist()


def test_equal_prefixes_have_equal_text_whoever_asks_and_however_much() -> None:
    shared_run, shorter = Segment(11, 300), Segment(11, 120)
    whole = spoken(shared_run, Segment(5, 9, 1))
    assert spoken(shorter) == whole[:120] and len(whole) == 309
    assert spoken(Segment(12, 120)) != whole[:120]
    joined = "".join(map(chr, np.concatenate([LINE, LINE])))
    assert "".join(map(chr, whole[:300])) in joined, "a piece of the line"


def test_prompts_branch_where_the_scenario_says() -> None:
    """Runs of siblings begin with tokens of their own, none of which is how the prefix goes on."""
    for length in range(100, 120):
        goes_on = spoken(Segment(11, length + 1))[length]
        firsts = [spoken(Segment(11, length), Segment(50 + first, 6, first))[length] for first in range(1, 40)]
        assert len(set(firsts)) == len(firsts) and goes_on not in firsts
        assert min(firsts) >= len(SPECIAL)


def test_ids_that_are_spelled_out_stay_and_outputs_are_those_that_were_written() -> None:
    prompt = (Segment.of((3, 4, 5)), Segment(77, 2), Segment(78, 3))
    found = spoken(*prompt, written=lambda seed: np.array([88, 87, 86]) if seed == 77 else None)
    assert found[:5] == [3, 4, 5, 88, 87] and found[5:] == spoken(Segment(78, 3))


def test_a_text_is_named_by_its_content_and_goes_on_from_its_beginning() -> None:
    text = Texts(LINE, "a line")
    assert text.name == Texts(LINE.copy(), "elsewhere").name != Texts(LINE[1:], "a line").name
    assert text.run(3998, 5).tolist() == [*LINE[3998:], *LINE[:3]]
    with pytest.raises(InputError, match="expected text of more than 2 different tokens, found 1"):
        Texts(np.array([20] * 9), "a line")


def test_text_is_found_beside_the_weights_or_made_of_the_standard_library(tmp_path: Path) -> None:
    assert open_texts(tmp_path, 512) is None
    (tmp_path / "target").mkdir()
    words = ["def f(x):\n    return x + 1\n", "class A:\n    pass\n"] * 40
    (tmp_path / "target" / "tokenizer.json").write_text(train_tokenizer(words, 300).to_str())
    found = open_texts(tmp_path, 300)
    assert found is not None and len(found.ids) > 100_000 and int(found.ids[0]) == END_OF_TEXT
    with pytest.raises(InputError, match="expected ids below the target's vocabulary of 200"):
        open_texts(tmp_path, 200)
    (tmp_path / "tokens").mkdir()
    path = tmp_path / "tokens" / "prompts.json"
    path.write_text(json.dumps([{"ids": [20, 21, 22, 23]}, {"ids": [24]}]))
    found = open_texts(tmp_path, 300)
    assert found is not None and found.ids.tolist() == [20, 21, 22, 23, 24] and found.source == str(path)
    path.write_text("[{}]")
    with pytest.raises(InputError, match="expected a list of prompts with ids"):
        open_texts(tmp_path, 300)


def reused(folder: Path, build: str, device: torch.device, **order: object) -> Replayed:
    """A document and its repeat."""
    wanted = ReplayOrder(device.type, NATURAL, exact=True, weights=str(folder), **order)  # pyright: ignore[reportArgumentType]
    return replay(scenario_of(REUSE), find(build), wanted)


def submitted(replayed: Replayed) -> Iterator[tuple[RequestSpec, list[int]]]:
    """Requests with their prompts as ids."""
    assert replayed.trace is not None
    for op in replayed.trace.ops:
        if isinstance(op, Submit):
            yield op.spec, prompt_tokens(op.spec.prompt, replayed.trace.config.vocabulary).tolist()


def test_sound_reuse_accepts_what_a_cold_run_does(device: torch.device, trained_pair: Path) -> None:
    replayed = reused(trained_pair, "unified", device)
    assert replayed.findings == () and replayed.exit_code == 0
    assert replayed.result.totals.cached_tokens == 44 and replayed.measured is not None
    cold, hit = (accept_trace(replayed.measured.steps, request) for request in (0, 1))
    assert hit == cold
    table = replayed.measured.table()
    assert table["AL16"] > 1.5, "it was trained for that"
    text = open_texts(trained_pair, RECIPE.target.vocabulary)
    assert text is not None and text.name in replayed.result.notes[-1]


def test_broken_reuse_costs_acceptance_and_leaves_the_cold_request_as_it_was(
    device: torch.device, trained_pair: Path
) -> None:
    sound, broken = (reused(trained_pair, build, device) for build in ("unified", "target-only"))
    assert sound.measured is not None and broken.measured is not None
    assert accept_trace(broken.measured.steps, 0) == accept_trace(sound.measured.steps, 0)
    before, after = (measured.only([1]).table()["AL16"] for measured in (sound.measured, broken.measured))
    assert after < 0.75 * before
    assert {finding.code for finding in broken.findings} >= {"SHADOW"}
    assert [spec.output[:24] for spec, _ in submitted(broken)] == [spec.output[:24] for spec, _ in submitted(sound)]


@pytest.mark.parametrize("rule", [Rule.GREEDY, Rule.BLOCK])
def test_dense_speculation_commits_what_the_replay_does_step_by_step(
    device: torch.device, trained_pair: Path, rule: Rule
) -> None:
    """Timeline `seed`, the paged replay's; the same draws, since both name them by request and position."""
    replayed = reused(trained_pair, "unified", device, sampling=rule.value, temperature=0.8)
    assert replayed.findings == () and replayed.measured is not None
    target, drafter = load_pair(trained_pair / "target", trained_pair / "drafter", device)
    (first, prompt), (second, _) = submitted(replayed)
    prompts = torch.tensor([prompt, prompt], device=device)
    keys = torch.tensor([signed(spec.output_seed) for spec in (first, second)], device=device)
    dense = measure(
        target, in_blocks(drafter), prompts, 23, placeholders=1, sampling=Sampling(rule, 0.8, 0), requests=keys
    )
    for request, spec in enumerate((first, second)):
        assert dense.outputs[request] == spec.output[:23]
        found, wanted = (accept_trace(one.steps, request) for one in (dense, replayed.measured))
        assert found == wanted and found[0][0] == 1
    assert dense.table()["placeholder_steps"] == 2


def test_timeline_immediate_drafts_one_position_earlier_and_writes_the_same(
    device: torch.device, trained_pair: Path
) -> None:
    target, drafter = load_pair(trained_pair / "target", trained_pair / "drafter", device)
    text = open_texts(trained_pair, RECIPE.target.vocabulary)
    assert text is not None
    prompts = torch.from_numpy(np.stack([text.run(240 * row, 40) for row in range(8)])).to(device)
    immediate, seed = (measure(target, in_blocks(drafter), prompts, 32, placeholders=count) for count in (0, 1))
    assert immediate.outputs == seed.outputs
    assert [accept_trace(one.steps, 0)[0][0] for one in (immediate, seed)] == [0, 1]
    assert (immediate.table()["placeholder_steps"], seed.table()["placeholder_steps"]) == (0, 8)
    assert min(one.table()["AL32"] for one in (immediate, seed)) > 1.8


def test_a_later_turn_carries_the_output_that_was_written(device: torch.device, trained_pair: Path) -> None:
    order = ReplayOrder(device.type, NATURAL, weights=str(trained_pair), sampling="block", temperature=0.7)
    replayed = replay(scenario_of(TURNS), find("unified"), order)
    assert replayed.findings == () and replayed.exit_code == 0
    turns = list(submitted(replayed))
    by_session = [[turn for turn in turns if turn[0].conversation == number] for number in (0, 1)]
    for (first, prompt), (_, later) in by_session:
        assert later[:29] == prompt and later[29:36] == list(first.output[:7]) and len(later) == 41
    assert turns[0][1][:20] == turns[1][1][:20] and turns[0][1][20] != turns[1][1][20]
