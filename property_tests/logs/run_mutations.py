"""Ways to spoil kvtwin's own event log, each with the law that has to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Event = dict[str, Any]
Log = list[Event]
Mutation = Callable[[Log, int], Log | None]
UNWRITTEN = "3ad0000000000001"  # of a cell that nobody wrote, in the 63 bits that a log keeps


def _changed(**fields: Any) -> Mutation:
    """The event with other fields; a callable is applied to the old value."""

    def change(log: Log, place: int) -> Log:
        event = log[place]
        new = {name: value(event[name]) if callable(value) else value for name, value in fields.items()}
        return [*log[:place], {**event, **new}, *log[place + 1 :]]

    return change


def _dropped(log: Log, place: int) -> Log:
    return log[:place] + log[place + 1 :]


def _twice(log: Log, place: int) -> Log:
    return [*log[: place + 1], dict(log[place]), *log[place + 1 :]]


def _dropped_between(log: Log, place: int) -> Log | None:
    """An iteration that is neither the first nor the last one of its worker."""
    same = [n for n, e in enumerate(log) if e["event"] == "iteration" and e.get("worker") == log[place].get("worker")]
    return _dropped(log, place) if place not in (same[0], same[-1]) else None


def _given_later(log: Log, place: int) -> Log | None:
    """A grant to the same owner long after its release."""
    owner, worker = log[place]["owner"], log[place].get("worker")
    grant = next((e for e in log if e["event"] == "grant" and (e["owner"], e.get("worker")) == (owner, worker)), None)
    return None if grant is None else [*log, {**grant, "iteration": log[place]["iteration"] + 100}]


def _bound_to_another(log: Log, place: int) -> Log | None:
    """The row slot goes to another running owner while the first one has it."""
    first = log[place]
    for event in log[place + 1 :]:
        if event["event"] in ("release", "preempt", "unbind"):
            return None
        if event["event"] == "bind" and event.get("worker") == first.get("worker") and event["slot"] != first["slot"]:
            return [*log[: log.index(event)], {**event, "slot": first["slot"]}, *log[log.index(event) + 1 :]]
    return None


def _published_early(log: Log, place: int) -> Log | None:
    return _changed(block=lambda block: block + 1000)(log, place)


def _granted_twice_at_once(log: Log, place: int) -> Log | None:
    slots = log[place]["slots"]
    return _changed(slots=[*slots[:-1], slots[0]])(log, place) if len(slots) > 1 else None


def _never_ends(log: Log, place: int) -> Log | None:
    """A request that nobody serves."""
    return _changed(request=77_777)(_twice(log, place), place)


def _wide(log: Log, place: int) -> Log | None:
    return _changed(committed=lambda count: count + 40, known=lambda known: known + 40)(log, place)


def _settled_on(log: Log, place: int) -> Log | None:
    """A settled row is dropped, of a request that goes on."""
    goes_on = any(_of(event, log[place], "settle", "finish") for event in log[place + 1 :])
    return _dropped(log, place) if goes_on else None


def _before_the_end(mutation: Mutation) -> Mutation:
    """What a memory does, where a later pass follows: what comes last may be told without a decision."""

    def change(log: Log, place: int) -> Log | None:
        worker = log[place].get("worker")
        later = [event for event in log[place + 1 :] if event["event"] == "mem_step" and event.get("worker") == worker]
        return mutation(log, place) if any(event["iteration"] > log[place]["iteration"] for event in later) else None

    return change


def _chunk_before_more(log: Log, place: int) -> Log | None:
    """A chunk is dropped that a row of the same epoch follows."""
    for event in log[place + 1 :]:
        if _of(event, log[place], "chunk", "step"):
            return _dropped(log, place)
        if _of(event, log[place], "preempt", "settle"):
            return None
    return None


def _only_chunk(log: Log, place: int) -> Log | None:
    """The last chunk of a request is dropped, whose token settles before anything else is dispatched for it."""
    kinds = ("chunk", "step", "settle", "preempt", "cancel")
    after = next((event for event in log[place + 1 :] if _of(event, log[place], *kinds)), None)
    return _dropped(log, place) if after is not None and after["event"] == "settle" else None


def _claimed_here(log: Log, place: int) -> Log | None:
    """A claim is dropped that does not repeat what a worker was sent."""
    return None if any(_of(event, log[place], "send") for event in log) else _dropped(log, place)


def _released_at_the_end(log: Log, place: int) -> Log | None:
    """The release of a request that finished is dropped."""
    before = log[place - 1]
    return _dropped(log, place) if before["event"] in ("finish", "cancel") else None


def _never_set_back(mutation: Mutation) -> Mutation:
    """In a log where no row becomes void."""

    def change(log: Log, place: int) -> Log | None:
        return None if any(event["event"] in ("preempt", "cancel") for event in log) else mutation(log, place)

    return change


def _without_copies(mutation: Mutation) -> Mutation:
    """In a log without copies that take time."""

    def change(log: Log, place: int) -> Log | None:
        return None if any(event["event"] == "start" for event in log) else mutation(log, place)

    return change


def _as_written(mutation: Mutation) -> Mutation:
    """Where a row of the target ended with just that content, of a log whose pages are known by then."""

    def change(log: Log, place: int) -> Log | None:
        event = log[place]
        worker = event.get("worker")
        rows = [one for one in log[:place] if one["event"] in ("mem_chunk", "mem_step") and one.get("worker") == worker]
        left = {one["tag"] if "tag" in one else one["tags"][0] for one in rows}
        known = sum(one["event"] == "publish" and one.get("worker") == worker for one in log[:place]) > 8
        return mutation(log, place) if event["pool"] == "target" and event["tag"] in left and known else None

    return change


def _of(event: Event, like: Event, *kinds: str) -> bool:
    same = event.get("request") == like["request"] and event.get("worker") == like.get("worker")
    return same and event["event"] in kinds


# what is spoilt: which events, how, and the law that notices
MUTATIONS: dict[str, tuple[str, Mutation, str]] = {
    "a pass is missing": ("iteration", _dropped_between, "numbers"),
    "a chunk is missing": ("chunk", _chunk_before_more, "prefill"),
    "the last chunk is missing": ("chunk", _only_chunk, "widths"),
    "a chunk starts too late": ("chunk", _changed(start=lambda start: start + 1), "prefill"),
    "a chunk ends too far": ("chunk", _changed(end=lambda end: end + 5000), "prefill"),
    "a last chunk is none": ("chunk", _changed(last=lambda last: 1 - last), "prefill"),
    "a claim is all there is": ("claim", _changed(tokens=1_000_000), "prefill"),
    "a claim is missing": ("claim", _claimed_here, "prefill"),
    "a settled row is missing": ("settle", _settled_on, "settled"),
    "more is known than was committed": ("settle", _changed(known=lambda known: known + 1), "settled"),
    "an output is longer than it was": ("finish", _changed(output=lambda output: output + 1), "settled"),
    "a row commits more than its width": ("settle", _wide, "widths"),
    "a row uses another one's slot": ("step", _changed(slot=lambda slot: slot + 1), "row-slots"),
    "a chunk uses another one's slot": ("chunk", _changed(slot=lambda slot: slot + 1), "row-slots"),
    "two owners have one row slot": ("bind", _bound_to_another, "row-slots"),
    "an owner that is gone gets pages": ("release", _given_later, "live-owners"),
    "a page is granted twice at once": ("grant", _granted_twice_at_once, "live-owners"),
    "a page of nobody is published": ("publish", _changed(slot=99_999), "own-pages"),
    "a block is published early": ("publish", _published_early, "written"),
    "a copy lands twice": ("land", _twice, "copies"),
    "a copy begins twice": ("start", _twice, "copies"),
    "a copy lands that never began": ("land", _changed(copy=88_888), "copies"),
    "an owner is released twice": ("release", _twice, "released"),
    "an owner is never released": ("release", _released_at_the_end, "released"),
    "a request is never served": ("submit", _never_ends, "all-end"),
    "the memory grants other pages": ("mem_grant", _changed(slots=lambda slots: slots[1:]), "memory-follows"),
    "the memory grants twice": ("mem_grant", _before_the_end(_twice), "memory-follows"),
    "the memory copies fewer tokens": ("mem_copy", _changed(tokens=lambda tokens: tokens - 1), "memory-follows"),
    "the memory publishes less": ("mem_publish", _before_the_end(_changed(coverage=0)), "memory-follows"),
    "the memory binds another base": ("mem_bind", _changed(base=lambda base: base + 1), "memory-follows"),
    "the memory leaves a chunk out": ("mem_chunk", _never_set_back(_before_the_end(_dropped)), "memory-follows"),
    "a slot grows too far": ("mem_step", _changed(position=lambda position: position + 1), "positions"),
    "a page is published unwritten": ("mem_publish", _without_copies(_changed(tag=UNWRITTEN)), "final"),
    "a page is published with other content": ("mem_publish", _as_written(_changed(tag="5a5a")), "as-written"),
    "a rank decides alone": ("claim", _changed(tokens=lambda tokens: tokens + 1), "same-decisions"),
}
