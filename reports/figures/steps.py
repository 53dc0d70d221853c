"""What a step pays for the layout: converting block tables, and the records that statistics keep (seed 003)."""

from __future__ import annotations

from dataclasses import asdict

from model.budget import admissible_sequences, table_columns
from model.builds import BUILDS
from model.engine import Engine
from model.events import EventLog
from reports.document import dump
from reports.figures.base import Figure, Kind, Part, Runs, exact, told, within

LAYERS = 65
ENTRY_BYTES = 4  # an int32 is read and one is written
SEED_MS = 3.5


def conversion_bytes(layers: int, rows: int, columns: int) -> int:
    """Bytes moved by converting ``rows x columns`` entries of ``layers`` tables: each is read and written."""
    return 2 * ENTRY_BYTES * layers * rows * columns


def conversion_ms(moved: int, bytes_per_s: float) -> float:
    """Time of moving ``moved`` bytes at a bandwidth, in milliseconds."""
    return 1e3 * moved / bytes_per_s


def _conversion(_: Runs) -> list[Part]:
    rows, columns = admissible_sequences(88, 1), table_columns(1 << 20, 128)
    every, drafter = (conversion_bytes(layers, rows, columns) for layers in (LAYERS, 1))
    bandwidth = every / (SEED_MS / 1e3)
    saved = conversion_ms(every - drafter, bandwidth)
    return [
        exact("entries a step, every layer", 65 * 177 * 8_193, every // (2 * ENTRY_BYTES)),
        exact("entries a step, the drafter's pool only", 177 * 8_193, drafter // (2 * ENTRY_BYTES)),
        told("MB moved a step, every layer and the drafter's only", "–", f"{every / 1e6:,.0f}, {drafter / 1e6:,.1f}"),
        told("bandwidth that makes it 3.5 ms, GB/s", "–", round(bandwidth / 1e9), Kind.FITTED),
        within("saved a step at that bandwidth, ms", "3.5", round(saved, 2), 3.3, 3.5, Kind.FITTED),
    ]


def _records(runs: Runs) -> list[Part]:
    weights = {}
    for name in ("paired-22", "unified"):
        build = BUILDS[name]
        engine = Engine(runs.scenario("s06_tp2").engine_config(build), build.rules, EventLog(False))
        weights[name] = sum(len(dump(asdict(pool.use()))) for pool in engine.twin.target.distinct_pools)
    return [
        told("bytes of a record of the target's manager, paired", "–", weights["paired-22"]),
        told("bytes of the same, unified", "larger", weights["unified"]),
        within("unified / paired", "above 1", round(weights["unified"] / weights["paired-22"], 2), 1.01, 10.0),
    ]


STEPS = (
    Figure(
        "C1",
        "block-table conversion a step, 65 layers, 177 rows, 8,193 columns",
        "seed 003",
        _conversion,
        ("bandwidth of the conversion",),
    ),
    Figure("C2", "records of pool statistics, as kvtwin writes them", "seed 003", _records),
)
