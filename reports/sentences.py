"""A sentence for each decision of the engine, as ``kvtwin explain`` tells it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]  # of an event, or of a violation

PLAIN: dict[str, str] = {
    "submit": "arrives with a prompt of {prompt:,} tokens, for at most {max_new_tokens:,}",
    "finish": "finished after {output:,} tokens",
    "cancel": "cancelled",
    "suspend": "suspended: gives up the locks on its pages",
    "preempt": "preempted: gives up its pages, its context is {context:,} tokens now",
    "refuse": "finds no pages to go on from {cursor:,}",
    "defer": "waits for the prefix that request {behind} computes",
    "copy": "the first {tokens} tokens of page {source} are copied to page {target} of pool {pool}",
    "move": "page {page} of pool {pool} moves from slot {source} to slot {target}",
    "publish": "page {slot} of pool {pool} is published as block {block}, covering {coverage} tokens",
    "unbind": "row slot {slot} is free",
    "release": "owner {owner} gives back its pages",
}


def sentence(event: Fields, violation: Fields) -> str:
    """What ``event`` says, with an eye on the page of ``violation``; empty for an event that only counts."""
    kind = event["event"]
    if kind in PLAIN:
        return PLAIN[kind].format(**event)
    return _SPOKEN[kind](event, violation) if kind in _SPOKEN else ""


def verify_steps(events: list[Fields]) -> str:
    """Verify steps and settles of one request in a row."""
    steps = sum(event["event"] == "step" for event in events)
    settled = [event for event in events if event["event"] == "settle"]
    committed = sum(event["committed"] for event in settled)
    known = f", {settled[-1]['known']:,} known in the end" if settled else ""
    return f"{steps} verify steps up to iteration {events[-1]['iteration']} commit {committed:,} tokens{known}"


def published(events: list[Fields]) -> str:
    """Pages of one request that are published at once."""
    blocks = [event["block"] for event in events]
    pages = _pages([event["slot"] for event in events])
    return f"{pages} of pool {events[0]['pool']} are published, blocks {min(blocks)} to {max(blocks)}"


def _claim(event: Fields, _: Fields) -> str:
    how = " with a fresh mirror" if event["fresh"] else ""
    branch = f", and keeps the window at {event['branch']:,} as a branch point" if event["branch"] > 0 else ""
    return f"is admitted as owner {event['owner']}, claims {event['tokens']:,} cached tokens{how}{branch}"


def _chunk(event: Fields, _: Fields) -> str:
    last = ", its last chunk" if event["last"] else ""
    return f"prefills [{event['start']:,}, {event['end']:,}) in row slot {event['slot']}{last}"


def _step(event: Fields, _: Fields) -> str:
    drafts = "" if event["real_drafts"] else ", on placeholders"
    return f"verify step of {event['width']} tokens in row slot {event['slot']}{drafts}"


def _settle(event: Fields, _: Fields) -> str:
    return f"commits {event['committed']} tokens, {event['known']:,} known" if event["committed"] else ""


def _skip(event: Fields, _: Fields) -> str:
    return f"the forward pass {'fails' if event['failed'] else 'is not queued'}: its growth is taken back"


def _grant(event: Fields, violation: Fields) -> str:
    slots = event["slots"]
    page = violation["page"] if event["pool"] == violation["pool"] else None
    among = f", page {page} among them" if page in slots and len(slots) > 1 else ""
    return f"owner {event['owner']} is granted {_pages(slots)} of pool {event['pool']}{among}; what was there is void"


def _bind(event: Fields, _: Fields) -> str:
    drafter = f"the drafter's base is page {event['base']}, its length {event['draft_length']:,}"
    return f"owner {event['owner']} is bound to row slot {event['slot']} at {event['length']:,} tokens; {drafter}"


def _pages(slots: list[int]) -> str:
    if len(slots) == 1:
        return f"page {slots[0]}"
    return f"pages {', '.join(map(str, slots))}" if len(slots) <= 6 else f"{len(slots)} pages"


_SPOKEN: dict[str, Callable[[Fields, Fields], str]] = {
    "claim": _claim,
    "chunk": _chunk,
    "step": _step,
    "settle": _settle,
    "skip": _skip,
    "grant": _grant,
    "bind": _bind,
}
