"""``kvtwin capacity``: what each build makes of a rank's memory, in pages, bytes and tokens by pool."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from model.budget import admissible_sequences, gib, table_columns
from model.builds import Build
from model.engine import Engine
from model.events import EventLog
from model.geometry import Lifecycle
from reports import terminal
from reports.catalogue import find_build
from reports.document import dump
from reports.sources import usage
from scenarios import catalog
from scenarios.budget_build import layout_for
from scenarios.schema import Scenario


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool of one build on one rank. ``groups`` are its lifecycles with what each retains, in tokens."""

    build: str
    layout: str
    pool: str
    groups: tuple[str, ...]
    page_bytes: int
    device_pages: int
    device_bytes: int
    device_tokens: int
    host_pages: int
    host_bytes: int
    host_tokens: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """Pools of one scenario on several builds. ``device`` and ``host`` are the memory in bytes, if it was given so.

    ``rows`` and ``columns`` are those of the device's block table; a sequence takes ``rows`` of it at most.
    """

    scenario: str
    tensor_parallel: int
    device: int | None
    host: int | None
    rows: int
    columns: int
    pools: list[PoolRow]


def capacity(scenario: Scenario, builds: Sequence[Build]) -> Capacity:
    """What each build has on one rank; ``InputError`` for memory that its pools do not fit in."""
    pools: list[PoolRow] = []
    config = scenario.engine_config(builds[0])
    for build in builds:
        pools += _pools(scenario, build)
    limits, memory = config.limits, config.memory
    return Capacity(
        scenario.name,
        config.tensor_parallel,
        memory.device if memory else None,
        memory.host if memory else None,
        admissible_sequences(limits.max_batch, limits.run_ahead),
        table_columns(limits.max_seq_len, limits.page_size),
        pools,
    )


def _pools(scenario: Scenario, build: Build) -> list[PoolRow]:
    config = scenario.engine_config(build)
    layout, page = layout_for(config, build.rules), config.limits.page_size
    twin = Engine(config, build.rules, EventLog(False)).twin
    group_bytes = scenario.group_bytes()
    rows = []
    for name, pool in twin.pools.items():
        lives = [column.lifecycle for column in twin.columns if column.pool is pool]
        sizes = [sum(group_bytes[life.name] for life in lives if life.role == role) for role in ("target", "draft")]
        page_bytes = max(sizes) if layout == "shared" else sum(sizes)
        rows.append(
            PoolRow(
                build.name,
                layout,
                name,
                tuple(_group(life) for life in lives),
                page_bytes,
                pool.device_pages,
                pool.device_pages * page_bytes,
                pool.device_pages * page,
                pool.host_pages,
                pool.host_pages * page_bytes,
                pool.host_pages * page,
            )
        )
    return rows


def _group(life: Lifecycle) -> str:
    if life.window is None:
        return f"{life.name}: all tokens"
    below = f" and {life.trail:,} below" if life.trail else ""
    return f"{life.name}: window {life.window:,}{below}"


def run(names: Sequence[str], builds: Sequence[str] | None, otherwise: Sequence[str]) -> list[Capacity]:
    """Capacities of the named scenarios; ``builds`` defaults to the scenario's own list, and that to ``otherwise``."""
    if not names:
        raise usage("expected a scenario, found none; kvtwin scenarios lists them")
    found = []
    for name in names:
        scenario = catalog.load(name)
        chosen = [find_build(build) for build in ((scenario.builds or otherwise) if builds is None else builds)]
        found.append(capacity(scenario, chosen))
    return found


def show(found: Sequence[Capacity], json: bool) -> None:
    """Print a table for each scenario: one line a pool."""
    if json:
        sys.stdout.write(dump({"scenarios": [asdict(one) for one in found]}))
        return
    out = terminal.console()
    for one in found:
        memory = "pools given in pages"
        if one.device is not None:
            memory = f"{gib(one.device):,.2f} GiB on the device, {gib(one.host or 0):,.2f} GiB on the host"
        table = f"block table {one.rows:,} x {one.columns:,}"
        out.print(Text(f"{one.scenario}: one rank of {one.tensor_parallel}, {memory}, {table}", style="bold"))
        terminal.show_rows(out, [_readable(row) for row in one.pools], _COLUMNS)


_COLUMNS = {
    "build": "build",
    "layout": "layout",
    "pool": "pool",
    "groups": "keeps",
    "page_bytes": "bytes/page",
    "device_pages": "pages",
    "device": "GiB",
    "device_tokens": "tokens",
    "host_pages": "host pages",
    "host": "host GiB",
}


def _readable(row: PoolRow) -> dict[str, Any]:
    shown = {key: f"{value:,}" if isinstance(value, int) else value for key, value in asdict(row).items()}
    return shown | {"device": f"{gib(row.device_bytes):,.3f}", "host": f"{gib(row.host_bytes):,.2f}"}
