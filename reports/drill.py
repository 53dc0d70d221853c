"""``kvtwin drill``: every fault on its own scenario, and the build that it breaks on the same scenario beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from model.faults import FAULTS, Fault
from reports import terminal
from reports.catalogue import find_build, unknown_name
from reports.document import dump
from reports.interrupts import INTERRUPTED
from scenarios import catalog
from scenarios.errors import InputError
from sim.run import run_scenario

CAUGHT, MISSED, WRONG, FALSE_ALARM = "caught", "missed", "wrong invariant", "false alarm"


@dataclass(frozen=True, slots=True)
class Drilled:
    """How one fault fared: ``verdict``, the law that fired first, all that fired, and what the sound build broke."""

    name: str
    verdict: str
    first: str
    wanted: str
    fired: tuple[str, ...]
    base: str
    base_fired: tuple[str, ...]
    scenario: str


def drill(
    names: Sequence[str], progress: Callable[[int, int], None] | None = None, check: str = "exhaustive"
) -> tuple[list[Drilled], bool]:
    """Run the named faults, or all, at a level of checking; raises :class:`InputError` for an unknown one.

    Returns the faults that were run to their end, and whether Ctrl-C left some out.
    """
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise InputError("fault", 0, "", unknown_name("a fault", unknown[0], FAULTS, "kvtwin faults"))
    chosen = [FAULTS[name] for name in dict.fromkeys(names)] or list(FAULTS.values())
    rows: list[Drilled] = []
    try:
        for place, fault in enumerate(chosen):
            rows.append(_drill_one(fault, check))
            if progress is not None:
                progress(place + 1, len(chosen))
    except KeyboardInterrupt:
        return rows, True
    return rows, False


def _drill_one(fault: Fault, check: str) -> Drilled:
    scenario = catalog.load(fault.scenario)
    broken = run_scenario(scenario, fault.build, check=check).whole()
    sound = run_scenario(scenario, find_build(fault.base), check=check).whole()
    fired = tuple(dict.fromkeys(violation.code for violation in broken.violations))
    base_fired = tuple(dict.fromkeys(violation.code for violation in sound.violations))
    wanted = fault.fires[0]
    if base_fired:
        verdict = FALSE_ALARM
    elif not fired:
        verdict = MISSED
    else:
        verdict = CAUGHT if fired[0] == wanted else WRONG
    first = fired[0] if fired else ""
    return Drilled(fault.name, verdict, first, wanted, fired, fault.base, base_fired, fault.scenario)


def show(rows: Sequence[Drilled], interrupted: bool, json: bool) -> None:
    """Print the table and one line that counts the verdicts."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (CAUGHT, MISSED, WRONG, FALSE_ALARM)}
    if json:
        sys.stdout.write(
            dump({"faults": [asdict(row) for row in rows], "verdicts": counts, "interrupted": interrupted})
        )
        return
    columns = {
        "name": "fault",
        "verdict": "verdict",
        "first": "fired first",
        "base": "in build",
        "scenario": "scenario",
    }
    out = terminal.console()
    terminal.show_rows(out, [asdict(row) for row in rows], columns)
    out.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def exit_code(rows: Sequence[Drilled], interrupted: bool) -> int:
    """0 when every fault was caught by the right law and no sound build raised an alarm; 130 after Ctrl-C."""
    if interrupted:
        return INTERRUPTED
    return 0 if all(row.verdict == CAUGHT for row in rows) else 1
