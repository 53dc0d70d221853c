"""What kvtwin's own event log says so far of one worker: requests, epochs, row slots, pages and copies in flight."""

from __future__ import annotations

from collections import deque
from typing import Any

Event = dict[str, Any]


class Asked:
    """A request: what it asked for, what it has, and its epoch (a claim and all that follows until it is set back).

    ``limit`` is -1 where nobody told the request of a worker that receives it.
    """

    __slots__ = ("cursor", "ended", "goal", "known", "limit", "output", "owner", "plans", "prompt")

    def __init__(self, prompt: int, limit: int) -> None:
        self.prompt, self.limit = prompt, limit
        self.known = prompt  # tokens that are known: the prompt and what was settled of the output
        self.goal = prompt  # tokens that its context has in this epoch
        self.cursor: int | None = None  # where its next chunk starts; None before a claim
        self.owner = -1
        self.plans: deque[int] = deque()  # widths of its dispatched rows that are not settled; 1 for a last chunk
        self.output = 0
        self.ended = False


class Epoch:
    """An owner: whose it is, how far it wrote, and whether its pages were released."""

    __slots__ = ("gone", "position", "released", "request", "void", "written")

    def __init__(self, request: int, written: int) -> None:
        self.request = request
        self.written = written  # tokens that dispatched rows computed or that it claimed
        self.position: int | None = None  # length of its row slot after the last step in the memory
        self.gone: int | None = None  # the pass in which it was told to have gone
        self.released = False
        self.void = False  # set back or cancelled: its rows in flight do nothing


