"""A suite: one YAML file that names what a nightly runs, and how far a noisy figure may move."""

from __future__ import annotations

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from model.faults import FAULTS
from reports.figures import FIGURES
from scenarios import catalog
from scenarios.errors import FieldError, InputError, field_name, quote, reason_of
from scenarios.fields import BuildName, Name, Part, ScenarioName, one_of, refuse
from scenarios.messages import input_error
from scenarios.names import check_build, unknown_name
from scenarios.schema import Scenario
from scenarios.yamlfile import Document, Location
from sim.nightly.metrics import NOISY

SUITES = catalog.HOME / "suites"
DEFAULT = "nightly"
STAGES = ("comparisons", "seeds", "drill", "replays", "device_drill", "fuzz")  # in the order in which they run


class Comparisons(Part):
    """Scenarios in the sim, each on several builds and with several seeds."""

    scenarios: list[Name] = Field(min_length=1, description="names, or files relative to the suite")
    builds: list[BuildName] = Field(default_factory=list, description="the scenario's own builds unless given")
    repeats: int = Field(default=1, ge=1, le=100, description="runs of each: the scenario's seed, and those after it")
    check: Literal["incremental", "exhaustive"] = "incremental"


class Seeds(Part):
    """Figures of the seeds."""

    fast: bool = Field(default=True, description="without the figures that take long")
    figures: list[Name] = Field(default_factory=list, description="only these; all of them unless given")


class Drill(Part):
    """Known bugs on the scenarios that show them."""

    faults: list[Name] = Field(default_factory=list, description="only these; all of them unless given")


class Replays(Part):
    """Scenarios whose memory a device keeps as well."""

    scenarios: list[Name] = Field(min_length=1, description="names, or files relative to the suite")
    build: BuildName | None = Field(default=None, description="the scenario's own unless given")
    acceptance: Literal["forced", "natural"] = "forced"
    mode: Literal["equality", "free"] = "equality"
    launch: Literal["settle", "dispatch"] = "settle"
    check: Literal["tags", "full"] = "tags"
    weights: Name | None = Field(
        default=None, description="natural: a folder with target/ and drafter/ in it, relative to the suite"
    )
    repeats: int = Field(
        default=1, ge=1, le=100, description="the same replay again: of several the first warms up and gives no times"
    )

    @model_validator(mode="after")
    def _weights_accept(self) -> Replays:
        if self.weights is not None and self.acceptance != "natural":
            raise refuse(f"expected acceptance: natural beside weights, found {self.acceptance}")
        return self


class Fuzz(Part):
    """A campaign, for so many minutes or so many programs."""

    minutes: float | None = Field(default=None, gt=0, le=1e5)
    examples: int | None = Field(default=None, ge=1, le=1 << 40)
    builds: list[BuildName] = Field(default_factory=list, description="every correct build unless given")
    driver: Literal["swarm", "bytes", "machine"] = "swarm"
    machine: Literal["cache", "engine", "sim"] | None = None
    profile: Literal["quick", "nightly", "deep"] = "quick"
    seed: int = Field(default=0, ge=0, lt=1 << 48)

    @model_validator(mode="after")
    def _one_budget(self) -> Fuzz:
        one_of(self, ("minutes", "examples"))
        if self.machine is not None and self.driver != "machine":
            raise refuse("expected machine only beside driver: machine, found it without")
        return self


