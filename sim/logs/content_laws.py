"""Laws over the contents that a memory read back, as kvtwin's own event log tells them: tags, never computed here."""

from __future__ import annotations

from collections import deque

from model.reader import LOGGED, UNWRITTEN
from sim.logs.findings import Place
from sim.logs.run_book import Event, Worker
from sim.logs.run_laws import RunLaw

_TARGET = "target"  # the pool whose first lifecycle holds the target's pages
_KEPT = 64  # owners that are gone and whose last publications may still be told
_UNWRITTEN = f"{UNWRITTEN & LOGGED:016x}"


class Final(RunLaw):
    """PUB of cells."""

    code, name = "PUB", "final"
    sentence = (
        "The last cell that a publication covers was written, as the memory reads it (while no copy flies or is lost)."
    )
    needs = "publications of a memory (a run with checks)"

    def on_mem_publish(self, worker: Worker, event: Event) -> None:
        if worker.lost or len(worker.begun) != len(worker.over):
            self.undecided += 1  # what hangs on a copy that gets lost is void
            return
        self.evaluations += 1
        if event["tag"] == _UNWRITTEN:
            slot = event["slots"][-1] if event["slots"] else -1
            self.wrong(worker, event, f"the page at slot {slot} is published", "content", "a cell never written")


class AsWritten(RunLaw):
    """KEY of what is published."""

    code, name = "KEY", "as-written"
    sentence = "A page of the target is published with the content that its owner's rows left where the page ends."
    needs = "publications of a memory where a row of their owner ended (a run with checks)"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._left: dict[str, dict[int, dict[int, str]]] = {}  # worker -> owner -> where a row ended -> content there
        self._gone: dict[str, deque[int]] = {}
        self._due: dict[str, deque[Event]] = {}  # decided, not done yet
        self._early: dict[str, deque[str]] = {}  # done before its pass tells of it: content, or none
        self._before: dict[str, Event] = {}  # the publication decided last
        self._page: dict[str, int] = {}  # tokens of a page, known once two blocks in a row were published

    def on_mem_chunk(self, worker: Worker, event: Event) -> None:
        if event["tags"]:
            self._rows(worker, event["owner"])[event["end"]] = event["tags"][0]

    def on_mem_step(self, worker: Worker, event: Event) -> None:
        self._rows(worker, event["owner"])[event["position"]] = event["tag"]

    def _rows(self, worker: Worker, owner: int) -> dict[int, str]:
        owners = self._left.get(worker.name)
        if owners is None:
            owners = self._left[worker.name] = {}
        rows = owners.get(owner)
        if rows is None:
            rows = owners[owner] = {}
        return rows

    def on_release(self, worker: Worker, event: Event) -> None:
        gone = self._gone.setdefault(worker.name, deque())
        gone.append(event["owner"])
        if len(gone) > _KEPT:
            self._left.get(worker.name, {}).pop(gone.popleft(), None)

    def on_publish(self, worker: Worker, event: Event) -> None:
        before = self._before.get(worker.name)
        self._before[worker.name] = event
        if before is not None and _follows(event, before):
            self._page[worker.name] = before["coverage"]
        early = self._early.get(worker.name)
        if early:
            self._judge(worker, event, early.popleft())
        else:
            self._due.setdefault(worker.name, deque()).append(event)

    def on_mem_publish(self, worker: Worker, event: Event) -> None:
        """One content is told for all of its slots, that of the last one."""
        due = self._due.setdefault(worker.name, deque())
        for place in range(len(event["slots"]) - 1, -1, -1):
            tag = "" if place else event["tag"]
            if due:
                self._judge(worker, due.popleft(), tag)
            else:
                self._early.setdefault(worker.name, deque()).append(tag)

    def _judge(self, worker: Worker, decided: Event, tag: str) -> None:
        page = self._page.get(worker.name)
        if not tag or page is None or decided["pool"] != _TARGET or decided["column"]:
            return
        left = self._left.get(worker.name, {}).get(decided["owner"], {})
        content = left.get(decided["block"] * page + decided["coverage"])
        if content is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if content != tag:
            self.wrong(worker, decided, f"block {decided['block']} is published", f"content {content}", tag)


def _follows(event: Event, before: Event) -> bool:
    """Whether two publications are of consecutive blocks of one owner: the first one is whole."""
    same = all(event[name] == before[name] for name in ("pool", "owner", "column"))
    return same and event["block"] == before["block"] + 1
