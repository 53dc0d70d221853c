"""A sentence for each decision of the engine, as ``kvtwin explain`` tells it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]  # of an event, or of a violation

PLAIN: dict[str, str] = {
    "dummy": "a dummy, owner {owner}, runs along in row slot {slot} from position {position}",
    "padding": "rows added up to the batch size of a captured graph: {rows}",
    "cancel": "cancelled",
    "refuse": "finds no pages to go on from {cursor:,}",
    "defer": "waits for the prefix that request {behind} computes",
    "move": "page {page} of pool {pool} moves from slot {source} to slot {target}",
    "send": "its transfer begins: owner {owner} is to go on at {position:,}, of which {claim:,} are cached here",
    "arrive": "its transfer to owner {owner} has arrived",
    "abort": "its transfer to owner {owner} is lost",
    "unbind": "row slot {slot} is free",
    "release": "owner {owner} gives back its pages",
}


def sentence(event: Fields, violation: Fields) -> str:
    """What ``event`` says, with an eye on the page of ``violation``; empty for an event that only counts."""
    kind = event["event"]
    if kind in PLAIN:
        return PLAIN[kind].format(**event)
    return _SPOKEN[kind](event, violation) if kind in _SPOKEN else ""


def decoding(events: list[Fields]) -> str:
    """Verify steps of one request in a row, with what they commit, and the pages that come and go with them."""
    kinds = Counter(event["event"] for event in events)
    settled = [event for event in events if event["event"] == "settle"]
    committed = sum(event["committed"] for event in settled)
    told = f"{count(kinds['step'], 'verify step')} up to iteration {events[-1]['iteration']}"
    if settled:
        told += f"; {count(committed, 'token')} committed, {settled[-1]['known']:,} known in the end"
    pages: Counter[str] = Counter()
    for event in events:
        if event["event"] == "grant":
            pages[event["pool"]] += len(event["slots"])
    if pages:
        told += "; granted " + " and ".join(f"{count(pages[pool], 'page')} of pool {pool}" for pool in pages)
    if kinds["publish"]:
        told += f"; {count(kinds['publish'], 'page')} published"
    return told + (f"; {count(kinds['skip'], 'forward pass', 'es')} not run" if kinds["skip"] else "")


def granted(events: list[Fields], violation: Fields) -> str:
    """Pages that one owner is granted in one iteration, pool by pool; several grants stand in their order."""
    parts = []
    for pool in dict.fromkeys(event["pool"] for event in events):
        grants = [event["slots"] for event in events if event["pool"] == pool]
        slots = [slot for grant in grants for slot in grant]
        pages = _pages(slots) if len(grants) == 1 else f"page {', then '.join(_bare(grant) for grant in grants)}"
        parts.append(f"{pages} of pool {pool}{_among(slots, pool, violation)}")
    return f"owner {events[0]['owner']} is granted {' and '.join(parts)}; what was there is void"


def published(events: list[Fields], violation: Fields) -> str:
    """Pages of one request that are published in one iteration, pool by pool."""
    parts = []
    for pool in dict.fromkeys(event["pool"] for event in events):
        of_pool = [event for event in events if event["pool"] == pool]
        slots, blocks = [event["slot"] for event in of_pool], [event["block"] for event in of_pool]
        place = f"blocks {min(blocks)} to {max(blocks)}"
        if len(of_pool) == 1:
            place = f"block {blocks[0]}, covering {count(of_pool[0]['coverage'], 'token')}"
        parts.append(f"{_pages(slots)} of pool {pool}{_among(slots, pool, violation)} as {place}")
    return f"published: {'; '.join(parts)}"


def count(number: int, noun: str, plural: str = "s") -> str:
    """``3 tokens``, ``1 token``."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _submit(event: Fields, _: Fields) -> str:
    return f"arrives with a prompt of {count(event['prompt'], 'token')}, for at most {event['max_new_tokens']:,}"


def _finish(event: Fields, _: Fields) -> str:
    return f"finished after {count(event['output'], 'token')}"


def _iteration(event: Fields, _: Fields) -> str:
    return f"the pass schedules {count(event['chunks'], 'chunk')} and {count(event['steps'], 'verify step')}"


def _copy(event: Fields, _: Fields) -> str:
    what, are = ("token", "is") if event["tokens"] == 1 else (f"{event['tokens']} tokens", "are")
    place = f"page {event['target']} of pool {event['pool']}"
    return f"the first {what} of page {event['source']} {are} copied to {place}"


