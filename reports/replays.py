"""``kvtwin replay``: scenarios whose memory a device keeps as well, and what of it differs from the sim's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_backend.replay.result import GREEDY, Replayed, ReplayOrder
from model.builds import Build
from reports import terminal
from reports.document import INTERRUPTED, dump, plural, run_document, violation_document
from reports.folder import Output, stamp
from reports.run_folder import OPS, REPLAY, write_requests
from reports.sources import folders_below, load_sources, scenario_of_fault
from scenarios.schema import Scenario
from sim.optrace import save_trace
from sim.rulespec import find

FEW = 8  # findings that are shown of one replay

Replay = Callable[[Scenario, Build, ReplayOrder, terminal.Tick], Replayed]


@dataclass(frozen=True, slots=True)
class Done:
    """A finished replay and the folder that it left."""

    replayed: Replayed
    folder: Path | None


def run(names: Sequence[str], build: str | None, order: ReplayOrder, out: Path | None, replay: Replay) -> list[Done]:
    """Replay scenarios in order; everything is loaded before anything runs. Raises ``InputError``."""
    sources = load_sources(tuple(names) or scenario_of_fault(build), None)
    builds = [find(source.scenario.build if build is None else build) for source in sources]
    folders = folders_below(out, sources)
    done: list[Done] = []
    with Output(out, several=len(sources) > 1) as output:
        for source, chosen, folder in zip(sources, builds, folders, strict=True):
            with terminal.progress(f"{source.scenario.name} on {chosen.name}") as tick:
                replayed = replay(source.scenario, chosen, order, tick)
            if folder is not None:
                written = output.folder(source.scenario.name)
                (written / REPLAY).write_text(dump(document(replayed)), encoding="utf-8")
                write_requests(written, replayed.result)
                if replayed.trace is not None:
                    save_trace(written / OPS, replayed.trace)
                stamp(written, "replay")
            done.append(Done(replayed, folder))
            if replayed.result.interrupted:
                break
    return done


def exit_code_of(done: Iterable[Done]) -> int:
    """A difference or a broken law outweighs Ctrl-C, and that a replay that compared nothing."""
    codes = {_code(one.replayed) for one in done}
    return next((code for code in (1, INTERRUPTED, 3) if code in codes), 0)


def _code(replayed: Replayed) -> int:
    code = replayed.exit_code
    return INTERRUPTED if replayed.result.interrupted and code != 1 else code


def document(replayed: Replayed) -> dict[str, Any]:
    """A replay as plain values: the sim's run, each worker's device, and every finding."""
    return {
        "scenario": replayed.result.scenario,
        "build": replayed.result.build,
        "verdict": verdict(replayed),
        "exit_code": _code(replayed),
        "order": asdict(replayed.order) | {"device": replayed.device},
        "workers": [asdict(worker) | {"equal": worker.equal} for worker in replayed.workers],
        "findings": [violation_document(finding) for finding in replayed.findings],
        "acceptance_length": _measured(replayed),
        "acceptance": None if replayed.measured is None else replayed.measured.table(),
        "confidence": replayed.confidence,
        "requests": [] if replayed.measured is None else replayed.measured.records(),
        "checked": {"LOSSLESS": _sum(replayed, "tokens"), "SHADOW": _sum(replayed, "context_rows")},
        "run": run_document(replayed.result),
    }


def _measured(replayed: Replayed) -> float | str:
    """The acceptance length, or that nobody measured one."""
    length = replayed.acceptance_length
    return "not measured" if length is None else round(length, 4)


def _sum(replayed: Replayed, name: str) -> int:
    return sum(getattr(worker, name) for worker in replayed.workers)


def verdict(replayed: Replayed) -> str:
    """The replay in a few words."""
    if replayed.result.interrupted:
        return "interrupted"
    if not replayed.equal:
        return "memories differ"
    if replayed.findings:
        return "device broke a law"
    if replayed.result.violations or replayed.result.missed:
        return "law broken"
    return "nothing compared" if replayed.exit_code else "equal"


def show(done: Sequence[Done], json: bool) -> None:
    """Print a line for each replay, and the first findings of those that differ."""
    if json:
        documents = [
            document(one.replayed) | {"folder": None if one.folder is None else str(one.folder)} for one in done
        ]
        sys.stdout.write(dump({"replays": documents, "exit_code": exit_code_of(done)}))
        return
    out = terminal.console()
    columns = {"scenario": "scenario", "build": "build", "verdict": "memories", "steps": "steps", "events": "events"}
    columns |= {"slots": "slots", "milliseconds": "ms a step"}
    terminal.show_rows(out, [_row(one.replayed) for one in done], columns)
    for one in done:
        _show_findings(one.replayed)
        if one.folder is not None:
            out.print(f"  written: {one.folder}", soft_wrap=True)
    if done:
        for line in dict.fromkeys(_said(one.replayed) for one in done):
            out.print(line, soft_wrap=True)


def _said(replayed: Replayed) -> str:
    """Where it ran and what of the modules was judged, in one line."""
    length = replayed.acceptance_length
    if length is None:
        return f"device: {replayed.device}; acceptance length and losslessness are not measured"
    tokens, ties, rows = (_sum(replayed, name) for name in ("tokens", "ties", "context_rows"))
    counted = f"LOSSLESS held to {plural(tokens, 'token')} ({plural(ties, 'tie')}), SHADOW to {plural(rows, 'row')}"
    order = replayed.order
    how = "greedy" if order.sampling == GREEDY else f"{order.sampling} at temperature {order.temperature:g}"
    return f"device: {replayed.device}; {replayed.result.scenario}: acceptance length {length:.3f}, {how}; {counted}"


def _row(replayed: Replayed) -> dict[str, Any]:
    workers = replayed.workers
    steps = sum(worker.steps for worker in workers)
    seconds = sum(worker.seconds + worker.dispatch_seconds for worker in workers)
    return {
        "scenario": replayed.result.scenario,
        "build": replayed.result.build,
        "verdict": verdict(replayed),
        "steps": steps,
        "events": sum(worker.events for worker in workers),
        "slots": sum(worker.slots for worker in workers),
        "milliseconds": f"{1e3 * seconds / steps:.2f}" if steps else "–",
    }


def _show_findings(replayed: Replayed) -> None:
    out = terminal.console()
    lines = list(replayed.findings[:FEW])
    if lines:
        columns = {"code": "law", "message": "what", "request": "request", "pool": "pool", "page": "page"}
        columns |= {"position": "position", "step": "step", "expected": "expected", "found": "found"}
        terminal.show_rows(out, [violation_document(finding) for finding in lines], columns)
    more = len(replayed.findings) - len(lines)
    if more:
        out.print(f"  and {plural(more, 'finding')} more")
    for line in replayed.result.missed:
        out.print(f"  missed: {line}", soft_wrap=True)
