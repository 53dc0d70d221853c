"""The scenarios that ship with the project, by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path

from scenarios.errors import InputError, quote
from scenarios.loader import load_scenario
from scenarios.schema import Scenario

HOME = Path(__file__).parent
FOLDERS = ("seeds", "reports", "faults", "workloads", "smoke", "regressions")


@dataclass(frozen=True, slots=True)
class Entry:
    """One shipped scenario: ``name`` is its path below :data:`HOME` without the ending."""

    name: str
    summary: str
    path: str
    build: str
    geometry: str

    def as_dict(self) -> dict[str, str]:
        """The entry as a plain mapping."""
        return asdict(self)


def paths() -> dict[str, Path]:
    """Paths of all shipped scenarios by name, in the order of the folders and of the alphabet."""
    found = [path for folder in FOLDERS for path in sorted((HOME / folder).rglob("*.yaml"))]
    return {path.relative_to(HOME).with_suffix("").as_posix(): path for path in found}


def entries() -> list[Entry]:
    """All shipped scenarios with their summaries."""
    found = []
    for name, path in paths().items():
        scenario = load_scenario(path)
        geometry = scenario.geometry.preset or "explicit"
        found.append(Entry(name, scenario.summary, str(path), scenario.build, geometry))
    return found


def resolve(name: str) -> Path:
    """Path of a scenario by path, by name (``seeds/x05_repeat``) or by file name alone where that is unique.

    ``InputError`` names the nearest scenario if there is none.
    """
    direct = Path(name)
    if direct.is_file():
        return direct
    wanted = name.removesuffix(".yaml").removeprefix("scenarios/")
    folder, _, below = wanted.partition("/")
    shipped = HOME / folder / f"{below}.yaml"
    if folder in FOLDERS and _is_below(HOME / folder, below) and shipped.is_file():
        return shipped
    known = paths()
    stems = Counter(path.stem for path in known.values())
    if stems[wanted] == 1:
        return next(path for path in known.values() if path.stem == wanted)
    if direct.is_dir():
        raise InputError(name, 0, "", "expected a scenario file or a name, found a folder")
    near = get_close_matches(wanted, [*known, *stems], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(quote(name), 0, "", f"no such file or scenario ({hint}kvtwin scenarios lists the names)")


def _is_below(folder: Path, name: str) -> bool:
    """Whether ``name`` is written as :func:`paths` writes it: no step up or in place, no doubled slash."""
    path = folder / name
    return ".." not in path.parts and path.as_posix() == f"{folder.as_posix()}/{name}"


def load(name: str) -> Scenario:
    """The scenario that :func:`resolve` finds."""
    return load_scenario(resolve(name))
