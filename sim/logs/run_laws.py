"""Laws over kvtwin's own event log, recomputed from the log alone: no engine runs, no tag is computed.

What the log leaves open: pages that leave a window or an undone growth are not told, nor which pages a claim took; so
no law here says that a page that is granted was free.
"""

from __future__ import annotations

from typing import Any

from sim.logs.findings import LogLaw, Place
from sim.logs.run_book import Event, Worker


class RunLaw(LogLaw):
    """A law with a method ``on_KIND(worker, event)`` for each kind of event that it looks at."""

    def ended(self, worker: Worker) -> None:
        """The log ends."""

    def closed(self, workers: list[Worker]) -> None:
        """The log has ended for all workers."""

    def wrong(self, worker: Worker, event: Event, message: str, expected: object, found: object) -> None:
        """Report an event of a request or owner."""
        who = event.get("request", event.get("owner"))
        pool = event.get("pool", "")
        self.report(f"{worker.name} {pool}".strip(), _who(event, who), message, expected, found)


def _who(event: Event, who: Any) -> str | None:
    return None if who is None else f"{'request' if 'request' in event else 'owner'} {who}"


class RowSlots(RunLaw):
    """STATE of rows."""

    code, name = "STATE", "row-slots"
    sentence = "A row slot belongs to one owner at a time, and every row of a request uses its own."
    needs = "bindings of row slots"

    def on_bind(self, worker: Worker, event: Event) -> None:
        self.evaluations += 1
        owner = worker.slots.get(event["slot"])
        epoch = None if owner is None or owner == event["owner"] else worker.owners.get(owner)
        if epoch is not None and epoch.gone is None:
            self.wrong(worker, event, f"row slot {event['slot']} is bound", "nobody's", f"owner {owner}'s")

    def on_chunk(self, worker: Worker, event: Event) -> None:
        self._row(worker, event)

    def on_step(self, worker: Worker, event: Event) -> None:
        self._row(worker, event)

    def _row(self, worker: Worker, event: Event) -> None:
        asked = worker.requests.get(event["request"])
        if asked is None:
            self.undecided += 1
            return
        self.evaluations += 1
        owner = worker.slots.get(event["slot"])
        if owner != asked.owner:
            found = "nobody's" if owner is None else f"owner {owner}'s"
            self.wrong(worker, event, f"a row uses row slot {event['slot']}", f"owner {asked.owner}'s", found)


