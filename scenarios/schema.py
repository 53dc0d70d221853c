"""A scenario: one YAML file that says what to serve, with what, and what must come of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from model.budget import Pair
from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.config import EngineConfig
from model.topology import Topology
from scenarios.behaviour_schema import Acceptance, Cost, CostField, Disturbance, HostLinkField
from scenarios.engine_build import EngineParts
from scenarios.engine_schema import (
    DrafterSpec,
    GeometryField,
    LimitsSpec,
    PolicyField,
    PolicySpec,
    PoolBytes,
    PoolField,
)
from scenarios.errors import FieldError, InputError, field_name
from scenarios.expect import Expect
from scenarios.fields import BuildName, Name, Part, ScenarioName, Seed, one_of, only_with, refuse
from scenarios.fit import Fit
from scenarios.names import find_build
from scenarios.ops_build import build_ops
from scenarios.ops_schema import OpSpec
from scenarios.source import build_workload
from scenarios.workers_schema import WorkersField, topology_of
from scenarios.workload import Workload
from scenarios.workload_schema import PrefixField, WorkloadSpec
from scenarios.yamlfile import Document, Location


class Scenario(Part):
    """What a scenario file holds. The methods turn it into what the engine and the clients are given.

    A scenario has a ``workload``, or in its place ``ops`` (a list) or a ``trace`` (a file of ops).
    """

    model_config = ConfigDict(title="kvtwin scenario")

    name: ScenarioName
    summary: str = Field("", description="one line for the catalogue")
    seed: Seed = Field(default=0, description="every token id and every draw follows from it")
    geometry: GeometryField
    drafter: DrafterSpec = Field(default_factory=DrafterSpec)
    build: BuildName = Field(
        default=DEFAULT_BUILD, description="what runs unless told otherwise", examples=list(BUILDS)
    )
    builds: list[BuildName] = Field(default_factory=list, description="builds to compare")
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    pools: dict[Name, PoolField] | None = Field(default=None, description="pages by pool: target and draft")
    memory: PoolBytes | None = Field(default=None, description="bytes for both pools, instead of pages")
    policy: PolicyField = Field(default_factory=PolicySpec)
    workers: WorkersField | None = Field(
        default=None, description="several workers instead of one, and what joins them"
    )
    host_link: HostLinkField | None = Field(default=None, description="copies to and from the host tier take time")
    workload_spec: WorkloadSpec | None = Field(default=None, alias="workload")
    prefixes: dict[Name, PrefixField] = Field(default_factory=dict, description="shared prefixes of the prompts in ops")
    op_specs: list[OpSpec] | None = Field(
        default=None, alias="ops", min_length=1, description="inputs of the engine, one by one"
    )
    trace_file: Name | None = Field(default=None, alias="trace", description="a trace of ops, relative to this file")
    acceptance: Acceptance = Field(default_factory=lambda: Acceptance(forced=[1]))
    cost: CostField = Field(default_factory=Cost)
    disturbances: list[Disturbance] = Field(default_factory=list)
    expect: Expect = Field(default_factory=Expect)

    _document: Document | None = PrivateAttr(None)
    _folder: Path = PrivateAttr(default_factory=Path)
    _workload: Workload | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _one_source(self) -> Scenario:
        source = one_of(self, ("workload_spec", "op_specs", "trace_file"))
        only_with(self, "prefixes", "ops", source == "op_specs")
        if self.memory is not None:
            told = self.memory.page_bytes is not None
            if self.pools is not None and not told:
                raise refuse("expected either pools or memory, found both (memory beside pools has page_bytes)")
            if self.pools is None and told:
                raise refuse("expected memory with page_bytes only beside pools in pages, found it without")
        if self.host_link is not None and self.workers is not None:
            raise refuse("expected host_link with a single worker only, found it beside workers")
        return self

    # -- what runs -----------------------------------------------------------------------------------------------

    def engine_config(self, build: Build | None = None) -> EngineConfig:
        """The engine configuration. ``build`` (the scenario's own by default) decides how bytes are split."""
        try:
            config = self._parts().config((build or find_build(self.build)).rules)
            if self.host_link is None:
                return config
            if not any(size.host_pages for size in config.pools.values()):
                raise FieldError(("host_link",), "expected a pool with host_pages, found none")
            return replace(config, asynchronous_copies=True)
        except FieldError as error:
            raise self.located(error) from error

    def topology(self, build: Build | None = None) -> Topology | None:
        """The workers on ``build`` (see :meth:`engine_config`), each with its configuration; ``None`` for one."""
        if self.workers is None:
            return None
        try:
            return topology_of(self.workers, self.engine_config(build), served=self.workload_spec is not None)
        except FieldError as error:
            raise self.located(error) from error

    def workload(self) -> Workload:
        """The sessions to serve, read or generated once; ``InputError`` for a request that can never be served."""
        if self.workload_spec is None:
            raise self.located(FieldError((), "expected a workload, found ops or a trace of ops"))
        if self._workload is None:
            names = dict.fromkeys((self.build, *self.builds))
            builds = {name: find_build(name) for name in names}
            fit = Fit({name: (self.engine_config(build), build) for name, build in builds.items()})
            try:
                vocabulary = self._parts().vocabulary
                self._workload = build_workload(self.workload_spec, self.seed, vocabulary, fit, self._folder)
            except FieldError as error:
                raise self.located(error) from error
        return self._workload

    def ops(self) -> list[Any] | None:
        """The ops of the regression form (``model.ops``), or ``None`` for a scenario with a workload."""
        if self.op_specs is None:
            return None
        try:
            return build_ops(self.op_specs, self.prefixes, self.seed, self._parts().vocabulary)
        except FieldError as error:
            raise self.located(error) from error

    def trace_path(self) -> Path | None:
        """Path of the trace of ops, or ``None``."""
        return None if self.trace_file is None else self._folder / self.trace_file

    def page_bytes(self) -> Pair:
        """Bytes of a page of all target layers and of all drafter layers, on one rank."""
        parts = self._parts()
        return parts.page_bytes(self.engine_config().limits.page_size)

    def group_bytes(self) -> dict[str, int]:
        """Bytes of a page of every lifecycle, by name, on one rank."""
        return self._parts().group_bytes(self.engine_config().limits.page_size)

    # -- the file ------------------------------------------------------------------------------------------------

    def at(self, document: Document | None, folder: Path) -> Scenario:
        """This scenario with the place it came from; relative paths in it count from ``folder``."""
        self._document = document
        self._folder = folder
        return self

    @property
    def folder(self) -> Path:
        """Folder that relative paths in the scenario count from."""
        return self._folder

    def replace(self, **changes: Any) -> Scenario:
        """A copy with some fields changed, for example ``build`` or ``seed``."""
        copy = self.model_copy(update=changes)
        copy._workload = None
        return copy.at(self._document, self._folder)

    def serving(self, workload: Workload) -> Scenario:
        """A copy that serves ``workload`` whatever its file says: prompts of real text, which no file holds."""
        copy = self.replace()
        copy._workload = workload
        return copy

    def to_yaml(self) -> str:
        """The scenario as a file, fields in the order of the schema; loads to an equal scenario."""
        values = self.model_dump(by_alias=True, exclude_unset=True)
        return yaml.safe_dump(values, sort_keys=False, width=120, allow_unicode=True)

    def located(self, error: FieldError) -> InputError:
        """``error`` with the file and the line it is about."""
        field = field_name(error.location)
        if self._document is None:
            return InputError(f"scenario {self.name}", 0, field, error.problem)
        return InputError(self._document.file, self._document.line(error.location), field, error.problem)

    def line(self, location: Location) -> int:
        """Line of a field in the file, 0 for a scenario that is not from a file."""
        return self._document.line(location) if self._document else 0

    def _parts(self) -> EngineParts:
        served = self.workload_spec is not None
        return EngineParts(self.geometry, self.drafter, self.limits, self.policy, self.pools, self.memory, served)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario file, for editors."""
    schema = Scenario.model_json_schema(by_alias=True, mode="validation")
    schema["required"].remove("name")  # the loader takes the file's
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
