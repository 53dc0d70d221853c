"""The cache layer as an op language: every correct build is silent, known-bad ones are found and shrink."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from model.builds import BUILDS
from model.config import RequestSpec
from model.faults import FAULTS, resolve_build
from model.tokens import Segment
from property_tests.fuzz.cache_laws import Disagreement
from property_tests.fuzz.cache_shrink import shrink
from property_tests.fuzz.cache_swarm import CacheSwarm, cache_config, swarm_world
from property_tests.fuzz.cache_world import CacheWorld
from property_tests.fuzz.choices import Seeded
from property_tests.fuzz.machines.base import SURROUNDINGS
from property_tests.fuzz.machines.cache import CacheMachine
from property_tests.laws.worlds import CORRECT
from scenarios.errors import InputError
from sim.cacheops import CacheProgram, Chunk, Claim, Close, Commit, Create, Evict, Row, load_program, save_program
from sim.findings import Failure

# Fault, law that must speak first, seeds to search through, most ops of its minimal program.
KNOWN_BAD = (
    ("last-manager-wins", ("WINDOW", "REUSE"), 40, 17),
    ("copy-in-place", ("OWN",), 10, 9),
    ("target-first-no-limit", ("FRONT",), 20, 16),
    ("optional-partial-claim", ("WINDOW", "KEY", "OWN"), 20, 14),
    ("raw-keys", ("KEY", "REUSE"), 20, 9),
    ("node-coverage", ("PUB",), 40, 10),
    ("evidence-cut", ("REUSE",), 40, 10),
    ("superseded-key-kept", ("PUB",), 40, 10),
    ("key-of-a-free-page", ("REF",), 10, 6),
    ("hidden-last-holder", ("REF",), 10, 6),
    ("evict-target-only", ("REF",), 10, 5),
    ("draft-context-kept", ("REF",), 10, 3),
    ("tail-not-recorded", ("REF",), 10, 4),
    ("target-not-reverted", ("ROLLBACK",), 60, 17),
    ("release-early", ("WINDOW",), 10, 8),
    ("reserve-twice", ("ADMIT",), 10, 3),
    ("loads-into-last-pages", ("REF", "KEY"), 30, 16),
)


@pytest.mark.parametrize("build", CORRECT)
def test_every_law_of_the_cache_layer_is_silent_on_a_correct_build(build: str) -> None:
    """Goal: no false alarm. Method: 30 swarm programs, the laws after every op."""
    reached = set()
    for seed in range(30):
        world = swarm_world(seed, BUILDS[build])
        assert world.violations == [], f"program {seed}"
        reached |= set(world.features)
    assert {"suspension", "eviction", "offload", "chunk refused", "row refused", "finished"} <= reached


@pytest.mark.parametrize(("name", "laws", "seeds", "most"), KNOWN_BAD, ids=[entry[0] for entry in KNOWN_BAD])
def test_a_known_bad_rule_is_found_and_its_program_is_short(
    name: str, laws: tuple[str, ...], seeds: int, most: int
) -> None:
    """Goal: the layer's laws see what they are for. Method: swarm programs until one breaks, then ddmin."""
    build = resolve_build(f"fault:{name}")
    worlds = (swarm_world(seed, build) for seed in range(seeds))
    world = next((world for world in worlds if world.violations), None)
    assert world is not None, f"{seeds} programs and no law broke"
    first = world.violations[0]
    assert first.code in laws
    minimal = shrink(world.config, build, world.ops, first)
    violation = CacheWorld(world.config, build).run(minimal)
    assert violation is not None and violation.code == first.code
    base = BUILDS[FAULTS[name].base]
    assert CacheWorld(world.config, base).run(world.ops) is None
    assert CacheWorld(world.config, base).run(minimal) is None
    assert len(minimal) <= most, "\n".join(map(str, minimal))


@pytest.mark.parametrize("name", ["unified", "paired-22", *(f"fault:{entry[0]}" for entry in KNOWN_BAD[::3])])
def test_looking_at_what_an_op_touched_finds_what_the_full_pass_finds(name: str) -> None:
    """Goal: the cheap check is enough. Method: one program under both; same ops, same first violation."""
    build = resolve_build(name)
    for seed in range(8):
        cheap, full = (swarm_world(seed, build, check) for check in ("touched", "full"))
        assert cheap.ops == full.ops
        assert cheap.violations[:1] == full.violations[:1]


@pytest.mark.parametrize("seed", [105, 115, 116, 125])
def test_a_promise_that_grows_on_a_known_node_is_seen_at_once(seed: int) -> None:
    """Programs whose first broken law the cheap look once missed: it looked only at pages that came under a node."""
    build = resolve_build("fault:target-only-loads")
    cheap, full = (swarm_world(seed, build, check) for check in ("touched", "full"))
    assert cheap.ops == full.ops
    assert cheap.violations[0] == full.violations[0]


