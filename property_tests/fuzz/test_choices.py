"""Sources of choices: bounds, the simplest choice, and programs of bytes that end in zeros."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.builds import BUILDS
from model.config import Drafter, EngineConfig, RequestSpec
from model.request import len_prompt
from property_tests.fuzz import strategies
from property_tests.fuzz.bytesprog import LENGTH, programs
from property_tests.fuzz.choices import Bytes, Choices, Seeded
from property_tests.fuzz.generate.mix import FOCUS, Mix, mix_for
from property_tests.fuzz.generate.setup import Setup, setup
from property_tests.fuzz.generate.workload import Edges, cut

QUICK = settings(max_examples=40)


@pytest.mark.parametrize("count", [1, 2, 7, 100, 256, 257, 5000])
def test_every_source_stays_below_the_count_and_reaches_both_ends(count: int) -> None:
    seeded = Seeded(5)
    sources: list[Choices] = [seeded, Bytes(bytes(range(256)) * 80)]
    for source in sources:
        drawn = {source.below(count) for _ in range(4000)}
        assert drawn <= set(range(count))
    assert Bytes(b"\x00\x00").below(count) == 0
    assert Bytes(b"\xff\xff").below(count) == count - 1


def test_a_seed_gives_the_same_choices_again() -> None:
    assert [Seeded(9).below(1000) for _ in range(2)] == [Seeded(9).below(1000)] * 2
    assert [Seeded(9).below(1 << 30)] != [Seeded(10).below(1 << 30)]


def test_a_program_of_bytes_that_is_used_up_makes_the_simplest_choices() -> None:
    short = Bytes(b"\xff")
    assert short.pick("abc") == "c"
    assert (short.pick("abc"), short.between(3, 9), short.chance(99), short.weighted((2, 5))) == ("a", 3, False, 0)
    assert short.used > len(short.program)


@given(st.binary(min_size=1, max_size=2), st.integers(1, 1000))
def test_lower_bytes_are_lower_choices(word: bytes, count: int) -> None:
    lower = bytes((max(0, word[0] - 1), *word[1:]))
    assert Bytes(lower).below(count) <= Bytes(word).below(count)


def test_weights_are_kept_and_none_of_no_weight_is_drawn() -> None:
    source = Seeded(1)
    drawn = [source.weighted((0, 3, 1, 0)) for _ in range(4000)]
    assert set(drawn) == {1, 2}
    assert 2.5 < drawn.count(1) / drawn.count(2) < 3.5


def test_hypothesis_generates_byte_programs_of_one_length_that_a_seed_names() -> None:
    first = programs(7, 30)
    assert first == programs(7, 30)
    assert first != programs(8, 30)
    assert {len(program) for program in first} == {LENGTH}
    assert len(set(first)) > 20


@QUICK
@given(strategies.drafters(), strategies.geometries())
def test_drafters_and_geometries_are_of_the_sizes_for_fuzzing(drafter: Drafter, geometry: tuple) -> None:
    assert 1 <= drafter.drafts <= 7
    assert drafter.window is None or 1 <= drafter.window <= 12
    page, target, draft = geometry
    assert page in (2, 4, 8)
    assert target[0].window is None
    assert all(life.sinks in (0, page) for life in (*target, *draft))


@QUICK
@given(st.data(), strategies.engines())
def test_prompts_lie_within_the_edges_and_later_ones_go_back_to_earlier_ones(
    data: st.DataObject, config: EngineConfig
) -> None:
    specs: tuple[RequestSpec, ...] = data.draw(strategies.workloads(config))
    most = Edges.of(config).longest + 2 * config.limits.page_size
    assert 2 <= len(specs) <= 6
    assert [spec.request_id for spec in specs] == list(range(1, len(specs) + 1))
    assert all(1 <= len_prompt(spec) <= most for spec in specs)


@QUICK
@given(strategies.setups(BUILDS["paired-22"]))
def test_a_setup_opens_on_its_build(plan: Setup) -> None:
    world = plan.open(BUILDS["paired-22"], "off")
    assert world.config.limits == plan.config.limits
    assert plan.workers is None or len(world.workers) == len(plan.workers.configs)


def test_focus_shifts_the_mix_towards_what_a_rule_needs_and_keeps_the_rest() -> None:
    assert mix_for(()) == Mix()
    for rule in FOCUS:
        assert mix_for((rule,)) != Mix(), rule
    pairs = mix_for(("transfer", "unbacked"))
    assert pairs.workers[3] > sum(pairs.workers[:3])
    assert pairs.reuse == Mix().reuse


def test_a_cut_prompt_is_the_start_of_the_whole_one() -> None:
    plan = setup(Seeded(3), BUILDS["unified"], Mix())
    prompt = plan.specs[-1].prompt
    for tokens in range(1, sum(run.length for run in prompt) + 1):
        short = cut(prompt, tokens)
        assert sum(run.length for run in short) == tokens
        assert all(mine == whole for mine, whole in zip(short[:-1], prompt, strict=False))
