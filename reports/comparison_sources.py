"""Which runs stand side by side: those that are still to be made, and those that lie in folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reports.evidence import Evidence, read_evidence
from reports.folder import MARK
from reports.run_folder import EVENTS, read_json
from reports.sources import usage
from reports.stories import stories as told_of
from reports.story import read_events
from scenarios.errors import InputError


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of a run or a replay, and the label that it was given, if any."""

    path: Path
    label: str


def split_names(names: Iterable[str]) -> tuple[list[str], list[RunFolder]]:
    """Scenarios, and folders of runs: ``DIR`` or ``LABEL=DIR``, of several runs too. Raises :class:`InputError`."""
    scenarios: list[str] = []
    folders: list[RunFolder] = []
    for name in names:
        label, equals, path = name.partition("=")
        if Path(name).is_dir():
            folders += _runs_in(Path(name), "")
        elif equals and Path(path).is_dir():
            if not label:
                raise usage(f"expected a label before =, found {name}")
            folders += _runs_in(Path(path), label)
        else:
            scenarios.append(name)
    return scenarios, folders


def _runs_in(folder: Path, label: str) -> list[RunFolder]:
    """The folder itself, or the runs that a call with several scenarios left in it."""
    manifest = read_json(folder, MARK)
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind != "group":
        return [RunFolder(folder, label)]
    return [run for name in manifest.get("folders", ()) for run in _runs_in(folder / str(name), label)]


def read_runs(folders: Sequence[RunFolder], stories: int) -> dict[str, list[Evidence]]:
    """The runs in ``folders`` by scenario, each under a label of its own arm. Raises :class:`InputError`.

    Of a run that broke laws and kept its events the first ``stories`` violations are told.

    An arm is called by its build. Where runs of a build were made in several places it says where, and where one seed
    was run twice the folder says which; runs that differ in their seeds alone are repeats of one arm.
    """
    by_scenario: dict[str, list[tuple[Evidence, str]]] = {}
    for folder in folders:
        run = read_evidence(folder.path, label=folder.label)
        if run.verdict == "interrupted":
            raise InputError(str(folder.path), 0, "", "expected a run that came to its end, found one that was cut")
        if stories and run.violations and (folder.path / EVENTS).exists():
            run = replace(run, told=told_of(run.violations, read_events(folder.path), stories))
        by_scenario.setdefault(run.scenario, []).append((run, folder.path.name))
    return {scenario: _labelled(runs) for scenario, runs in by_scenario.items()}


def _labelled(runs: Sequence[tuple[Evidence, str]]) -> list[Evidence]:
    places: dict[str, set[str]] = {}
    for run, _ in runs:
        places.setdefault(run.build, set()).add(run.on)
    named = []
    for run, folder in runs:
        where = f" on {run.on}" if len(places[run.build]) > 1 else ""
        named.append((replace(run, label=run.label or f"{run.build}{where}"), folder))
    seeds = [(run.label, run.seed) for run, _ in named]
    twice = {label for label, seed in seeds if seeds.count((label, seed)) > 1}
    apart = [replace(run, label=f"{run.label} ({folder})") if run.label in twice else run for run, folder in named]
    keys = [(run.label, run.seed) for run in apart]
    if len(set(keys)) < len(keys):
        label, seed = next(key for key in keys if keys.count(key) > 1)
        raise usage(f"expected runs that a label or a seed tells apart, found {label} with seed {seed} twice")
    return apart


def with_repeats(runs: Sequence[Evidence]) -> list[Evidence]:
    """The runs numbered by seed, in the order in which seeds come first: equal seeds of two arms are one repeat."""
    seeds = list(dict.fromkeys(run.seed for run in runs))
    return [replace(run, repeat=seeds.index(run.seed)) for run in runs]
