"""kvtwin's own event log (``events.jsonl``), alone or with the rest of its run folder, re-checked without the model.

``model/events.py`` names the kinds and fields. A decision that is made outside of a pass counts to the pass that comes
next; what a memory did follows the decisions of its iteration; several workers are told apart by ``worker``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.events import FIELDS
from sim.logs.book import Rank
from sim.logs.content_laws import AsWritten, Final
from sim.logs.fields import Fields
from sim.logs.findings import LogReport, Place
from sim.logs.memory_laws import MemoryFollows, Positions
from sim.logs.run_book import Event, Worker
from sim.logs.run_laws import (
    AllEnd,
    CopiesEnd,
    LiveOwners,
    OwnPages,
    Prefill,
    Released,
    RowSlots,
    RunLaw,
    SameDecisions,
    Settled,
    Widths,
    Written,
)
from sim.logs.run_reports import Reported
from sim.logs.stream_laws import Numbers

FORMAT = "kvtwin"
Handler = Callable[[Worker, Event], None]
_ALWAYS = {"iteration", "event", "worker"}
_KNOWN = {
    kind.name.lower(): frozenset(_ALWAYS | {("tags" if name == "tag.." else name.removesuffix("..")) for name in names})
    for kind, names in FIELDS.items()
}
_LAWS: tuple[type[RunLaw], ...] = (
    Prefill,
    Settled,
    Widths,
    RowSlots,
    LiveOwners,
    OwnPages,
    Written,
    CopiesEnd,
    Released,
    AllEnd,
    MemoryFollows,
    Positions,
    Final,
    AsWritten,
    SameDecisions,
)


class RunLog:
    """Judge of one log, fed event by event. ``partial``: the log begins or ends in mid-run, or is cut."""

    def __init__(self, path: Path, partial: bool, windowed: bool) -> None:
        self.partial = partial
        self.place = Place()
        self.report = LogReport(str(path), FORMAT)
        self.fields = Fields(path, self.place, self.report.unknown)
        self.numbers = Numbers(self.place)
        self.laws = [law(self.place) for law in _LAWS]
        self.prompts: dict[int, tuple[int, int]] = {}
        self.reported = Reported(self.place)
        self.workers: dict[int | None, Worker] = {}
        self.ranks: dict[int | None, Rank] = {}
        self.handlers = {kind: self._handlers(kind) for kind in _KNOWN}
        self.ledger = {kind: getattr(Worker, f"on_{kind}", None) for kind in _KNOWN}

    def _handlers(self, kind: str) -> list[Handler]:
        """Methods of laws that look at a kind of event."""
        able = (law for law in self.laws if not (self.partial and isinstance(law, MemoryFollows | AsWritten)))
        found = (getattr(law, f"on_{kind}", None) for law in able)
        return [handler for handler in found if handler is not None]

    def feed(self, line: int, value: Any) -> None:
        """Judge the next event."""
        place = self.place
        place.line = line
        event = self.fields.object("", value)
        kind = event.get("event")
        known = _KNOWN.get(kind) if type(kind) is str else None
        if known is None or kind is None:
            if type(kind) is not str:
                self.fields.fail("event", "the kind of an event", kind)
            self.report.unknown[f"event type {kind}"] += 1
            return
        place.event = iteration = event.get("iteration")
        if type(iteration) is not int:
            self.fields.fail("iteration", "an integer", iteration)
        worker = self.workers.get(event.get("worker"))
        if worker is None:
            worker = self._worker(event.get("worker"))
        try:
            for handler in self.handlers[kind]:
                handler(worker, event)
            if kind == "iteration":
                self.numbers.numbered(self.ranks[event.get("worker")], iteration)
            enter = self.ledger[kind]
            if enter is not None:
                enter(worker, event)
        except KeyError as error:
            self.fields.fail(str(error.args[0]), f"a field of {kind} events", None)
        except TypeError:
            self.fields.fail(kind, "values as kvtwin writes them", event)
        self.report.events[kind] += 1
        if not event.keys() <= known:
            self.fields.unknown(event, known, f"{kind}.")

    def _worker(self, key: Any) -> Worker:
        if key is not None:
            self.fields.integer("worker", key)
        worker = self.workers[key] = Worker("" if key is None else f"worker {key}", self.prompts)
        self.ranks[key] = Rank(worker.name, whole=not self.partial)
        return worker

    def end(self) -> LogReport:
        """The verdict on everything that was fed."""
        if not self.partial:
            workers = list(self.workers.values())
            for law in self.laws:
                for worker in workers:
                    law.ended(worker)
                law.closed(workers)
        self.report.laws = [self.numbers, *self.laws, self.reported]
        self.report.pools = [self._told(worker) for worker in self.workers.values()]
        return self.report

    def compare(self, folder: Path) -> None:
        """Hold what the run reports in ``folder`` to the ledger of its log; call it before :meth:`end`."""
        self.reported.compare(folder, list(self.workers.values()))

    def _told(self, worker: Worker) -> dict[str, Any]:
        return {
            "pool": worker.name,
            "iterations": worker.iterations,
            "requests": len(worker.requests),
            "finished": worker.finished,
            "owners": len(worker.owners),
            "chunk_tokens": worker.chunk_tokens,
            "steps": worker.steps,
            "output_tokens": worker.outputs,
        }