def test_looks_that_disagree_are_a_crash_on_a_correct_build_and_a_broken_law_on_any_other() -> None:
    """A bad rule may break what an op did not touch; on a correct build one of the two looks is wrong then."""
    with pytest.raises(Disagreement, match="the books are off"):
        swarm_world(3, resolve_build("unified")).laws.everything(silent=False)
    laws = swarm_world(3, resolve_build("fault:target-only-loads")).laws
    laws.docket.violations.clear()
    laws.everything(silent=False)
    assert [violation.code for violation in laws.docket.violations] == ["REF"]


def test_the_machine_of_the_cache_layer_looks_at_everything_after_every_rule() -> None:
    machine = CacheMachine()
    machine.open(bytes(SURROUNDINGS))
    assert machine.world is not None and machine.world.laws.full_every == 1


def test_any_order_of_ops_is_a_program() -> None:
    """Goal: a total interpreter. Method: the ops of swarm programs, shuffled and thinned; nothing raises."""
    for seed in range(20):
        rng = Random(seed)
        ops = list(swarm_world(seed, BUILDS["unified"]).ops)
        rng.shuffle(ops)
        world = CacheWorld(cache_config(Seeded(seed)), BUILDS["paired-22"])
        assert world.run(ops[: len(ops) * 2 // 3]) is None
        assert world.skips > 0 and world.steps > 0


def test_a_skip_says_why() -> None:
    """What is illegal now is told in one sentence and changes nothing."""
    world = CacheWorld(cache_config(Seeded(1)), BUILDS["unified"])
    spec = RequestSpec(1, (Segment(1, 5),), 2, 7)
    assert world.apply(Claim(1)) == "there is no request 1"
    assert world.apply(Create(spec)) == ""
    assert world.apply(Create(spec)) == "request 1 is still here"
    assert world.apply(Chunk(1, 3)) == "request 1 has not claimed"
    assert world.apply(Claim(1)) == ""
    assert world.apply(Row(1)) == "request 1 has no complete context"
    assert world.apply(Commit(1)) == "request 1 has nothing to compute"
    assert world.apply(Evict("nowhere", 0)) == "there is no pool 'nowhere'"
    assert world.apply(Close(1)) == ""
    assert (world.steps, world.skips) == (3, 6)


def test_a_program_on_file_breaks_the_same_law(tmp_path: Path) -> None:
    """A failure's program survives JSON, and a failure of the cache layer has a cause like any other."""
    build = resolve_build("fault:copy-in-place")
    world = swarm_world(0, build)
    violation = world.violations[0]
    program = CacheProgram(build.name, 0, world.config, tuple(world.ops))
    save_program(tmp_path / "program.jsonl", program)
    loaded = load_program(tmp_path / "program.jsonl")
    assert loaded == program
    assert CacheWorld(loaded.config, resolve_build(loaded.build)).run(loaded.ops) == violation
    failure = Failure("swarm", 0, program, program, violation)
    assert failure.cause[:3] == ("OWN", failure.kinds[0], failure.kinds[1])
    assert failure.kinds[0] == "create"


@pytest.mark.parametrize(
    ("number", "line", "problem"),
    [
        (0, '{"format":"kvtwin-ops","schema":1}', "expected the header of a kvtwin-cache-ops program of schema 1"),
        (1, '{"op":"leap"}', "expected op to be one of create, claim"),
        (1, '{"op":"chunk","request":1}', "expected request, tokens in a chunk, found op, request"),
        (1, '{"op":"close","request":-1}', "expected request_id to be a whole number from 0"),
        (1, "nothing", "expected a line of JSON"),
        (-1, '{"end":7}', "the file is cut"),
    ],
)
def test_a_bad_program_file_gets_one_line(tmp_path: Path, number: int, line: str, problem: str) -> None:
    path = tmp_path / "program.jsonl"
    save_program(path, CacheProgram("unified", 0, cache_config(Seeded(0)), (Evict("target", 0),)))
    lines = path.read_text().splitlines()
    lines[number] = line
    path.write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        load_program(path)
    assert problem in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{number % len(lines) + 1}: ")


def test_a_swarm_switches_kinds_off() -> None:
    """Each program has kinds of its own: what gets nobody on may be missing, what is needed never is."""
    sets = set()
    for seed in range(40):
        choices = Seeded(seed)
        swarm = CacheSwarm(CacheWorld(cache_config(choices), BUILDS["unified"]), choices)
        sets.add(frozenset(swarm.kinds))
        assert {Create, Claim, Chunk, Commit} <= set(swarm.kinds)
    assert len(sets) > 20
