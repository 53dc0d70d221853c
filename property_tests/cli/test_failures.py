"""What a failure leaves behind: its folder is whole, repeats the failure, and tells of it in words and in a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from model.faults import FAULTS
from model.geometry import ReusePolicy
from model.invariants import Violation
from model.ops import Dispatch
from property_tests.cli.conftest import Command
from property_tests.fuzz.cache_swarm import swarm_world
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.loader import load_scenario
from sim.cacheops import CacheProgram, load_program, save_program
from sim.findings import Failure
from sim.optrace import Trace, load_trace
from sim.rulespec import find
from sim.run import run_scenario
from sim.sampling import samples

failures = import_module("reports.failures")  # a room beside this one: found when it is needed, as a command does it
picture = import_module("reports.timeline")
COMMAND = "kvtwin fuzz --build unified --seed 7"


def failure_of(fault: str, build: str | None = None) -> Failure:
    """What a campaign would have found of a fault, on the ops of its own scenario."""
    scenario = catalog.load(FAULTS[fault].scenario)
    broken = FAULTS[fault].build if build is None else find(build)
    result = run_scenario(scenario, broken, check="exhaustive", record_ops=True)
    workers = scenario.topology(broken)
    config = scenario.engine_config(broken)
    trace = Trace(scenario.name, broken.name, 0, "exhaustive", config, tuple(result.ops), workers=workers)
    return Failure("swarm", 41, trace, trace, result.violations[0])


FAILURES = ("claim-plus2", "step-before-load", "received-into-running-step", "existence-on-one-rank")


@pytest.mark.parametrize("fault", FAILURES)
def test_the_first_line_of_a_folder_repeats_the_failure(kvtwin: Command, tmp_path: Path, fault: str) -> None:
    failure = failure_of(fault)
    folder = failures.write(tmp_path / "failures", failure, COMMAND)
    assert folder.parent == tmp_path / "failures"
    assert folder.name.startswith(f"{failure.law}_")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("repro.txt", "trace.jsonl", "minimal.jsonl", "story.txt", "timeline.svg", "kvtwin.json"),
        f"{folder.name}.yaml",
    }
    first, by, who, what = (folder / "repro.txt").read_text().splitlines()
    assert (by, who) == (f"found by: {COMMAND}", "driver swarm, seed 41")
    assert what.startswith(f"{failure.law} broke (")
    again = kvtwin(*first.split()[1:], "--json")
    assert again.code == 1
    assert again.json()["runs"][0]["violations"][0]["message"] == failure.violation.message
    assert load_trace(folder / "trace.jsonl").ops == failure.trace.ops


@pytest.mark.parametrize("fault", FAILURES)
def test_its_scenario_is_a_regression_of_the_build(kvtwin: Command, tmp_path: Path, fault: str) -> None:
    failure = failure_of(fault)
    folder = failures.write(tmp_path, failure, COMMAND)
    path = folder / f"{folder.name}.yaml"
    text = path.read_text()
    assert text.splitlines()[0].startswith(f"# Found by the driver swarm with seed 41: {failure.law} broke")
    found = kvtwin("run", path, "--check", "exhaustive", "--json").json()["runs"][0]
    assert found["missed"] == []
    assert failure.law in {violation["code"] for violation in found["violations"]}
    sound = run_scenario(catalog.load(str(path)), find(FAULTS[fault].base), check="exhaustive")
    assert sound.violations == []


def test_the_scenario_of_a_rule_under_test_fails_until_the_rule_is_right(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "own_extra_rule.py").write_text(
        "from model.rules.claim import WindowedPair\ndeep = WindowedPair('deep', extra=2)\n"
    )
    failure = failure_of("claim-plus2", "unified+claim=own_extra_rule:deep")
    folder = failures.write(tmp_path / "kept", failure, COMMAND)
    path = folder / f"{folder.name}.yaml"
    assert kvtwin("run", path).code == 1
    told = f"run it in {tmp_path} or with that on PYTHONPATH: the rule's module own_extra_rule"
    assert told in (folder / "repro.txt").read_text().splitlines()
    assert "# It needs the module own_extra_rule of the rule, " in path.read_text()
    assert "# The suite does not know the rule: as a regression, name the build that took it over" in path.read_text()
    path.write_text(path.read_text().replace("build: unified+claim=own_extra_rule:deep", "build: unified"))
    assert kvtwin("run", path).code == 0


def test_the_story_has_a_line_an_op_and_the_law_on_the_last(tmp_path: Path) -> None:
    failure = failure_of("received-into-running-step")
    lines = (failures.write(tmp_path, failure, COMMAND) / "story.txt").read_text().splitlines()
    heading, told, last = lines[0], lines[1:-1], lines[-1]
    assert heading.split()[:5] == ["op", "iter", "worker", "what", "came"]
    numbers = [int(line.split()[0]) for line in told if line[0] != " "]
    assert numbers == list(range(12))
    columns = [heading.index(word) for word in ("what came in", "request", "target", "draft", "what happened")]
    assert all(line[column - 1] == " " for line in told for column in columns if len(line) > column)
    assert any("claims 0 cached tokens" in line for line in told)
    assert last.startswith("FLIGHT broke (worker 1, request 1, pool target, page 4, step 1): a transfer writes a page")
    found = "expected no step in flight uses it, found step 1 of request 0 has the page in its row"
    (row,) = (line for line in told if line.endswith("<-- FLIGHT"))
    assert last.endswith(f"{found}; noticed at op {row.split()[0]}")


def test_the_story_shows_where_the_step_was_made_that_a_later_op_shows_broken(tmp_path: Path) -> None:
    failure = failure_of("raw-keys")
    lines = (failures.write(tmp_path, failure, COMMAND) / "story.txt").read_text().splitlines()
    shown = next(place for place, line in enumerate(lines) if line.endswith(f"<-- {failure.law}"))
    ((made, row),) = ((place, line) for place, line in enumerate(lines) if line.endswith("  <-- made here"))
    assert made < shown
    op, iteration, kind = row.split()[:3]
    assert (int(iteration), kind) == (failure.violation.step + 1, "dispatch")
    assert f"; made at op {op}, noticed at op {lines[shown].split()[0]}" in lines[-1]


def test_the_picture_shows_lanes_pages_and_the_broken_law(tmp_path: Path) -> None:
    failure = failure_of("step-before-load")
    svg = failures.write(tmp_path / "one", failure, COMMAND) / "timeline.svg"
    assert svg.read_bytes() == (failures.write(tmp_path / "two", failure, COMMAND) / "timeline.svg").read_bytes()
    words = ["".join(text.itertext()) for text in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"request 0", "request 1", "request 2", "claims 16", "suspended", "h14", "free in target"} <= set(words)
    (title,) = (word for word in words if word.startswith("FLIGHT broke on fault:step-before-load"))
    last = (svg.parent / "story.txt").read_text().splitlines()[-1]
    assert "noticed at " in title
    assert title.rpartition("; ")[2] == last.rpartition("; ")[2]
    assert not any("T00:" in word or "2026" in word for word in words)


def test_the_picture_of_a_long_trace_shows_its_last_ops() -> None:
    failure = failure_of("claim-plus2")
    assert isinstance(failure.minimal, Trace)
    longer = replace(failure.minimal, ops=(*[Dispatch()] * 300, *failure.minimal.ops))
    seen = list(samples(longer, find(longer.build)))
    figure = picture.timeline(seen, failure.violation, longer.config.limits.page_size, longer.build)
    assert figure.axes[0].get_xlim() == (0, picture.MOST_OPS)
    left_out = len(longer.ops) - picture.MOST_OPS
    assert any(f"first {left_out} ops are left out" in text.get_text() for text in figure.texts)


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of("claim-plus2")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("reports.failures.write_timeline", full)
        with pytest.raises(OSError, match="No space left"):
            failures.write(tmp_path, failure, COMMAND)
    assert list(tmp_path.iterdir()) == []
    folder = failures.write(tmp_path, failure, COMMAND, place=Path("kept/failures"))
    assert f"--ops kept/failures/{folder.name}/minimal.jsonl" in (folder / "repro.txt").read_text()
    assert failures.write(tmp_path, failure, COMMAND) == folder  # an older one is replaced
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"found notes\.txt beside them"):
        failures.write(tmp_path, failure, COMMAND)


def test_what_no_scenario_file_can_say_is_told_in_the_folder(tmp_path: Path) -> None:
    failure = failure_of("claim-plus2")
    assert isinstance(failure.minimal, Trace)
    config = failure.minimal.config
    odd = replace(config, target=(replace(config.target[0], policy=ReusePolicy.OPTIONAL),))
    folder = failures.write(tmp_path, replace(failure, minimal=replace(failure.minimal, config=odd)), COMMAND)
    assert not list(folder.glob("*.yaml"))
    assert "no scenario file: no scenario file says that the layers target are" in (folder / "repro.txt").read_text()
    assert json.loads((folder / "kvtwin.json").read_text())["kind"] == "failure"


def test_a_failure_of_the_cache_layer_keeps_its_program_and_repeats_it(kvtwin: Command, tmp_path: Path) -> None:
    build = find("fault:copy-in-place")
    world = swarm_world(0, build)
    program = CacheProgram(build.name, 0, world.config, tuple(world.ops))
    folder = failures.write(tmp_path, Failure("swarm", 0, program, program, world.violations[0]), COMMAND)
    assert load_program(folder / "minimal.jsonl") == program
    lines = (folder / "story.txt").read_text().splitlines()
    assert len(lines) == len(program.ops) + 1
    assert json.loads(lines[0])["op"] == "create"
    assert lines[-1].startswith(f"{world.violations[0].code} broke")
    first, by = (folder / "repro.txt").read_text().splitlines()[:2]
    assert by == f"found by: {COMMAND}"
    again = kvtwin(*first.split()[1:], "--json")
    assert again.code == 1
    assert again.json()["runs"][0]["violations"][0]["message"] == world.violations[0].message
    table = kvtwin(*first.split()[1:])
    assert table.code == 1
    assert f"cache layer on {build.name}: law broken ({world.violations[0].code})" in table.out
    sound = kvtwin(*first.split()[1:], "--build", "unified", "--check", "exhaustive")
    assert sound.code == 0
    assert "cache layer on unified: fine" in sound.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--out", "kept"), "expected no --out beside a program of the cache layer"),
        (("--check", "off"), "expected --check incremental or exhaustive"),
        (("--build", "unifed"), "did you mean 'unified'?"),
    ],
)
def test_what_a_program_of_the_cache_layer_cannot_do_is_bad_input(
    kvtwin: Command, tmp_path: Path, options: tuple[str, str], told: str
) -> None:
    build = find("unified")
    world = swarm_world(1, build)
    save_program(tmp_path / "program.jsonl", CacheProgram(build.name, 1, world.config, tuple(world.ops)))
    answer = kvtwin("run", "--ops", tmp_path / "program.jsonl", *options)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert told in answer.err


@pytest.mark.parametrize("law", ["PROGRESS", "ORACLE"])
def test_a_law_that_only_the_fuzzer_judges_leaves_no_scenario_that_would_pass(tmp_path: Path, law: str) -> None:
    sound = failure_of("claim-plus2")
    assert isinstance(sound.minimal, Trace)
    silent = replace(sound.minimal, build="unified")  # whose replay breaks nothing
    folder = failures.write(tmp_path, replace(sound, minimal=silent, violation=Violation(law, "odd")), COMMAND)
    assert not list(folder.glob("*.yaml"))
    first, *found = (folder / "repro.txt").read_text().splitlines()
    assert first == COMMAND
    why = f"{law} is not among what a replay of minimal.jsonl breaks; the fuzzer judged it"
    assert found[-1] == f"no scenario file: {why}"
    assert (folder / "story.txt").read_text().splitlines()[-1] == f"No row shows it: {why}."


def test_a_crash_leaves_a_folder_too(kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rule = ("from model.rules.claim import *", "class Wild(WindowedPair):", "    def decide(self, view): return 1 / 0")
    (tmp_path / "own_crashing_rule.py").write_text("\n".join(rule))
    sound = failure_of("claim-plus2")
    assert isinstance(sound.minimal, Trace)
    minimal = replace(sound.minimal, build="unified+claim=own_crashing_rule:Wild", ops=sound.minimal.ops[:2])
    crash = Violation("CRASH", "ZeroDivisionError in decide (own_crashing_rule, line 3): division by zero")
    folder = failures.write(tmp_path, replace(sound, minimal=minimal, violation=crash), COMMAND)
    story = (folder / "story.txt").read_text()
    assert f"crashed: {crash.message}" in story
    assert "CRASH broke: ZeroDivisionError in decide" in story
    assert "CRASH broke on unified+claim=own_crashing_rule:Wild" in (folder / "timeline.svg").read_text()
    assert load_scenario(folder / f"{folder.name}.yaml").expect.violations == []
    lines = (folder / "crash.txt").read_text().splitlines()
    assert lines[0] == "In the rule:"
    assert lines[1].endswith('own_crashing_rule.py", line 3, in decide')
    again = kvtwin(*(folder / "repro.txt").read_text().splitlines()[0].split()[1:], "--json")
    assert again.code == 1
    assert again.json()["runs"][0]["violations"][0]["message"] == crash.message
    shut = replace(minimal, config=replace(minimal.config, pools={}))  # no world can be opened on it
    assert (
        "crashed: KeyError"
        in (
            failures.write(tmp_path / "shut", replace(sound, minimal=shut, violation=crash), COMMAND) / "story.txt"
        ).read_text()
    )
