"""``--json``: indented JSON and nothing else, on every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

DOCS = Path(__file__).resolve().parents[2] / "docs"
CATALOGUES = ("scenarios", "builds", "faults", "invariants")
COMMANDS = {
    "run": ("run", "hello"),
    "run several": ("run", "hello", "mtp_chain"),
    "compare": ("compare", "hello", "--builds", "target-only,unified"),
    **{name: (name,) for name in CATALOGUES},
    "builds that differ": ("builds", "target-only", "unified"),
    "drill": ("drill", "--fault", "target-cursor"),
    "sweep": ("sweep", "--what", "lengths", "--every", "40", "--workers", "1"),
    "grids": ("sweep", "--list"),
    "schema": ("schema",),
    "schema of a check": ("schema", "check"),
    "check": ("check", str(DOCS / "vllm_events.jsonl")),
    "schema of a suite": ("schema", "suite"),
    "fuzz": ("fuzz", "--build", "unified", "--examples", "4", "--workers", "1"),
    "blind drill": ("drill", "--blind", "target-cursor", "--driver", "swarm", "--workers", "1"),
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_every_command_prints_indented_json_and_nothing_else(
    kvtwin: Command, arguments: tuple[str | Path, ...]
) -> None:
    answer = kvtwin(*arguments, "--json")
    assert answer.err == ""
    assert answer.out == json.dumps(answer.json(), indent=2, ensure_ascii=False) + "\n"
    assert "\n  " in answer.out


def test_explain_prints_json_too(kvtwin: Command) -> None:
    kvtwin("run", "--build", "fault:target-cursor", "--out", "broken")
    answer = kvtwin("explain", "broken", "1", "--json")
    assert (answer.code, answer.err) == (0, "")
    told = answer.json()
    assert told["violation"]["code"] in told["name"]
    assert told["events"] and told["story"] and told["law"]


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_every_entry_of_a_catalogue_has_a_name_of_its_own(kvtwin: Command, catalogue: str) -> None:
    names = [entry["name"] for entry in kvtwin(catalogue, "--json").json()]
    assert len(names) == len(set(names)) >= 6


def test_the_catalogues_hold_what_the_issue_names(kvtwin: Command) -> None:
    builds = {entry["name"] for entry in kvtwin("builds", "--json").json()}
    assert {"target-only", "joint-backoff", "paired-22", "paired-22-nobranch", "unified-page", "unified"} <= builds
    laws = {entry["name"] for entry in kvtwin("invariants", "--json").json()}
    named = "OWN INIT KEY FRONT PUB WINDOW SHAPE REF ROLLBACK ADMIT PROGRESS STATE MAP METRIC"
    assert set(named.split()) <= laws
    assert len(kvtwin("scenarios", "--json").json()) >= 20


def test_every_law_has_a_fault_that_trips_it_and_every_fault_a_scenario(kvtwin: Command) -> None:
    laws = kvtwin("invariants", "--json").json()
    assert [law["name"] for law in laws if not law["faults"]] == []
    scenarios = {entry["name"].rsplit("/", 1)[-1] for entry in kvtwin("scenarios", "--json").json()}
    faults = kvtwin("faults", "--json").json()
    shown = {Path(fault["scenario"]).stem for fault in faults}
    assert shown <= scenarios


def test_builds_that_differ_show_just_the_rules_that_differ(kvtwin: Command) -> None:
    rows = kvtwin("builds", "target-only", "unified", "--json").json()
    assert rows
    assert all(row["target-only"] != row["unified"] for row in rows)
    assert kvtwin("builds", "unified", "unified", "--json").json() == []


def test_the_schema_accepts_what_the_loader_accepts(kvtwin: Command) -> None:
    schema = kvtwin("schema").json()
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"geometry", "workload", "expect", "ops"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_a_run_says_what_it_reused_checked_and_decided(kvtwin: Command) -> None:
    document = kvtwin("run", "hello", "--json").json()
    (run,) = document["runs"]
    assert (document["exit_code"], run["verdict"], run["violations"], run["missed"]) == (0, "fine", [], [])
    assert run["totals"]["prefilled_tokens"] > 0
    assert run["acceptance"]["mode"] == "forced"
    assert all(len(run["digests"][which]) == 64 for which in ("decisions", "memory"))
    assert run["checked"]["INIT"] > 0


def test_a_place_that_does_not_apply_is_null(kvtwin: Command) -> None:
    (run,) = kvtwin("run", "--build", "fault:target-cursor", "--json").json()["runs"]
    for violation in run["violations"]:
        assert all(violation[key] is None or violation[key] >= 0 for key in ("request", "page", "position", "step"))
        assert violation["pool"] != ""


def test_the_check_level_changes_no_digest(kvtwin: Command) -> None:
    runs = [
        kvtwin("run", "hello", "--check", level, "--json").json()["runs"][0] for level in ("incremental", "exhaustive")
    ]
    assert runs[0]["digests"] == runs[1]["digests"]
    (off,) = kvtwin("run", "hello", "--check", "off", "--json").json()["runs"]
    assert off["digests"]["decisions"] == runs[0]["digests"]["decisions"]
    assert off["digests"]["memory"].startswith("not computed")