class Prefill(RunLaw):
    """FRONT of contexts."""

    code, name = "FRONT", "prefill"
    sentence = "A context is computed from its claim to its end, chunk behind chunk, and steps come after its last one."
    needs = "chunks of requests whose submission and claim are in the log"

    def on_claim(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if not 0 <= event["tokens"] < asked.known:
            self.wrong(worker, event, "a claim leaves nothing to compute", f"less than {asked.known}", event["tokens"])

    def on_chunk(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None or asked.cursor is None:
            self._stray(worker, event, asked is not None)
            return
        self.evaluations += 1
        if event["start"] != asked.cursor:
            self.wrong(worker, event, "a chunk does not start where the last one ended", asked.cursor, event["start"])
        elif not event["start"] < event["end"] <= asked.goal:
            self.wrong(worker, event, "a chunk ends out of its context", f"up to {asked.goal}", event["end"])
        elif bool(event["last"]) != (event["end"] == asked.goal):
            self.wrong(worker, event, "the last chunk is not the one that ends the context", asked.goal, event["end"])

    def on_step(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None or asked.cursor is None:
            self._stray(worker, event, asked is not None)
            return
        self.evaluations += 1
        if asked.cursor < asked.goal:
            self.wrong(worker, event, "a step before the context is complete", asked.goal, asked.cursor)

    def _stray(self, worker: Worker, event: Event, known: bool) -> None:
        if known:
            self.evaluations += 1
            self.wrong(worker, event, "a row of a request that has no claim", "a claim before", "none")
        else:
            self.undecided += 1


class Settled(RunLaw):
    """METRIC of outputs."""

    code, name = "METRIC", "settled"
    sentence = "What is known of a request grows by what its rows commit, and its output is as long as it says."
    needs = "settled rows of requests whose submission is in the log"

    def on_settle(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None:
            self.undecided += 1
            return
        self.evaluations += 1
        grown = asked.known + event["committed"]
        if asked.limit < 0 and asked.known < event["known"] < grown:
            return  # perhaps all that it asked for
        if asked.limit >= 0:
            grown = min(grown, asked.prompt + asked.limit)
        if event["known"] != grown:
            self.wrong(worker, event, f"{event['committed']} tokens are committed", grown, event["known"])

    def on_finish(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None or asked.limit < 0:
            self.undecided += 1
            return
        self.evaluations += 1
        output = asked.known - asked.prompt
        if event["output"] != output or output > asked.limit:
            self.wrong(worker, event, "a request finishes", f"{output} of {asked.limit} tokens", event["output"])


class Widths(RunLaw):
    """SHAPE of rows."""

    code, name = "SHAPE", "widths"
    sentence = "A row commits at least one token and at most its width, one where it has no real drafts."
    needs = "settled rows of requests whose submission is in the log"

    def on_settle(self, worker: Worker, event: Event) -> None:
        asked = worker.asked(event)
        if asked is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if not asked.plans:
            self.wrong(worker, event, "a row settles that was never dispatched", "a row in flight", "none")
        elif not 1 <= event["committed"] <= asked.plans[0]:
            self.wrong(worker, event, "a row commits", f"1 to {asked.plans[0]}", event["committed"])


class LiveOwners(RunLaw):
    """OWN of grants."""

    code, name = "OWN", "live-owners"
    sentence = "Pages and row slots are given to owners of running requests, and none is given twice in one grant."
    needs = "grants to owners whose claim is in the log"

    def on_grant(self, worker: Worker, event: Event) -> None:
        self._owner(worker, event)
        slots = event["slots"]
        if len(set(slots)) != len(slots):
            self.wrong(worker, event, "a page is granted twice at once", "distinct pages", slots)

    def on_bind(self, worker: Worker, event: Event) -> None:
        self._owner(worker, event)

    def _owner(self, worker: Worker, event: Event) -> None:
        epoch = worker.owners.get(event["owner"])
        if epoch is None:
            self.undecided += 1  # a dummy's, or claimed before the log began
            return
        self.evaluations += 1
        if epoch.gone is not None and event["iteration"] > epoch.gone:
            self.wrong(worker, event, "something is given to an owner that is gone", "a live one", "released")


class OwnPages(RunLaw):
    """PUB of whose pages."""

    code, name = "PUB", "own-pages"
    sentence = "An owner publishes pages that were granted to it, while it is there."
    needs = "publications by owners whose claim is in the log"

    def on_publish(self, worker: Worker, event: Event) -> None:
        owner = event["owner"]
        epoch = worker.owners.get(owner)
        if epoch is None:
            self.undecided += 1
            return
        self.evaluations += 1
        tenant = worker.tenants.get((event["pool"], event["slot"]))
        if tenant != owner:
            found = "nobody's" if tenant is None else f"owner {tenant}'s"
            self.wrong(worker, event, f"page at slot {event['slot']} is published", f"granted to owner {owner}", found)


class Written(RunLaw):
    """PUB of what is in them."""

    code, name = "PUB", "written"
    sentence = "A block is published when rows that were dispatched before have computed all tokens that it covers."
    needs = "publications by owners whose claim is in the log"

    def on_publish(self, worker: Worker, event: Event) -> None:
        epoch = worker.owners.get(event["owner"])
        if epoch is None:
            self.undecided += 1
            return
        self.evaluations += 1
        page = max(worker.page.get(event["pool"], 0), event["coverage"])
        end = event["block"] * page + event["coverage"]  # or more, where no whole page was published yet
        if end > epoch.written:
            message = f"block {event['block']} is published before it is written"
            self.wrong(worker, event, message, f"{end} tokens computed", epoch.written)


class CopiesEnd(RunLaw):
    """FLIGHT of copies."""

    code, name = "FLIGHT", "copies"
    sentence = "A copy between the tiers begins once and ends once: it lands or is lost."
    needs = "copies that take time"

    def on_start(self, worker: Worker, event: Event) -> None:
        self.evaluations += 1
        if event["copy"] in worker.begun:
            self.wrong(worker, event, f"copy {event['copy']} begins", "once", "twice")

    def on_land(self, worker: Worker, event: Event) -> None:
        self._ended(worker, event)

    def on_lose(self, worker: Worker, event: Event) -> None:
        self._ended(worker, event)

    def _ended(self, worker: Worker, event: Event) -> None:
        self.evaluations += 1
        if event["copy"] in worker.over:
            self.wrong(worker, event, f"copy {event['copy']} ends", "once", "twice")

    def ended(self, worker: Worker) -> None:
        """A copy may end before the pass that tells of its begin, which the log may not have any more."""
        last = -1 if worker.iteration is None else worker.iteration
        for number in sorted(number for number, after in worker.over.items() if after <= last):
            if number in worker.begun:
                continue
            message = f"copy {number} ended and never began"
            self.report(worker.name, f"copy {number}", message, "begun", "not")


class Released(RunLaw):
    """REF of owners."""

    code, name = "REF", "released"
    sentence = "An owner is released once, and when the log ends no owner of a request that ended holds anything."
    needs = "releases of owners whose claim is in the log"

    def on_release(self, worker: Worker, event: Event) -> None:
        epoch = worker.owners.get(event["owner"])
        if epoch is None:
            self.undecided += 1
            return
        self.evaluations += 1
        if epoch.released:
            self.wrong(worker, event, "an owner is released", "once", "twice")

    def ended(self, worker: Worker) -> None:
        for owner, epoch in worker.owners.items():
            asked = worker.requests.get(epoch.request)
            if asked is None or not asked.ended:
                continue
            self.evaluations += 1
            if epoch.gone is None:
                message = "a request ended and its owner was never released"
                self.report(worker.name, f"owner {owner}", message, "released", "not")


class AllEnd(RunLaw):
    """PROGRESS."""

    code, name = "PROGRESS", "all-end"
    sentence = "When nothing is in flight any more, every request that was submitted has ended."
    needs = "submissions, or the log stops while rows are in flight"

    def ended(self, worker: Worker) -> None:
        if any(asked.plans for asked in worker.requests.values() if not asked.ended):
            self.undecided += len(worker.requests)
            return
        for request, asked in worker.requests.items():
            self.evaluations += 1
            if not asked.ended:
                message = "a request waits for ever"
                self.report(worker.name, f"request {request}", message, "an end", f"{asked.output} tokens")


class SameDecisions(RunLaw):
    """RANK."""

    code, name = "RANK", "same-decisions"
    sentence = "Workers to which the same requests are submitted are ranks of one engine, and decide alike."
    needs = "several workers with the same requests"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._digests: dict[str, int] = {}

    def _decided(self, worker: Worker, *what: object) -> None:
        name = worker.name
        self._digests[name] = hash((self._digests.get(name), what))

    def on_claim(self, worker: Worker, event: Event) -> None:
        self._decided(worker, event["request"], event["tokens"])

    def on_chunk(self, worker: Worker, event: Event) -> None:
        self._decided(worker, event["iteration"], event["request"], event["start"], event["end"])

    def on_step(self, worker: Worker, event: Event) -> None:
        self._decided(worker, event["iteration"], event["request"], event["width"])

    def closed(self, workers: list[Worker]) -> None:
        for place, worker in enumerate(workers):
            for other in workers[:place]:
                if worker.submitted & other.submitted:
                    self.evaluations += 1
                    if self._digests.get(worker.name) != self._digests.get(other.name):
                        message = f"{worker.name} claims and runs other rows than {other.name}"
                        self.report(worker.name, None, message, "the same decisions", "others")
                    break
