"""Small worlds for the tests of the naive oracle: pages of 4 tokens, token i of a prompt is i unless said."""

from __future__ import annotations

from property_tests.fuzz import oracle
from property_tests.fuzz.oracle_records import Claimed, Group, Published, Record, Rule, World

TARGET = Group("target", "target")


def world(window: int | None = 8, **kinds: int | bool) -> World:
    """Full attention in the target, one draft group with ``window``; ``lookahead`` and the kinds of a world by name."""
    draft = Group("draft", "draft", window, lookahead=int(kinds.pop("lookahead", 0)))
    return World(4, (TARGET, draft), **{name: bool(value) for name, value in kinds.items()})


def prompt(length: int, shared: int | None = None, tail: int = 100) -> tuple[int, ...]:
    """``length`` tokens, the first ``shared`` of them 0, 1, 2..., the others ``tail``, ``tail`` + 1..."""
    shared = length if shared is None else shared
    return (*range(shared), *range(tail, tail + length - shared))


def pages(group: Group, tokens: tuple[int, ...], start: int, stop: int, owner: str = "A") -> list[Record]:
    """The pages of ``owner`` that hold the positions from ``start`` (on a page) to ``stop`` of ``tokens``."""
    records: list[Record] = []
    for first in range(start, stop, 4):
        end = min(first + 4, stop)
        name, known = ord(owner) * 1000 + first // 4, tokens[: end + group.lookahead]
        records.append(Published(owner, group.name, name, 0, first, end - first, known, "base"))
    return records


def both(kind: World, tokens: tuple[int, ...], stop: int, draft_from: int = 0, owner: str = "A") -> list[Record]:
    """Target pages up to ``stop``, draft pages from ``draft_from`` to ``stop``."""
    target, draft = kind.groups
    return [*pages(target, tokens, 0, stop, owner), *pages(draft, tokens, draft_from, stop, owner)]


def claim(tokens: tuple[int, ...], depth: int, draft: int | None = None) -> Claimed:
    """A claim of request B with draft pages, unless ``draft`` says how far."""
    return Claimed("B", tokens, "base", depth, depth if draft is None else draft)


def deepest(kind: World, rule: Rule, history: list[Record], tokens: tuple[int, ...], spare: int = 0) -> int:
    """The deepest legal depth."""
    return oracle.claimable(kind, rule, history, tokens, "base", spare)[0]


def promise(kind: World, rule: Rule, history: list[Record], tokens: tuple[int, ...]) -> int:
    """The depth that must be reached."""
    return oracle.promised(kind, rule, oracle.view(kind, history, claim(tokens, 0)))
