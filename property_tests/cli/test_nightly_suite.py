"""Suite files: what may stand in one, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from property_tests.cli.conftest import Command
from scenarios import catalog

SUITES = catalog.HOME / "suites"
SHIPPED = sorted(path.stem for path in SUITES.glob("*.yaml"))
STAGES = {"comparisons", "seeds", "drill", "replays", "device_drill", "fuzz"}


def test_the_shipped_suites_are_one_for_every_night_one_for_a_change_and_one_for_a_gpu(kvtwin: Command) -> None:
    """Each stage stands in those for the CPU; all that they name is there, which the list of their steps reads."""
    assert SHIPPED == ["gpu", "nightly", "smoke"]
    for name in ("nightly", "smoke"):
        assert set(yaml.safe_load((SUITES / f"{name}.yaml").read_text())) >= STAGES
        listed = kvtwin("nightly", "--suite", name, "--list", "--json").json()
        assert {step["name"] for step in listed["steps"]} == {"comparisons", "seeds", "drill", "fuzz"}
        assert "replays need a device" in listed["skipped"][0]
    assert {"agentic on unified", "hello on unified"} < _steps(kvtwin, "nightly") | _steps(kvtwin, "smoke")


def _steps(kvtwin: Command, suite: str) -> set[str]:
    return {step["step"] for step in kvtwin("nightly", "--suite", suite, "--list", "--json").json()["steps"]}


def test_the_schema_accepts_what_the_loader_accepts(kvtwin: Command) -> None:
    schema = kvtwin("schema", "suite").json()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in SHIPPED:
        assert list(validator.iter_errors(yaml.safe_load((SUITES / f"{name}.yaml").read_text()))) == []
    assert list(validator.iter_errors({"comparison": []}))


BAD = {
    "nothing": ("", "mine.yaml:1: expected a mapping with the stages of a suite, found an empty file"),
    "a list": ("- 1", "mine.yaml:1: expected a mapping with the stages of a suite"),
    "no stage": ("summary: none\n", "mine.yaml:1: expected at least one stage of comparisons, seeds, drill"),
    "no scenario": ("comparisons: [{scenarios: []}]", "mine.yaml:1: comparisons[0].scenarios: expected at least one"),
    "unknown field": ("seeds: {}\ncomparison: []\n", "mine.yaml:2: comparison: expected a known field (did you mean"),
    "unknown scenario": ("drill: {}\ncomparisons:\n- {scenarios: [helo]}", "mine.yaml:3: comparisons[0].scenarios[0]"),
    "unknown build": ("comparisons: [{scenarios: [hello], builds: [unifed]}]", "mine.yaml:1: comparisons[0].builds[0]"),
    "a build twice": ("comparisons: [{scenarios: [hello], builds: [unified, unified]}]", "expected each build once"),
    "unknown fault": ("drill: {faults:\n  [raw-keys,\n  raw-key]}", "mine.yaml:3: drill.faults[1]: expected a fault"),
    "unknown figure": ("seeds: {figures: [X99]}", "mine.yaml:1: seeds.figures[0]: expected a figure"),
    "no budget": ("fuzz: {seed: 1}", "mine.yaml:1: fuzz: expected exactly one of minutes, examples, found none"),
    "two budgets": ("fuzz: {minutes: 1, examples: 2}", "expected exactly one of minutes, examples, found minutes"),
    "machine without driver": ("fuzz: {minutes: 1.0, machine: sim}", "expected machine only beside driver: machine"),
    "unknown driver": ("fuzz: {minutes: 1.0, driver: swam}", "fuzz.driver: expected one of swarm, bytes, machine (did"),
    "no repeats": ("comparisons: [{scenarios: [hello], repeats: 0}]", "repeats: expected at least 1, found 0"),
    "an exact minimum": ("drill: {}\nminimum: {prefilled_tokens: 0.1}", "mine.yaml:2: minimum: expected a noisy"),
    "a negative minimum": ("drill: {}\nminimum: {ttft_ms: -0.1}", "mine.yaml:2: minimum: expected a share"),
    "not YAML": ("drill: [", "expected YAML"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_bad_suite_is_one_line_that_says_where(kvtwin: Command, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--out", "night")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err
    assert not (tmp_path / "night").exists()


@pytest.mark.parametrize(
    ("add", "said"),
    [
        ("comparisons: [{scenarios: [hello, smoke/hello], builds: [unified]}]", "expected each scenario and build"),
        ("fuzz: {examples: 1, builds: [unified, unified]}", "mine.yaml:1: fuzz: expected each build once"),
    ],
)
def test_what_only_the_plan_knows_is_told_with_its_line_too(
    kvtwin: Command, tmp_path: Path, add: str, said: str
) -> None:
    (tmp_path / "mine.yaml").write_text(add)
    answer = kvtwin("nightly", "--suite", "mine.yaml")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert said in answer.err


def test_a_suite_that_is_none_names_those_that_are(kvtwin: Command, tmp_path: Path) -> None:
    answer = kvtwin("nightly", "--suite", "smok")
    assert answer.code == 2
    assert "expected a suite file or one of gpu, nightly, smoke (did you mean 'smoke'?)" in answer.err
    (tmp_path / "folder").mkdir()
    assert kvtwin("nightly", "--suite", "folder").code == 2
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert "bytes that are not UTF-8" in kvtwin("nightly", "--suite", "bytes.yaml").err


def test_scenarios_are_found_beside_the_suite_and_a_stage_may_stand_by_its_name(
    kvtwin: Command, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/toy.yaml").write_text("geometry: tiny\nworkload: {sessions: [{prompt: 5, output: 2}]}\n")
    (tmp_path / "deep/mine.yaml").write_text(
        "drill:\nseeds:\ncomparisons: [{scenarios: [toy.yaml], builds: [unified]}]\n"
    )
    out = kvtwin("nightly", "--suite", "deep/mine.yaml", "--list").out
    assert all(words in out for words in ("toy on unified", "drill of 1", "figures of the seeds"))


def test_the_digest_of_a_suite_is_of_what_it_says_not_of_how(kvtwin: Command, tmp_path: Path) -> None:
    texts = (
        "drill: {faults: [raw-keys]}",
        "# why\ndrill:\n  faults:\n    - raw-keys\n",
        "drill: {faults: [trim-only]}",
    )
    digests = []
    for text in texts:
        (tmp_path / "mine.yaml").write_text(text)
        digests.append(kvtwin("nightly", "--suite", "mine.yaml", "--list", "--json").json()["digest"])
    assert digests[0] == digests[1] != digests[2]
