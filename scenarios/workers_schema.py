"""Several workers of one scenario: how they are joined, how many there are, and where their pools differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from model.config import EngineConfig, PoolSize
from model.topology import Topology
from scenarios.engine_build import check_pages, check_windows, unknown
from scenarios.engine_schema import PoolField
from scenarios.errors import FieldError
from scenarios.fields import Bandwidth, Loss, Name, Part, Seconds, Size

_MOST_PAGES = 1 << 24  # of all workers, pools and tiers: what the model keeps in memory at once
Workers = Annotated[int, Field(ge=2, le=64)]


class Several(Part):
    """Workers of one build and one engine configuration; ``pools`` says worker by worker which pools differ."""

    count: Workers = 2
    pools: list[dict[Name, PoolField]] = Field(default_factory=list, description="other pool sizes, worker by worker")

    def configs(self, config: EngineConfig, served: bool) -> tuple[EngineConfig, ...]:
        """Every worker's configuration, ``config`` with its own pools; where it is ``served`` a window fits them."""
        if len(self.pools) > self.count:
            problem = f"expected pools of at most {self.count} workers, found {len(self.pools)}"
            raise FieldError(("workers", "pools"), problem)
        own = [*self.pools, *[{}] * (self.count - len(self.pools))]
        return tuple(self._config(config, pools, place, served) for place, pools in enumerate(own))

    @staticmethod
    def _config(config: EngineConfig, own: dict[str, PoolField], place: int, served: bool) -> EngineConfig:
        location = ("workers", "pools", place)
        for name in own:
            if name not in config.pools:
                raise FieldError((*location, name), unknown("a pool", name, config.pools))
        sizes = {name: PoolSize(size.device_pages, size.host_pages) for name, size in own.items()}
        check_pages(sizes, location)
        changed = replace(config, pools={**config.pools, **sizes})
        if served:
            check_windows((*config.target, *config.draft), config.limits, changed.pools, location)
        return changed

    def options(self) -> dict[str, int]:
        """What the kind takes besides its workers' configurations."""
        return {}


class AttentionDp(Several):
    """Ranks with requests of their own that forward in lock step."""

    kind: Literal["attention_dp"]
    gate: Size = Field(default=0, description="requests in all from which steps run; until then they are withdrawn")

    def options(self) -> dict[str, int]:
        return {"gate": self.gate} if self.gate else {}


class TensorParallel(Several):
    """Ranks that run every request together and have to decide alike."""

    kind: Literal["tensor_parallel"]


class Link(Part):
    """What joins a prefill and a decode worker; a lost transfer is found out when it should have arrived."""

    gib_per_s: Bandwidth = Field(default=25.0, description="bandwidth; transfers share it one after the other")
    latency_s: Seconds = 0.0
    loss: Loss = Field(default=0.0, description="share of transfers that are lost")
    recompute: bool = Field(default=False, description="what is lost is prefilled by the decode worker, not sent again")


class Disaggregated(Several):
    """Worker 0 prefills, worker 1 decodes, pages travel between them."""

    kind: Literal["disaggregated"]
    link: Link = Field(default_factory=Link)
    transfers_draft: bool = Field(default=True, description="whether the link carries the drafter's pages")

    def configs(self, config: EngineConfig, served: bool) -> tuple[EngineConfig, ...]:
        if self.count != 2:
            raise FieldError(("workers", "count"), f"expected 2, one prefills and one decodes, found {self.count}")
        return super().configs(config, served)

    def options(self) -> dict[str, int]:
        return {} if self.transfers_draft else {"drafts": False}


WorkersField = Annotated[AttentionDp | TensorParallel | Disaggregated, Field(discriminator="kind")]


def topology_of(workers: AttentionDp | TensorParallel | Disaggregated, config: EngineConfig, served: bool) -> Topology:
    """The workers that a file describes, each with its configuration (see :class:`EngineParts` for ``served``)."""
    configs = workers.configs(config, served)
    pages = sum(size.device_pages + size.host_pages for own in configs for size in own.pools.values())
    if pages > _MOST_PAGES:
        raise FieldError(("workers",), f"expected at most {_MOST_PAGES:,} pages of all workers, found {pages:,}")
    return Topology(workers.kind, configs, tuple(workers.options().items()))
