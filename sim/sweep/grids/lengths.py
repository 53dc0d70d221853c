"""Grids over what a hit may look like: lengths, token by token prompts, windows, sinks and lookahead."""

from __future__ import annotations

from itertools import product

from sim.sweep.case import Case, Drive, Step
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, literal, own, said, shared

TO_END = Drive()


def publish_then_read(toy: Toy, common: int, tail: int, rest: int, *, back: int = 0, output: int = 2) -> Case | None:
    """A publisher of ``common + tail`` tokens, then a reader that shares ``common`` and goes on for ``rest``.

    ``back`` > 0: a third request shares ``common - back`` tokens, so that a branch below a branch is read as well;
    -1: it repeats the reader's prompt, and so reads what two publishers wrote.
    """
    if common + tail < 1 or common + rest < 1 or back > common or common + max(tail, rest) > 60:
        return None
    script = [
        ask(0, shared(common), own(0, tail), output=output),
        TO_END,
        ask(1, shared(common), own(1, rest), output=output),
        TO_END,
    ]
    if back < 0:
        script += [ask(2, shared(common), own(1, rest), own(2, 1), output=1), TO_END]
    if back > 0:
        script += [ask(2, shared(common - back), own(2, 1 + rest), output=1), TO_END]
    return Case(toy, tuple(script))


def _lengths(page: int, window: int | None, common: int, tail: int, rest: int, back: int) -> Case | None:
    return publish_then_read(Toy(page=page, window=window), common, tail, rest, back=back)


LENGTHS = Grid(
    "lengths",
    "every prompt length behind every shared length; both prompts part right after the match",
    ("joint_claims", "partial_claims"),
    {
        "page": (2, 4),
        "window": (6,),
        "common": range(1, 13),
        "tail": (0, 3),
        "rest": (0, 1, 2, 4),
        "back": (0,),
    },
    {
        "page": (2, 4, 8),
        "window": (None, 6),
        "common": range(18),
        "tail": (0, 1, 2, 5),
        "rest": (0, 1, 2, 3, 5, 8),
        "back": (0, 1),
    },
    _lengths,
)


def _turns(page: int, kind: str, prompt: int, output: int, repeated: int, rest: int) -> Case | None:
    """A second turn repeats some of the first one's output, which was never published."""
    if repeated > output:
        return None
    toy = Toy(page=page, kind=kind)
    first = ask(0, shared(prompt), output=output, conversation=7)
    second = ask(1, shared(prompt), said(0, repeated), own(1, rest), output=3, conversation=7)
    return Case(toy, (first, TO_END, second, TO_END))


TURNS = Grid(
    "turns",
    "a second turn that repeats any part of the first one's output, which is never published",
    ("joint_claims", "partial_claims"),
    {
        "page": (4,),
        "kind": ("dspark", "mtp"),
        "prompt": range(2, 10),
        "output": (5,),
        "repeated": (1, 3, 5),
        "rest": (1, 2),
    },
    {
        "page": (2, 4),
        "kind": ("dspark", "mtp", "eagle3"),
        "prompt": range(1, 13),
        "output": range(1, 7),
        "repeated": range(1, 7),
        "rest": (1, 4),
    },
    _turns,
)


def _prompts(kind: str, chain: int, first: tuple[int, ...], second: tuple[int, ...]) -> Case:
    """Two prompts over two token ids: they part and agree again anywhere, right behind a page end too."""
    toy = Toy(page=2, kind=kind, chain=chain, drafts=1, window=4, vocabulary=2)
    script: list[Step] = []
    for number, ids in enumerate((first, second, second)):  # the last one reads what both of them published
        script += [ask(number, literal(*ids), output=1), TO_END]
    return Case(toy, tuple(script))


def _strings(*lengths: int) -> list[tuple[int, ...]]:
    return [string for length in lengths for string in product((0, 1), repeat=length)]


def _first_strings(*lengths: int) -> list[tuple[int, ...]]:
    """Those that begin with 0: the two ids may be exchanged for each other."""
    return [string for string in _strings(*lengths) if string[0] == 0]


PROMPTS = Grid(
    "prompts",
    "every pair of prompts over two token ids, the second one twice, at lookahead 0 and 2",
    ("joint_claims", "cached_tokens"),
    {"kind": ("mtp",), "chain": (2,), "first": _first_strings(4), "second": _strings(4)},
    {"kind": ("dspark", "mtp"), "chain": (2,), "first": _first_strings(4, 5), "second": _strings(2, 3, 4, 5)},
    _prompts,
)


def _windows(
    window: int | None, sinks: int, swa: int | None, kind: str, common: int, tail: int, rest: int
) -> Case | None:
    """A long ``tail`` leaves the publisher's window behind, so that the one at the branch has to be made anew."""
    if sinks and window is None:
        return None
    return publish_then_read(Toy(kind=kind, window=window, sinks=sinks, swa=swa), common, tail, rest)


WINDOWS = Grid(
    "windows",
    "drafter windows of none and 1 to 12 tokens, sinks, and a target with a window of its own",
    ("joint_claims", "fresh_claims", "branch_windows"),
    {
        "window": (None, *range(1, 13)),
        "sinks": (0, 4),
        "swa": (None,),
        "kind": ("dspark",),
        "common": (7, 13),
        "tail": (2, 19),
        "rest": (1, 9),
    },
    {
        "window": (None, *range(1, 13)),
        "sinks": (0, 3),
        "swa": (None, 5),
        "kind": ("dspark", "mtp-eagle"),
        "common": (3, 8, 13),
        "tail": (0, 2, 19),
        "rest": (1, 2, 9),
    },
    _windows,
)


def _lookahead(kind: str, chain: int, page: int, drafts: int, common: int, rest: int) -> Case | None:
    if chain > 1 and kind != "mtp":
        return None
    toy = Toy(kind=kind, chain=chain, page=page, drafts=drafts, window=None if kind == "eagle3" else 6)
    return publish_then_read(toy, common, 3, rest, back=-1)


KINDS = ("dflash", "pard", "eagle3", "mtp-eagle", "mtp", "draft-target-one-model", "ngram")

LOOKAHEAD = Grid(
    "lookahead",
    "every drafter kind, lookahead 0 to 3, with prompts that part right after the match",
    ("joint_claims", "partial_claims"),
    {
        "kind": KINDS,
        "chain": (1, 2, 3),
        "page": (4,),
        "drafts": (2,),
        "common": (1, 3, 4, 5, 7, 8, 9),
        "rest": (1, 4),
    },
    {
        "kind": (*KINDS, "dspark"),
        "chain": (1, 2, 3),
        "page": (2, 4, 8),
        "drafts": (0, 1, 3),
        "common": range(1, 14),
        "rest": (0, 1, 4),
    },
    _lookahead,
)