def _claim(event: Fields, _: Fields) -> str:
    how = " with a fresh mirror" if event["fresh"] else ""
    branch = f", and keeps the window at {event['branch']:,} as a branch point" if event["branch"] > 0 else ""
    return f"is admitted as owner {event['owner']}, claims {count(event['tokens'], 'cached token')}{how}{branch}"


def _chunk(event: Fields, violation: Fields) -> str:
    size = f", {count(event['end'] - event['start'], 'token')}" if violation["request"] is None else ""
    last = ", its last chunk" if event["last"] else ""
    return f"prefills [{event['start']:,}, {event['end']:,}) in row slot {event['slot']}{size}{last}"


def _step(event: Fields, _: Fields) -> str:
    drafts = "" if event["real_drafts"] else ", on placeholders"
    return f"verify step of {count(event['width'], 'token')} in row slot {event['slot']}{drafts}"


def _settle(event: Fields, _: Fields) -> str:
    committed = event["committed"]
    return f"commits {count(committed, 'token')}, {event['known']:,} known" if committed else ""


def _skip(event: Fields, _: Fields) -> str:
    if event["failed"]:
        return "the forward pass of this iteration fails: the growth it was given is to be taken back"
    return "the forward pass is allocated but not queued, so skipped: the growth it was given is to be taken back"


def _grant(event: Fields, violation: Fields) -> str:
    return granted([event], violation)


def _publish(event: Fields, violation: Fields) -> str:
    return published([event], violation)


def _suspend(event: Fields, violation: Fields) -> str:
    if event["iteration"] == violation["step"] and violation["code"] == "REF":
        gone = re.findall(r"(\w+) suspended", violation["found"])
        kept = re.findall(r"(\w+) active", violation["found"])
        if gone and kept:
            return f"suspended: the {gone[0]} pool gives up its locks, the {kept[0]} pool keeps them"
    return "suspended: gives up the locks on its pages"


def _preempt(event: Fields, _: Fields) -> str:
    told = f"preempted: gives up its pages, its context is {count(event['context'], 'token')} now"
    if "becomes" in event:
        told += f"; it is owner {event['becomes']} from here on, admitted again in iteration {event['again']}"
    return told


def _evict(event: Fields, violation: Fields) -> str:
    pages = event["page"]
    return f"{_pages(pages)} of pool {event['pool']}{_among(pages, event['pool'], violation)}: evicted from the cache"


def _bind(event: Fields, _: Fields) -> str:
    place = f"row slot {event['slot']} at {count(event['length'], 'token')}"
    drafter = f"the drafter's base is page {event['base']}, its length {event['draft_length']:,}"
    return f"owner {event['owner']} is bound to {place}; {drafter}"


def _left(event: Fields, violation: Fields) -> str:
    """The last step that covered the position of a cell which holds no content."""
    end, position = event["draft_length" if event["drafter"] else "position"], violation["position"]
    begin = end - event["committed"]
    told = f"the step of iteration {event['iteration']} commits [{begin:,}, {end:,})"
    if position < end:
        return f"{told}: position {position:,} is accepted, but its cell is left as the draft it was"
    return f"{told} and leaves drafts behind it, in the cell of position {position:,} too"


def _among(slots: list[int], pool: str, violation: Fields) -> str:
    page = violation["page"] if pool == violation["pool"] else None
    return f" (page {page} among them)" if page in slots and len(slots) > 1 else ""


def _pages(slots: list[int]) -> str:
    if len(slots) > 6:
        return f"{len(slots)} pages"
    return f"page{'' if len(slots) == 1 else 's'} {_bare(slots)}"


def _bare(slots: list[int]) -> str:
    return ", ".join(map(str, slots))


_SPOKEN: dict[str, Callable[[Fields, Fields], str]] = {
    "submit": _submit,
    "finish": _finish,
    "iteration": _iteration,
    "copy": _copy,
    "claim": _claim,
    "chunk": _chunk,
    "step": _step,
    "settle": _settle,
    "skip": _skip,
    "grant": _grant,
    "publish": _publish,
    "suspend": _suspend,
    "preempt": _preempt,
    "evict": _evict,
    "bind": _bind,
    "mem_step": _left,
}