class Worker:
    """The ledger of one worker."""

    def __init__(self, name: str, prompts: dict[int, tuple[int, int]]) -> None:
        self.name = name
        self.prompts = prompts  # request -> prompt and limit, of all workers
        self.submitted: set[int] = set()
        self.requests: dict[int, Asked] = {}
        self.owners: dict[int, Epoch] = {}
        self.current: dict[int, int] = {}  # request -> owner
        self.slots: dict[int, int] = {}  # row slot -> owner
        self.tenants: dict[tuple[str, int], int] = {}  # (pool, slot) -> owner of its last grant
        self.begun: set[int] = set()  # copies between the tiers
        self.over: dict[int, int] = {}  # and the pass that comes next
        self.iteration: int | None = None
        self.page: dict[str, int] = {}  # tokens of the largest publication of each pool: a page, or less
        self.chunks = self.chunk_tokens = self.steps = self.iterations = self.outputs = 0
        self.finished = self.cancelled = self.preempted = self.skipped = self.failed = self.landed = self.lost = 0
        self.deferred = self.dummies = 0
        self.prefilled: dict[int, int] = {}  # request -> tokens of its chunks

    def asked(self, event: Event) -> Asked | None:
        """The request of an event."""
        return self.requests.get(event["request"])

    # -- how events change it; laws have looked before -------------------------------------------------------------

    def on_submit(self, event: Event) -> None:
        request = event["request"]
        self.requests[request] = Asked(event["prompt"], event["max_new_tokens"])
        self.prompts[request] = event["prompt"], event["max_new_tokens"]
        self.submitted.add(request)
        self.prefilled.pop(request, None)  # an id that is used again names another request

    def on_claim(self, event: Event) -> None:
        request = event["request"]
        asked = self.requests.get(request)
        self.current[request] = event["owner"]
        if event["owner"] in self.owners:
            return  # it was sent here, with its context
        self.owners[event["owner"]] = Epoch(request, event["tokens"])
        if asked is not None:
            asked.owner, asked.cursor = event["owner"], event["tokens"]
            asked.goal = asked.known
            asked.plans.clear()

    def on_send(self, event: Event) -> None:
        """On the decode worker: a request comes with its context up to ``position``."""
        request, position = event["request"], event["position"]
        self.owners[event["owner"]] = Epoch(request, position)
        self.current[request] = event["owner"]
        asked = self.requests[request] = Asked(*self.prompts.get(request, (position, -1)))
        asked.owner = event["owner"]
        asked.known = asked.goal = asked.cursor = position + 1  # with the token that the prefill worker sampled

    def on_abort(self, event: Event) -> None:
        epoch = self.owners.get(event["owner"])
        if epoch is not None:
            epoch.gone = event["iteration"]

    def on_grant(self, event: Event) -> None:
        owner, pool, tenants = event["owner"], event["pool"], self.tenants
        for slot in event["slots"]:
            tenants[pool, slot] = owner

    def on_move(self, event: Event) -> None:
        """A page changes tiers: whose it is goes along."""
        owner = self.tenants.get((event["pool"], event["source"]))
        if owner is not None:
            self.tenants[event["pool"], event["target"]] = owner

    def on_start(self, event: Event) -> None:
        self.on_move(event)
        self.begun.add(event["copy"])

    def on_land(self, event: Event) -> None:
        self.over[event["copy"]] = event["iteration"]
        self.landed += 1

    def on_lose(self, event: Event) -> None:
        self.over[event["copy"]] = event["iteration"]
        self.lost += 1

    def on_publish(self, event: Event) -> None:
        pool, coverage = event["pool"], event["coverage"]
        if coverage > self.page.get(pool, 0):
            self.page[pool] = coverage

    def on_bind(self, event: Event) -> None:
        self.slots[event["slot"]] = event["owner"]

    def on_unbind(self, event: Event) -> None:
        self.slots.pop(event["slot"], None)

    def on_iteration(self, event: Event) -> None:
        self.iteration = event["iteration"]
        self.iterations += 1

    def on_skip(self, event: Event) -> None:
        self.failed += event["failed"]
        self.skipped += not event["failed"]

    def on_defer(self, event: Event) -> None:
        self.deferred += 1

    def on_dummy(self, event: Event) -> None:
        self.dummies += 1

    def on_chunk(self, event: Event) -> None:
        request, count = event["request"], event["end"] - event["start"]
        self.chunks += 1
        self.chunk_tokens += count
        self.prefilled[request] = self.prefilled.get(request, 0) + count
        epoch = self.owners.get(self.current.get(request, -1))
        if epoch is not None and event["end"] > epoch.written:
            epoch.written = event["end"]
        asked = self.requests.get(request)
        if asked is None:
            return
        asked.cursor = event["end"]
        if event["last"]:
            asked.plans.append(1)

    def on_step(self, event: Event) -> None:
        self.steps += 1
        asked = self.requests.get(event["request"])
        if asked is not None:
            asked.plans.append(event["width"] if event["real_drafts"] else 1)

    def on_settle(self, event: Event) -> None:
        request, known = event["request"], event["known"]
        epoch = self.owners.get(self.current.get(request, -1))
        if epoch is not None and known > epoch.written:
            epoch.written = known
        asked = self.requests.get(request)
        if asked is None:
            return
        if asked.plans:
            asked.plans.popleft()
        gained = known - asked.known
        asked.known = known
        asked.output += gained
        self.outputs += gained

    def on_finish(self, event: Event) -> None:
        self.finished += 1
        asked = self.requests.get(event["request"])
        if asked is not None:
            asked.ended = True

    def on_cancel(self, event: Event) -> None:
        self.cancelled += 1
        asked = self.requests.get(event["request"])
        if asked is not None:
            asked.ended = True
            epoch = self.owners.get(asked.owner)
            if epoch is not None:
                epoch.void = True

    def on_preempt(self, event: Event) -> None:
        self.preempted += 1
        asked = self.requests.get(event["request"])
        if asked is not None:
            asked.cursor = None
            asked.plans.clear()
            epoch = self.owners.get(asked.owner)
            if epoch is not None:
                epoch.gone, epoch.void = event["iteration"], True

    def on_release(self, event: Event) -> None:
        epoch = self.owners.get(event["owner"])
        if epoch is not None:
            epoch.gone, epoch.released = event["iteration"], True
            asked = self.requests.get(epoch.request)
            if asked is not None and asked.cursor is not None and asked.owner == event["owner"]:
                asked.ended = True  # it finished, was cancelled, or went to another worker

    def on_mem_step(self, event: Event) -> None:
        epoch = self.owners.get(event["owner"])
        if epoch is not None:
            epoch.position = event["position"]
