"""Baselines: the figures of a nightly in a folder, without a clock in them, and reading them back.

``baseline.json`` holds the exact figures as text that a diff can show, ``samples.parquet`` those of noisy ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from reports.document import dump
from reports.folder import Output, stamp
from reports.nightly.night import Night
from reports.nightly.outcome import Found, SampleRow
from scenarios.errors import InputError, quote
from sim.nightly.rules import Exact, Samples, Side, Subject

SCHEMA = "kvtwin-baseline/1"
FILE, SAMPLES = "baseline.json", "samples.parquet"
ROOMS = ("model", "scenarios", "sim", "gpu_backend")  # whose sources decide what a figure is


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a folder holds: the key (suite, place, code), why it is no baseline if so, and the figures."""

    key: dict[str, Any]
    lacks: str
    side: Side


@cache
def code_digest() -> str:
    """kvtwin's version and the start of the SHA-256 of the sources that figures follow from."""
    home, sums = Path(__file__).resolve().parents[2], hashlib.sha256()
    for room in ROOMS:
        for path in sorted((home / room).rglob("*.py")):
            sums.update(f"{path.relative_to(home).as_posix()}\0".encode() + path.read_bytes())
    try:
        number = version("kvtwin")
    except PackageNotFoundError:  # run from its sources, as on a GPU's own Python
        number = "of no installation"
    return f"kvtwin {number} {sums.hexdigest()[:16]}"


def write(folder: Path, night: Night) -> None:
    """Put the figures of a nightly into ``folder``."""
    subjects: dict[str, dict[str, Any]] = {}
    for (stage, subject), made in sorted(night.found.made.items()):
        subjects.setdefault(stage, {})[subject] = {"made": made, "figures": {}}
    for row in night.found.exact:
        entry = subjects.get(row.stage, {}).get(row.subject)
        if entry is not None:
            values = entry["figures"].setdefault(row.metric, [])
            values += [None] * (row.repeat - len(values))
            values.append(row.value if isinstance(row.value, str) else _plain(row.value))
    for stage in subjects.values():
        for entry in stage.values():
            entry["figures"] = dict(sorted(entry["figures"].items()))
    document = {"schema": SCHEMA, **night.key(), "lacks": night.lacks, "stages": subjects}
    (folder / FILE).write_text(dump(document), encoding="utf-8")
    night.found.sample_frame().to_parquet(folder / SAMPLES, index=False)


def store(target: Path, night: Night) -> None:
    """Write a baseline folder whole or not at all; :class:`InputError` for a nightly that cannot be one."""
    if night.lacks:
        raise InputError(str(target), 0, "", f"expected a nightly whose figures can be held to, found: {night.lacks}")
    with Output(target, several=False) as output:
        folder = output.folder(target.name)
        write(folder, night)
        stamp(folder, "baseline")


def copy(target: Path, source: Path) -> None:
    """Make the figures that the nightly in ``source`` left a baseline in ``target``."""
    if lacks := read(source).lacks:
        raise InputError(str(source), 0, "", f"expected a nightly whose figures can be held to, found: {lacks}")
    with Output(target, several=False, sources=(source,)) as output:
        folder = output.folder(target.name)
        for name in (FILE, SAMPLES):
            (folder / name).write_bytes((source / name).read_bytes())
        stamp(folder, "baseline")


def read(folder: Path) -> Baseline:
    """The baseline, or the nightly, in ``folder``; :class:`InputError` where it is none, or of another schema."""
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"expected a folder that kvtwin baseline or kvtwin nightly --out wrote, found no {FILE}"
        raise InputError(str(folder), 0, "", problem) from error
    except ValueError as error:
        raise InputError(str(path), 0, "", f"expected JSON, found: {error}") from error
    found = document.get("schema") if isinstance(document, dict) else document
    if found != SCHEMA:
        raise InputError(str(path), 0, "schema", f"expected {SCHEMA}, found {quote(found)}")
    try:
        exact, made = _stages(document["stages"])
        key = {name: document[name] for name in ("suite", "on", "device", "code")}
        lacks = str(document["lacks"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"expected the figures of a nightly, found something else: {type(error).__name__} {error}"
        raise InputError(str(path), 0, "stages", problem) from error
    return Baseline(key, lacks, Side(exact, _samples(folder / SAMPLES), made))


def _stages(stages: dict[str, Any]) -> tuple[Exact, dict[Subject, str]]:
    """Exact figures, and of what each subject was made, from the JSON of a baseline."""
    exact: Exact = {}
    made: dict[Subject, str] = {}
    for stage, subjects in stages.items():
        for subject, entry in subjects.items():
            made[stage, subject] = str(entry["made"])
            exact[stage, subject] = {
                metric: {
                    repeat: value if isinstance(value, str) else float(value)
                    for repeat, value in enumerate(values)
                    if value is not None
                }
                for metric, values in entry["figures"].items()
            }
    return exact, made


def side_of(found: Found) -> Side:
    """The figures of a nightly that just ran, as a baseline gives them."""
    exact: Exact = {}
    for row in found.exact:
        exact.setdefault((row.stage, row.subject), {}).setdefault(row.metric, {})[row.repeat] = row.value
    return Side(exact, _by_figure(found.samples), found.made)


def _by_figure(rows: Iterable[SampleRow]) -> Samples:
    samples: Samples = {}
    for row in rows:
        samples.setdefault((row.stage, row.subject, row.metric), {})[row.repeat, row.unit, row.place] = row.value
    return samples


def _samples(path: Path) -> Samples:
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        problem = f"expected the samples of a nightly as Parquet, found: {' '.join(str(error).split())[:200]}"
        raise InputError(str(path), 0, "", problem) from error
    wanted = SampleRow._fields
    if tuple(table.column_names) != wanted:
        problem = f"expected the columns {', '.join(wanted)}, found {', '.join(table.column_names)}"
        raise InputError(str(path), 0, "", problem)
    columns = (table.column(name).to_pylist() for name in wanted)
    return _by_figure(SampleRow(*row) for row in zip(*columns, strict=True))


def _plain(number: float) -> float | int:
    return int(number) if number.is_integer() else number
