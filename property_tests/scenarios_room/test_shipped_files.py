"""Every scenario that ships with the project: it loads, says what it is for, and survives being written again."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from scenarios import catalog
from scenarios.errors import InputError
from scenarios.loader import load_scenario, parse_scenario
from scenarios.names import find_build
from scenarios.schema import json_schema
from sim.run import run_scenario

PATHS = catalog.paths()
SEEDS = ("x05_repeat", "x05_two_turn", "x06", "x07", "x08", "x09", "x10", "x12", "x15_d1", "x15_d2", "x17")
REPORTS = (
    "o01",
    "o02",
    "o04",
    "o05",
    "o11",
    "o15",
    "o18",
    "o24",
    "o33",
    "o40",
    "o46",
    "o49",
    "o57",
    "o58",
    "o65",
    "o67",
    "o68",
)
WORKLOADS = ("agentic", "agent_layers", "common", "common_burst", "common_k7")


def test_every_figure_and_report_of_the_road_has_a_file() -> None:
    wanted = {f"seeds/{name}" for name in SEEDS} | {f"seeds/x14_d{depth}" for depth in range(4)}
    wanted |= {f"reports/{name}" for name in REPORTS} | {f"workloads/{name}" for name in WORKLOADS}
    assert wanted <= set(PATHS)
    assert len(PATHS) >= 24


@pytest.mark.parametrize("name", PATHS)
def test_a_shipped_file_loads_and_says_what_it_is_for(name: str) -> None:
    scenario = load_scenario(PATHS[name])
    assert scenario.name == Path(name).name
    assert 10 <= len(scenario.summary) <= 110
    assert scenario.engine_config().limits.page_size > 0


@pytest.mark.parametrize("name", PATHS)
def test_a_shipped_file_survives_being_written_and_read(name: str) -> None:
    scenario = load_scenario(PATHS[name])
    again = parse_scenario(scenario.to_yaml(), "again.yaml", PATHS[name].parent)
    assert again.model_dump() == scenario.model_dump()
    assert again.engine_config() == scenario.engine_config()
    if scenario.workload_spec is not None:
        assert again.workload() == scenario.workload()
    else:
        assert again.ops() == scenario.ops()


@pytest.mark.parametrize("name", PATHS)
def test_the_published_schema_accepts_a_shipped_file(name: str) -> None:
    document = yaml.safe_load(PATHS[name].read_text())
    jsonschema.Draft202012Validator(json_schema()).validate(with_text_keys(document))


def with_text_keys(value: object) -> dict[str, object]:
    """``value`` as JSON has it: request ids as keys are text."""

    def plain(item: object) -> object:
        if isinstance(item, dict):
            return {str(key): plain(entry) for key, entry in item.items()}
        return [plain(entry) for entry in item] if isinstance(item, list) else item

    found = plain(value)
    assert isinstance(found, dict)
    return found


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    good = {"geometry": "tiny", "workload": {"sessions": [{"prompt": 3, "output": 1}]}}
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "limit": {}})
    assert not validator.is_valid({**good, "seed": -1})
    assert not validator.is_valid({**good, "workload": {"sessions": [{"prompt": 3, "output": 0}]}})


def test_scenarios_are_found_by_path_by_name_and_by_a_unique_last_part() -> None:
    path = PATHS["seeds/x05_repeat"]
    assert catalog.resolve(str(path)) == path
    assert catalog.resolve("seeds/x05_repeat") == path
    assert catalog.resolve("x05_repeat") == path
    assert catalog.resolve("scenarios/seeds/x05_repeat.yaml").samefile(path)
    with pytest.raises(InputError, match=r"did you mean 'seeds/x05_repeat'"):
        catalog.resolve("seeds/x5_repeat")


def test_the_catalogue_lists_every_file_once() -> None:
    entries = catalog.entries()
    assert [entry.name for entry in entries] == list(PATHS)
    assert {entry.as_dict()["summary"] for entry in entries if entry.name == "smoke/hello"} == {
        "three toy requests on one shared prefix"
    }


def test_the_example_of_the_manual_is_a_scenario_that_keeps_its_promise() -> None:
    manual = (catalog.HOME / "README.md").read_text(encoding="utf-8")
    example = parse_scenario(manual.split("```yaml\n")[1].split("```")[0], "README.md", catalog.HOME)
    result = run_scenario(example, find_build(example.build), check="exhaustive")
    assert result.missed == []
    assert result.notes == []
