"""``kvtwin nightly``: a suite from its first step to its folder, its screen and its exit code."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic

from rich.text import Text

from reports import terminal
from reports.document import dump
from reports.folder import Output
from reports.nightly import baseline as baselines
from reports.nightly import files, steps
from reports.nightly.night import Night
from reports.nightly.plan import plan
from reports.nightly.sentences import BAD, GOOD, ODD, headline, sentences
from reports.nightly.suite import Suite
from scenarios.errors import InputError
from sim.nightly import rules

SHOWN = 24  # sentences on the screen; the files have them all
STYLES = {BAD: "bold red", ODD: "yellow", GOOD: "green"}


def run(suite: Suite, place: steps.Place, baseline: Path | None, out: Path | None) -> Night:
    """Run a suite and write ``out``; :class:`InputError`, before anything runs, for what cannot be."""
    held = None if baseline is None else baselines.read(baseline)
    planned, skipped = plan(suite, place)
    if not planned:
        raise suite.located((), f"expected a stage that runs on {place.on}, found none: {'; '.join(skipped)}")
    empty = _night(suite, place, steps.Ran(), tuple(skipped), 0.0)
    if held is not None:
        _check(str(baseline), held, empty)
    begun = monotonic()
    with Output(out, several=False, sources=() if baseline is None else (baseline,)) as output:
        folder = None if out is None else output.folder(suite.name)
        ran = steps.run(planned, None if folder is None or out is None else steps.Kept(folder, out))
        night = _night(suite, place, ran, tuple(skipped), monotonic() - begun)
        if held is not None:
            night = _held(night, held, str(baseline), suite)
        if folder is not None:
            files.write(folder, night)
    if ran.interrupted and not night.found.cases and out is None:
        raise KeyboardInterrupt
    return night


def _night(suite: Suite, place: steps.Place, ran: steps.Ran, skipped: tuple[str, ...], seconds: float) -> Night:
    left_out = frozenset((step.stage, step.subject) for step in ran.left_out)
    return Night(
        suite.name,
        suite.digest,
        place.on,
        place.name,
        baselines.code_digest(),
        ran.found,
        left_out,
        skipped,
        ran.interrupted,
        seconds,
    )


def _check(path: str, held: baselines.Baseline, night: Night) -> None:
    """Raise ``InputError`` where a nightly cannot be held to a baseline."""
    key = night.key()
    for name, of, wanted, found in (
        ("suite", "the suite", key["suite"]["name"], held.key["suite"]["name"]),
        ("on", "a nightly on", key["on"], held.key["on"]),
        ("device", "the device", key["device"], held.key["device"]),
    ):
        if wanted != found:
            raise InputError(path, 0, name, f"expected a baseline of {of} {wanted}, found one of {found}")
    if held.lacks:
        raise InputError(path, 0, "", f"expected figures that can be held to, found those of a nightly: {held.lacks}")


def _held(night: Night, held: baselines.Baseline, path: str, suite: Suite) -> Night:
    """The nightly with what changed against its baseline."""
    compared = rules.compare(held.side, baselines.side_of(night.found), suite.minimum, night.left_out)
    notes = []
    if held.key["suite"]["digest"] != suite.digest:
        notes.append("the suite says something else than when the baseline was stored; what both have is compared")
    if held.key["code"] == night.code and any(change.ratio is None and change.fails for change in compared.changes):
        notes.append("the baseline is of this very code: something does not repeat itself")
    return replace(night, baseline=path, compared=compared, notes=tuple(notes))


# -- on a terminal -----------------------------------------------------------------------------------------------------


def show_plan(suite: Suite, place: steps.Place, json: bool) -> None:
    """List the steps of a suite; :class:`InputError` for what is wrong in it."""
    planned, skipped = plan(suite, place)
    rows = [{"name": step.stage, "step": step.label} for step in planned]
    if json:
        sys.stdout.write(dump({"suite": suite.name, "digest": suite.digest, "steps": rows, "skipped": skipped}))
        return
    screen = terminal.console()
    terminal.show_rows(screen, rows, {"name": "stage", "step": "step"})
    for line in skipped:
        screen.print(line, soft_wrap=True)


def show(night: Night, json: bool, out: Path | None) -> None:
    """Print the nightly on one screen: what got worse first, the verdict last."""
    if json:
        sys.stdout.write(dump(files.document(night) | {"folder": None if out is None else str(out)}))
        return
    screen, told = terminal.console(), sentences(night)
    for sentence in told[:SHOWN]:
        mark = {BAD: "✗", GOOD: "✓"}.get(sentence.tone, "·")
        screen.print(Text(f"{mark} {sentence.text}", STYLES.get(sentence.tone, "")), soft_wrap=True)
    if len(told) > SHOWN:
        rest = len(told) - SHOWN
        bad = sum(sentence.tone == BAD for sentence in told[SHOWN:])
        screen.print(f"  and {rest:,} more, {bad:,} of them bad; --out and --json have them all")
    head = headline(night)
    screen.print(Text(f"{head.text}; {night.seconds:,.1f} s", STYLES.get(head.tone, "")), soft_wrap=True)
    if out is not None:
        names = f"{files.JUNIT}, {files.SUMMARY}, {files.NIGHTLY} and tables"
        screen.print(f"  written: {out / files.PAGE}, {names} beside it", soft_wrap=True, markup=False)


def show_stored(folder: Path, json: bool) -> None:
    """Say what a baseline holds."""
    held = baselines.read(folder)
    exact = sum(len(values) for figures in held.side.exact.values() for values in figures.values())
    counts = {"figures": exact, "samples": sum(map(len, held.side.samples.values()))}
    if json:
        sys.stdout.write(dump({"folder": str(folder), **held.key, **counts}))
        return
    told = f"stored in {folder}: {counts['figures']:,} exact figures and {counts['samples']:,} samples of the suite "
    terminal.console().print(f"{told}{held.key['suite']['name']} on {held.key['device']}", soft_wrap=True, markup=False)
