"""Laws over what a memory did, as kvtwin's own event log tells it, against what was decided."""

from __future__ import annotations

from collections import deque
from typing import Any

from sim.logs.findings import Place
from sim.logs.run_book import Event, Worker
from sim.logs.run_laws import RunLaw

_Act = tuple[int, tuple[Any, ...]]  # its pass, and what is done
_Chunk = tuple[int, int, int]  # owner, start, end


class MemoryFollows(RunLaw):
    """MAP of what is done."""

    code, name = "MAP", "memory-follows"
    sentence = "A memory does what was decided, in that order: grants, copies, publications, bindings, chunks."
    needs = "events of a memory from its beginning on (a run with checks)"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        # (worker, kind) -> what was decided and not done yet, or done before the pass that tells of the decision
        self._due: dict[tuple[str, str], deque[_Act]] = {}
        self._early: dict[tuple[str, str], deque[_Act]] = {}
        self._chunks: dict[str, dict[_Chunk, int]] = {}  # decided and not done yet -> its pass
        self._last: dict[str, int] = {}  # worker -> the latest pass of its memory

    def _decided(self, worker: Worker, kind: str, event: Event, what: tuple[Any, ...]) -> None:
        early = self._early.get((worker.name, kind))
        if early:
            self._same(worker, kind, event, what, early.popleft()[1])
            return
        queue = self._due.get((worker.name, kind))
        if queue is None:
            queue = self._due[worker.name, kind] = deque()
        queue.append((event["iteration"], what))

    def _done(self, worker: Worker, kind: str, event: Event, what: tuple[Any, ...]) -> None:
        self._last[worker.name] = event["iteration"]
        due = self._due.get((worker.name, kind))
        if due:
            self._same(worker, kind, event, due.popleft()[1], what)
            return
        early = self._early.get((worker.name, kind))
        if early is None:
            early = self._early[worker.name, kind] = deque()
        early.append((event["iteration"], what))

    def _same(self, worker: Worker, kind: str, event: Event, due: tuple[Any, ...], done: tuple[Any, ...]) -> None:
        self.evaluations += 1
        if due != done:
            self.wrong(worker, event, f"the memory does another {kind}", due, done)

    def ended(self, worker: Worker) -> None:
        """What is done after the last pass has no pass left to tell of it; the last passes may still be in flight."""
        last = -1 if worker.iteration is None else worker.iteration
        for (name, kind), early in self._early.items():
            stray = [what for iteration, what in early if iteration < last]
            if name == worker.name and stray:
                message = f"the memory does a {kind} that nobody decided"
                self.report(worker.name, None, message, "a decision", f"{len(stray)} without, first {stray[0]}")
        last = self._last.get(worker.name, -1)
        for (name, kind), due in self._due.items():
            left = [what for iteration, what in due if iteration < last]
            if name == worker.name and left:
                message = f"the memory never does a {kind} that was decided"
                self.report(worker.name, None, message, left[0], f"{len(left)} left out")
        for (owner, start, end), iteration in self._chunks.get(worker.name, {}).items():
            epoch = worker.owners.get(owner)
            if iteration < last and not (epoch is not None and epoch.void):
                message = "the memory never does a chunk that was decided"
                self.report(worker.name, f"owner {owner}", message, f"[{start}, {end})", "left out")

    def on_mem_step(self, worker: Worker, event: Event) -> None:
        self._last[worker.name] = event["iteration"]

    def on_grant(self, worker: Worker, event: Event) -> None:
        self._decided(worker, "grant", event, (event["pool"], event["owner"], event["slots"]))

    def on_mem_grant(self, worker: Worker, event: Event) -> None:
        self._done(worker, "grant", event, (event["pool"], event["owner"], event["slots"]))

    def on_copy(self, worker: Worker, event: Event) -> None:
        self._decided(worker, "copy", event, (event["pool"], event["source"], event["target"], event["tokens"]))

    def on_mem_copy(self, worker: Worker, event: Event) -> None:
        self._done(worker, "copy", event, (event["pool"], event["source"], event["target"], event["tokens"]))

    def on_publish(self, worker: Worker, event: Event) -> None:
        self._decided(worker, "publication", event, (event["pool"], event["coverage"], event["slot"]))

    def on_mem_publish(self, worker: Worker, event: Event) -> None:
        for slot in event["slots"]:
            self._done(worker, "publication", event, (event["pool"], event["coverage"], slot))

    def on_bind(self, worker: Worker, event: Event) -> None:
        self._decided(worker, "binding", event, tuple(event[name] for name in _BOUND))

    def on_mem_bind(self, worker: Worker, event: Event) -> None:
        self._done(worker, "binding", event, tuple(event[name] for name in _BOUND))

    def on_chunk(self, worker: Worker, event: Event) -> None:
        """A row of a request that is set back or cancelled before it runs does nothing."""
        chunk = worker.current.get(event["request"], -1), event["start"], event["end"]
        self._chunks.setdefault(worker.name, {})[chunk] = event["iteration"]

    def on_mem_chunk(self, worker: Worker, event: Event) -> None:
        self._last[worker.name] = event["iteration"]
        self.evaluations += 1
        chunk = event["owner"], event["start"], event["end"]
        if self._chunks.get(worker.name, {}).pop(chunk, None) is None:
            self.wrong(worker, event, "the memory does a chunk", "one that was decided", f"[{chunk[1]}, {chunk[2]})")


_BOUND = ("slot", "owner", "length", "base", "draft_length")


class Positions(RunLaw):
    """MAP of lengths."""

    code, name = "MAP", "positions"
    sentence = "The row slot of a request grows by what each step commits."
    needs = "steps of a memory (a run with checks)"

    def on_mem_step(self, worker: Worker, event: Event) -> None:
        epoch = worker.owners.get(event["owner"])
        if epoch is None or epoch.position is None:
            self.undecided += 1
            return
        self.evaluations += 1
        position = epoch.position + event["committed"]
        if event["position"] != position:
            self.wrong(worker, event, f"a step commits {event['committed']}", f"length {position}", event["position"])
