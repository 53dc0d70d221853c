"""From the engine part of a scenario file to an engine configuration; every refusal names its field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from model.budget import BudgetError, Pair
from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy
from model.drafter import KINDS
from model.geometry import Lifecycle, cdiv
from model.rules.base import Rules
from scenarios.budget_build import ask_of, memory_of, split
from scenarios.engine_schema import DrafterSpec, Geometry, Layers, LimitsSpec, PolicySpec, PoolBytes, PoolPages
from scenarios.errors import FieldError, quote
from scenarios.presets import GEOMETRIES, GeometryPreset, LayerGroup

_MOST_PAGES = 1 << 22  # of one pool and tier: what the model keeps in memory at once
_MOST_ROWS = 65_536  # of one batch
_LISTED = 24  # names that a message lists
_DEFAULTS = {"max_batch": 8, "max_num_tokens": 2048, "max_seq_len": 32_768, "extra_tokens": 0}


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The problem with a name that is not ``known``, with the nearest one that is."""
    names = sorted(known)
    if not names:
        return f"expected {what}, of which there are none here, found {quote(name)}"
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    listed = ", ".join(names) if len(names) <= _LISTED else f"{len(names)} known ones"
    return f"expected {what} of {listed}{hint}, found {quote(name)}"


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The engine part of a scenario, as read.

    Not ``served``: ops are applied as they stand, so limits and pools may be those under which a client would wait
    for ever. A failure is cut down to such an engine more often than not.
    """

    geometry: Geometry
    drafter: DrafterSpec
    limits: LimitsSpec
    policy: PolicySpec
    pools: dict[str, PoolPages] | None
    memory: PoolBytes | None
    served: bool = True

    def preset(self) -> GeometryPreset | None:
        """The geometry preset, or ``None`` for layers written out."""
        name = self.geometry.preset
        if name is None:
            return None
        if name not in GEOMETRIES:
            raise FieldError(("geometry", "preset"), unknown("a preset", name, GEOMETRIES))
        return GEOMETRIES[name]

    @property
    def tensor_parallel(self) -> int:
        """Ranks that share the KV heads."""
        preset = self.preset()
        return self.geometry.tensor_parallel or (preset.tensor_parallel if preset else 1)

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        preset = self.preset()
        return self.geometry.vocabulary or (preset.vocabulary if preset else 200_064)

    def build_drafter(self) -> Drafter:
        """The drafter, its gaps filled from the preset."""
        preset, spec = self.preset(), self.drafter
        base = preset.drafter if preset else None
        if base is None and (spec.kind is None or spec.drafts is None):
            raise FieldError(("drafter",), "expected kind and drafts (the geometry is no preset), found one missing")
        window = spec.window if "window" in spec.model_fields_set or base is None else base.window
        kind = spec.kind or (base.kind if base else "")
        if kind not in KINDS:
            raise FieldError(("drafter", "kind"), unknown("a drafter kind", kind, KINDS))
        return Drafter(
            kind=kind,
            drafts=spec.drafts if spec.drafts is not None else (base.drafts if base else 0),
            window=window,
            chain=spec.chain or (base.chain if base else 1),
        )

    def build_limits(self, drafts: int) -> Limits:
        """The limits, their gaps filled from the preset; refuses limits under which nothing could run."""
        preset, spec = self.preset(), self.limits
        if preset is None and spec.page_size is None:
            raise FieldError(("limits", "page_size"), "expected tokens per page (there is no preset), found none")

        def value(name: str) -> int:
            given = getattr(spec, name)
            return given if given is not None else getattr(preset, name) if preset else _DEFAULTS[name]

        page_size = value("page_size")
        limits = Limits(
            page_size=page_size,
            max_batch=value("max_batch"),
            max_num_tokens=value("max_num_tokens"),
            max_seq_len=value("max_seq_len"),
            chunk_unit=spec.chunk_unit or page_size,
            chunked_prefill=spec.chunked_prefill,
            extra_tokens=value("extra_tokens"),
            max_util_for_resume=spec.max_util_for_resume,
            run_ahead=int(spec.overlap),
            stall_passes=spec.stall_passes,
            partial_children=spec.partial_children,
            deferral=spec.deferral,
            graph_batches=_graphs(spec.graph_batches, value("max_batch") if self.served else _MOST_ROWS),
        )
        least = limits.chunk_unit + drafts  # the last chunk is charged the drafts as well
        if self.served and limits.chunked_prefill and limits.max_num_tokens < least:
            problem = f"expected room for a chunk of prefill and K drafts ({least}), found {limits.max_num_tokens}"
            raise FieldError(("limits", "max_num_tokens"), problem)
        return limits

    def lifecycles(self, drafter: Drafter, page_size: int) -> tuple[tuple[Lifecycle, ...], tuple[Lifecycle, ...]]:
        """Lifecycles of the target and of the drafter."""
        kind = KINDS[drafter.kind]
        target = self._side("target", None, 0, page_size)
        draft = self._side("draft", drafter.window, kind.tag_span(drafter.chain), page_size) if kind.has_pool else ()
        if kind.has_pool and not draft:
            raise FieldError(("geometry",), f"expected draft layers for a {drafter.kind} drafter, found none")
        return target, draft

    def _groups(self, side: str) -> list[tuple[LayerGroup, Layers | None]]:
        preset = self.preset()
        if preset is not None:
            return [(group, None) for group in getattr(preset, side)]
        return [(layers.group(self.tensor_parallel), layers) for layers in getattr(self.geometry, side) or ()]

    def _side(self, side: str, window: int | None, depth: int, page_size: int) -> tuple[Lifecycle, ...]:
        found = []
        for place, (group, layers) in enumerate(self._groups(side)):
            try:
                size = group.bytes_per_token(page_size, self.tensor_parallel)
            except KeyError:
                known = ", ".join(str(ranks) for ranks in sorted(group.page_bytes))
                problem = f"expected one of {known} (page bytes are fitted), found {self.tensor_parallel}"
                raise FieldError(("geometry", "tensor_parallel"), problem) from None
            own = group.window if side == "target" or (layers and "window" in layers.model_fields_set) else window
            if any(other.name == group.name for other in found):
                raise FieldError(("geometry", side, place, "name"), f"expected a new name, found {group.name!r} again")
            pool = layers.pool if layers and layers.pool else side
            trail = layers.trail if layers else 0
            found.append(Lifecycle(group.name, pool, side, own, group.sinks, trail, depth, bytes_per_token=size))
        return tuple(found)

    def group_bytes(self, page_size: int) -> dict[str, int]:
        """Bytes of a page of every group of layers, by name, on one rank."""
        groups = [group for side in ("target", "draft") for group, _ in self._groups(side)]
        return {group.name: group.bytes_per_page(page_size, self.tensor_parallel) for group in groups}

    def page_bytes(self, page_size: int) -> Pair:
        """Bytes of a page of all target layers and of all drafter layers on one rank."""
        sizes = [
            sum(group.bytes_per_page(page_size, self.tensor_parallel) for group, _ in self._groups(side))
            for side in ("target", "draft")
        ]
        return Pair(sizes[0], sizes[1])

    def build_pools(self, config: EngineConfig, rules: Rules) -> EngineConfig:
        """``config`` with the size of every pool that a lifecycle names, from pages, bytes or the preset."""
        needed = list(dict.fromkeys(lifecycle.pool for lifecycle in config.target + config.draft))
        if self.memory is not None and self.pools is None:
            return self._from_bytes(config, self.memory, needed, rules)
        given = dict(self.pools or {})
        for name in given:
            if name not in needed:
                raise FieldError(("pools", name), unknown("a pool", name, needed))
        preset = self.preset()
        if preset is not None:
            given.setdefault("target", PoolPages(device_pages=preset.target_pages))
            given.setdefault("draft", PoolPages(device_pages=preset.draft_pages))
        for name in needed:
            if name not in given:
                raise FieldError(("pools",), f"expected pages of the pool {name!r}, found none")
        pools = {name: PoolSize(given[name].device_pages, given[name].host_pages) for name in needed}
        if self.memory is None:
            return replace(config, pools=pools)
        for name in self.memory.page_bytes or ():
            if name not in pools:
                raise FieldError(("memory", "page_bytes", name), unknown("a pool", name, pools))
        return replace(config, pools=pools, memory=self.memory.judged())

    def _from_bytes(self, config: EngineConfig, memory: PoolBytes, needed: list[str], rules: Rules) -> EngineConfig:
        """``config`` with pools as the build's budget rule splits the memory of a rank for the build's layout."""
        if set(needed) - {"target", "draft"}:
            raise FieldError(("memory",), "expected pools in pages (layers name pools of their own), found bytes")
        page_bytes = self.page_bytes(config.limits.page_size)
        if "draft" not in needed:
            page_bytes = Pair(page_bytes.target, 0)
        try:
            ask, layout = ask_of(memory, page_bytes, config, rules)
            return replace(config, pools=split(layout, ask, rules), memory=memory_of(layout, ask))
        except BudgetError as error:
            raise FieldError(("memory",), f"expected memory that the pools fit in, found: {error}") from error

    def config(self, rules: Rules) -> EngineConfig:
        """The engine configuration; memory in bytes is split by ``rules``."""
        drafter = self.build_drafter()
        limits = self.build_limits(drafter.drafts)
        target, draft = self.lifecycles(drafter, limits.page_size)
        bare = EngineConfig(
            target=target,
            draft=draft,
            drafter=drafter,
            limits=limits,
            pools={},
            policy=PublishPolicy(self.policy.kind),
            max_num_turns=self.policy.max_num_turns,
            vocabulary=self.vocabulary,
            tensor_parallel=self.tensor_parallel,
        )
        config = self.build_pools(bare, rules)
        try:
            check_pages(config.pools, ("pools",))
            if self.served:
                check_windows(target + draft, limits, config.pools, ("pools",))
        except FieldError as error:
            if self.memory is None or self.pools is not None:
                raise
            raise FieldError(("memory",), f"{error.problem} in the pool {error.location[1]!r}") from error
        return config


def _graphs(sizes: list[int], most: int) -> tuple[int, ...]:
    """Batch sizes of the captured graphs, ascending; a graph is captured once and for a batch that can run."""
    for place, size in enumerate(sizes):
        location = ("limits", "graph_batches", place)
        if size > most:
            raise FieldError(location, f"expected at most max_batch ({most}), found {size}")
        if place and size <= sizes[place - 1]:
            raise FieldError(location, f"expected more than {sizes[place - 1]}, the size before it, found {size}")
    return tuple(sizes)


def check_pages(pools: dict[str, PoolSize], location: tuple[str | int, ...]) -> None:
    """Refuse a pool, named below ``location``, of more pages than the model keeps in memory."""
    for name, size in pools.items():
        most = max(size.device_pages, size.host_pages)
        if most > _MOST_PAGES:
            raise FieldError((*location, name), f"expected at most {_MOST_PAGES:,} pages, found {most:,}")


def check_windows(
    lifecycles: tuple[Lifecycle, ...], limits: Limits, pools: dict[str, PoolSize], location: tuple[str | int, ...]
) -> None:
    """Refuse a window that its pool, named below ``location``, can never hold."""
    for lifecycle in lifecycles:
        if lifecycle.window is None:
            continue
        pages = cdiv(min(lifecycle.window, limits.max_seq_len), limits.page_size)
        room = pools[lifecycle.pool].device_pages
        if pages > room:
            raise FieldError(
                (*location, lifecycle.pool, "device_pages"),
                f"expected at least {pages} pages for the window of {lifecycle.window} tokens "
                f"({lifecycle.name}, pages of {limits.page_size}), found {room}",
            )
