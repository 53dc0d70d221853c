"""How the workers of one run are joined, as plain values, and the world that they make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model.builds import Build
from model.cluster import Cluster
from model.config import EngineConfig
from model.fleet import Fleet
from model.pair import Pair
from model.ranks import RankGroup

CLUSTERS: dict[str, type[Cluster]] = {"attention_dp": Fleet, "tensor_parallel": RankGroup, "disaggregated": Pair}


@dataclass(frozen=True, slots=True)
class Topology:
    """Workers of one ``kind`` (a key of :data:`CLUSTERS`): the configuration of each, and the kind's own options."""

    kind: str
    configs: tuple[EngineConfig, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def open(
        self, build: Build, *, check: str = "incremental", keep_events: bool = False, record_ops: bool = False
    ) -> Cluster:
        """The workers on ``build``, before their first op."""
        options: dict[str, Any] = {"check": check, "keep_events": keep_events, "record_ops": record_ops}
        return CLUSTERS[self.kind](self.configs, build, **options, **dict(self.options))