class Suite(Part):
    """What a nightly runs. Every stage may be left out, but not all of them."""

    model_config = ConfigDict(title="kvtwin suite")

    name: ScenarioName
    summary: str = Field("", description="one line on what the suite is for")
    comparisons: list[Comparisons] = Field(default_factory=list)
    seeds: Seeds | None = None
    drill: Drill | None = None
    replays: list[Replays] = Field(default_factory=list, description="run with --on cpu or gpu, left out on sim")
    device_drill: Drill | None = Field(default=None, description="likewise: what the device's own checks notice")
    fuzz: Fuzz | None = None
    minimum: dict[str, float] = Field(
        default_factory=dict, description="noisy figures by name: the share by which one has to be worse to be told"
    )

    _document: Document = PrivateAttr()
    _folder: Path = PrivateAttr(default_factory=Path)

    @field_validator("minimum")
    @classmethod
    def _noisy(cls, value: dict[str, float]) -> dict[str, float]:
        for name, share in value.items():
            if name not in NOISY:
                raise refuse(f"expected a noisy figure, one of {', '.join(NOISY)}, found {quote(name)}")
            if not 0 <= share <= 10:
                raise refuse(f"expected a share from 0 to 10 for {name}, found {share:g}")
        return value

    @model_validator(mode="after")
    def _some_stage(self) -> Suite:
        if not any(getattr(self, stage) not in (None, []) for stage in STAGES):
            raise refuse(f"expected at least one stage of {', '.join(STAGES)}, found none")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of what the suite says, however it is written."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    def scenario(self, name: str, location: Location) -> Scenario:
        """A scenario by name, or by its path from the suite's folder; ``InputError`` names the place in the suite."""
        beside = self._folder / name
        try:
            scenario = catalog.load(str(beside) if beside.is_file() else name)
            if scenario.workload_spec is not None:
                scenario.workload()
        except InputError as error:
            raise self.located(location, f"expected a scenario, found: {error}") from error
        return scenario

    def weights(self, given: str, location: Location) -> Path:
        """A folder by its path from the suite's folder; ``InputError`` names the place in the suite."""
        folder = self._folder / given
        if not folder.is_dir():
            raise self.located(location, f"expected a folder, found none at {folder}")
        return folder

    def located(self, location: Location, problem: str) -> InputError:
        """The error about a field of the suite."""
        line = self._document.line(location)
        return InputError(self._document.file, line, field_name(location), problem)


def load_suite(name: str) -> Suite:
    """The suite in a file, or one that ships with kvtwin; ``InputError`` for anything wrong in it."""
    shipped = {path.stem: path for path in sorted(SUITES.glob("*.yaml"))}
    path = shipped.get(name, Path(name))
    if not path.is_file():
        near = get_close_matches(name, shipped, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(quote(name), 0, "", f"expected a suite file or one of {', '.join(shipped)}{hint}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(name, 0, "", f"expected a suite file, found: {reason_of(error)}") from error
    return parse_suite(text, str(path), path.parent)


def parse_suite(text: str, file: str, folder: Path) -> Suite:
    """The suite in ``text``; ``file`` is its name in messages, paths in it count from ``folder``."""
    document = Document(text, file)
    values: Any = document.values
    if not isinstance(values, dict):
        found = "an empty file" if values is None else quote(values)
        raise InputError(file, 1, "", f"expected a mapping with the stages of a suite, found {found}")
    for stage in ("seeds", "drill", "device_drill"):
        if stage in values and values[stage] is None:  # `drill:` alone
            values[stage] = {}
    try:
        suite = Suite.model_validate({"name": Path(file).stem, **values})
    except ValidationError as error:
        raise input_error(error, document, Suite) from error
    suite._document, suite._folder = document, folder
    try:
        _check_names(suite)
    except FieldError as error:
        raise suite.located(error.location, error.problem) from error
    return suite


def _check_names(suite: Suite) -> None:
    """Raise ``FieldError`` for a build, fault or figure that does not exist."""
    builds: list[tuple[Location, str]] = []
    for place, group in enumerate(suite.comparisons):
        builds += [(("comparisons", place, "builds", at), name) for at, name in enumerate(group.builds)]
        if len(set(group.builds)) < len(group.builds):
            raise FieldError(("comparisons", place, "builds"), "expected each build once, found one twice")
    for place, group in enumerate(suite.replays):
        builds += [(("replays", place, "build"), group.build)] if group.build else []
    for at, name in enumerate(suite.fuzz.builds if suite.fuzz else []):
        builds.append((("fuzz", "builds", at), name))
    for location, name in builds:
        check_build(name, location)
    for at, name in enumerate(suite.drill.faults if suite.drill else []):
        if name not in FAULTS:
            raise FieldError(("drill", "faults", at), unknown_name("a fault", name, FAULTS, "kvtwin faults"))
    for at, name in enumerate(suite.seeds.figures if suite.seeds else []):
        if name.upper() not in FIGURES:
            raise FieldError(("seeds", "figures", at), unknown_name("a figure", name, FIGURES, "kvtwin seeds --fast"))


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a suite file, for editors."""
    schema = Suite.model_json_schema(mode="validation")
    schema["required"] = [name for name in schema.get("required", []) if name != "name"]  # the loader takes the file's
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
