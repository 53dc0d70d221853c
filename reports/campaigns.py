"""``kvtwin fuzz``: how a campaign is shown while it goes on, and what is told of it at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from model.invariants import INVARIANTS
from reports import terminal
from reports.campaign_folder import CampaignFolder
from reports.document import INTERRUPTED, dump, plural
from sim.findings import Campaigned, Cause, Failure

REFRESHES_S = 4  # a second
KINDS_SHOWN = 12  # ops of a program on a line
CAUSES_SHOWN = 30


class Desk:
    """A session's view of this room, as a context: the folder ``out`` and the state of the campaign, shown on a
    terminal all the time and elsewhere in a line now and then.

    ``place`` is where the folder will lie in the end, if elsewhere.
    """

    def __init__(self, out: Path | None, place: Path | None = None) -> None:
        self._folder = CampaignFolder(out, place)
        screen = Console(stderr=True)
        shown = Live(console=screen, transient=True, refresh_per_second=REFRESHES_S)
        self._live = shown if screen.is_terminal else None
        self._lines = terminal.Lines()
        self._began = monotonic()

    def __enter__(self) -> Desk:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def ledger(self) -> Path | None:
        """The file of the ledger."""
        return self._folder.ledger

    def keep(self, failure: Failure, command: str) -> str:
        """Write a failure; the name of its folder."""
        return self._folder.keep(failure, command)

    def drop(self, folder: str) -> None:
        """Remove the folder of a failure that another one stands for."""
        self._folder.drop(folder)

    def tell(self, so_far: Campaigned) -> None:
        """Show how far it is."""
        if self._live is not None:
            self._live.update(Group(*_state(so_far, monotonic() - self._began)))
        elif self._lines.due():
            broken = f"; a law broke in {so_far.failures:,}" if so_far.failures else ""
            terminal.remark(f"fuzz: {_pace(so_far, monotonic() - self._began)}{broken}")

    def note(self, line: str) -> None:
        """A line on standard error, above what is shown there."""
        if self._live is not None:
            self._live.console.print(Text(f"kvtwin: {line}"))
        else:
            terminal.complain(line)

    def close(self, order: dict[str, Any], done: Campaigned) -> None:
        """Write what the folder says of the whole campaign."""
        try:
            self._folder.summarise(dump(document(order, done)))
        except OSError as error:
            done.unwritten = done.unwritten or f"cannot write {self._folder.summary}: {error.strerror or error}"


def _pace(so_far: Campaigned, seconds: float) -> str:
    """How far it is, and how fast; rates are those of this session."""
    totals = so_far.totals
    per_second = (totals.examples - so_far.resumed) / seconds if seconds else 0.0
    steps = per_second * totals.steps / totals.examples if totals.examples else 0.0
    return (
        f"{plural(totals.examples, 'example')} in {seconds:,.0f} s: {per_second:,.0f} examples/s, "
        f"{steps:,.0f} steps/s, laws evaluated {plural(totals.evaluations.total(), 'time')}"
    )


def _state(so_far: Campaigned, seconds: float) -> list[Text]:
    """A few lines while it runs."""
    lines = [_pace(so_far, seconds), f"reached: {_features(so_far)}"]
    shown = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
    for cause in so_far.causes[:CAUSES_SHOWN]:
        line = f"{cause.law} {cause.count:,} x on {cause.build}: {_program(cause)}"
        shown.append(Text(line, "bold red", no_wrap=True, overflow="ellipsis"))
    return shown


def exit_code(done: Campaigned) -> int:
    """4 if the harness crashed, could not write or lost its workers, 1 if a law broke, 130 after Ctrl-C, 3 if nothing
    was checked."""
    if done.crashes or done.unwritten or done.lost:
        return 4
    if done.causes:
        return 1
    if done.interrupted:
        return INTERRUPTED
    return 0 if done.checked else 3


# -- as JSON -----------------------------------------------------------------------------------------------------------


def document(order: dict[str, Any], done: Campaigned) -> dict[str, Any]:
    """The campaign as plain values; ``order`` is what was asked."""
    totals = done.totals
    return {
        "order": order,
        "workers": done.workers,
        "examples": totals.examples,
        "examples_of_earlier_sessions": done.resumed,
        "steps": totals.steps,
        "skipped_steps": totals.skips,
        "seconds": round(done.seconds, 3),
        "processor_seconds": round(totals.seconds, 3),
        "examples_per_second": _rate(totals.examples, done.seconds),
        "steps_per_second": _rate(totals.steps, done.seconds),
        "laws_evaluated": {code: totals.evaluations.get(code, 0) for code in INVARIANTS},
        "features": dict(sorted(totals.features.items())),
        "failures": [_cause_document(cause) for cause in done.causes],
        "further_failures": [
            {"law": law, "build": build, "count": count} for (law, build), count in sorted(done.further.items())
        ],
        "crashes": [
            {"example": crash.example, "error": crash.what, "seed": crash.seed, "again": crash.again or None}
            for crash in done.crashes
        ],
        "interrupted": done.interrupted,
        "ordered_examples": done.ordered_examples,
        "ordered_seconds": done.ordered_seconds,
        "session_seconds": round(done.session_seconds, 3),
        "not_written": done.unwritten or None,
        "lost": done.lost or None,
        "exit_code": exit_code(done),
    }


def _cause_document(cause: Cause) -> dict[str, Any]:
    return {
        "law": cause.law,
        "count": cause.count,
        "build": cause.build,
        "driver": cause.driver,
        "seed": cause.seed,
        "ops": list(cause.kinds),
        "message": cause.message,
        "folder": cause.folder or None,
    }


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0


# -- on a terminal -----------------------------------------------------------------------------------------------------


def show(order: dict[str, Any], done: Campaigned, json: bool, out: Path | None) -> None:
    """Print the campaign: what it reached, which laws it evaluated, what broke, and how fast it went.

    What could not be written, and that the workers are gone, is a line on standard error beside it.
    """
    if json:
        sys.stdout.write(dump(document(order, done)))
    else:
        _show(order, done, out)
    if done.unwritten:
        sys.stdout.flush()
        terminal.complain(f"{done.unwritten}; called again, the campaign goes on from what is written")
    if done.lost:
        sys.stdout.flush()
        again = (
            "called again with the same --out, the campaign goes on" if out is not None else "--out keeps a campaign"
        )
        terminal.complain(f"{done.lost}; {again}")


def _show(order: dict[str, Any], done: Campaigned, out: Path | None) -> None:
    screen = terminal.console()
    totals = done.totals
    terminal.show_lines(screen, f"Reached: {_features(done) or 'nothing'}.")
    laws = [code for code in INVARIANTS if totals.evaluations[code]]
    counted = f"{plural(totals.evaluations.total(), 'time')}, {len(laws)} of {len(INVARIANTS)}"
    idle = [code for code in INVARIANTS if code not in laws]
    terminal.show_lines(screen, f"Laws evaluated: {counted}{'; not: ' + ', '.join(idle) if idle else ''}.")
    if done.causes:
        _show_causes(screen, done, out)
    for crash in done.crashes:
        seed = f" (seed {crash.seed})" if crash.seed >= 0 else ""
        words = f"kvtwin crashed at example {crash.example:,}{seed}: {crash.what}"
        terminal.show_lines(screen, Text(words, "bold red"))
        if crash.again:
            terminal.show_lines(screen, f"  again, behind those before it: {crash.again}")
    _show_verdict(screen, order, done)


def _features(done: Campaigned) -> str:
    reached = [(name, count) for name, count in done.totals.features.most_common() if count]
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in reached)


def _program(cause: Cause) -> str:
    more = f" ... ({len(cause.kinds)} ops)" if len(cause.kinds) > KINDS_SHOWN else ""
    return " ".join(cause.kinds[:KINDS_SHOWN]) + more


def _show_causes(screen: Console, done: Campaigned, out: Path | None) -> None:
    told = done.causes[:CAUSES_SHOWN]
    rows = [
        {
            "name": cause.law,
            "count": f"{cause.count:,}",
            "build": cause.build,
            "seed": f"{cause.seed}",
            "program": _program(cause),
            "what": cause.message,
        }
        for cause in told
    ]
    columns = {
        "name": "law",
        "count": "times",
        "build": "build",
        "seed": "seed",
        "program": "smallest program",
        "what": "what is wrong",
    }
    terminal.show_rows(screen, rows, columns, unbroken=("build",))
    for cause in told:
        if out is not None and cause.folder:
            screen.print(f"  written: {out / cause.folder}", soft_wrap=True, markup=False)
    if len(done.causes) > CAUSES_SHOWN:
        terminal.show_lines(screen, f"  and {plural(len(done.causes) - CAUSES_SHOWN, 'cause')} more; --json lists all")
    for (law, build), count in sorted(done.further.items()):
        terminal.show_lines(screen, f"  and {plural(count, 'failure')} more of {law} on {build}, counted only")
    if out is None:
        terminal.show_lines(screen, "  --out DIR keeps each with its scenario, story and picture.")


def _until(done: Campaigned) -> str:
    """What ended the session before its end, as the rest of a sentence."""
    if done.unwritten:
        return " until a file could not be written"
    return " until the workers were gone" if done.lost else ""


def _show_verdict(screen: Console, order: dict[str, Any], done: Campaigned) -> None:
    totals, code = done.totals, exit_code(done)
    driver = order["driver"] if order["driver"] != "machine" else f"machine ({order['machine']})"
    which = f"{driver}, {plural(len(order['builds']), 'build')}, profile {order['profile']}, seed {order['seed']}"
    rate = f"{_rate(totals.examples, done.seconds):,.0f} examples/s, {_rate(totals.steps, done.seconds):,.0f} steps/s"
    earlier = f", {done.resumed:,} of them in earlier sessions" if done.resumed else ""
    took = f"{plural(totals.examples, 'example')}{earlier} in {done.seconds:,.1f} s"
    speed = f"{rate}, {plural(done.workers, 'worker')}"
    if done.causes:
        until = _until(done)
        words = f"a law broke in {done.failures:,}, of {plural(len(done.causes), 'cause')}{until}"
        words += f"; {_interruption(done)}" if done.interrupted else ""
        verdict = Text(words, "bold red")
    elif _until(done) and not done.crashes:
        words = "no law broke" if done.checked else "nothing was checked"
        verdict = Text(f"{words}{_until(done)}", "bold red")
    elif code == 4:
        verdict = Text("not judged, since kvtwin crashed", "bold red")
    elif code == INTERRUPTED:
        until = "no law broke until then" if done.checked else "nothing was checked until then"
        verdict = Text(f"{_interruption(done)}; {until}", "yellow")
    elif code == 3:
        verdict = Text("nothing checked", "yellow")
    else:
        verdict = Text("no law broke", "green")
    terminal.show_lines(screen, Text.assemble(f"{which}: {took} ({speed}): ", verdict))


def _interruption(done: Campaigned) -> str:
    """That Ctrl-C ended the session, and how much of what was ordered it had done."""
    if done.ordered_examples is not None:
        return (
            f"interrupted after {done.totals.examples - done.resumed:,} of {plural(done.ordered_examples, 'example')}"
        )
    ordered = (done.ordered_seconds or 0.0) / 60.0
    return f"interrupted after {done.session_seconds / 60.0:,.1f} of {ordered:,.10g} minutes"
