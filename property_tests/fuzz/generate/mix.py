"""How often a generated program has what: one mix of surroundings, shifted by the rules under test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from model.config import PublishPolicy

WORKERS = ("", "attention_dp", "tensor_parallel", "disaggregated")
REUSE = ("fresh", "part", "repeat", "turn")
SLOTTED = (("dspark", 4), ("dflash", 3))
CHAINS = (("eagle3", 3), ("mtp", 3), ("mtp-eagle", 1))
OTHERS = (("pard", 2), ("draft-target-one-model", 1), ("ngram", 1))


@dataclass(frozen=True, slots=True)
class Mix:
    """Weights and chances (in percent) of one population of programs.

    ``workers``: weights of :data:`WORKERS`. ``reuse``: how a prompt relates to those before it, weights of
    :data:`REUSE`. ``host``: a tier below the device; ``copies``: changes of tier take time then. ``memory``: pools
    are split from bytes. ``warmup``: several workers, or one with graphs, warm up. ``gate``: ranks have a benchmark
    gate. ``tight``: pools are at most a few pages above what the largest request needs. ``short``: that one does not
    fit. ``requests``: how many there are. ``brink``: the length limit is that of the longest request. ``scopes``:
    requests differ in what a page depends on beside its tokens. ``calm``: no disturbance at all. ``plain``: a request
    runs without drafts. ``children``: siblings among which no match ends inside a page. ``sinks``: pages of sinks of a
    windowed drafter. ``parting``: where a prompt leaves another one (a page end, inside a page, at its end, at its own
    seam: where that one left a third). ``layers``: the target has a windowed layer, too. ``chatty``: outputs are long.
    ``realistic``: pages of 128 tokens and prompts of thousands. ``stirred``: disturbances that are always frequent.
    """

    workers: tuple[int, ...] = (12, 2, 2, 3)
    kinds: tuple[tuple[str, int], ...] = (*SLOTTED, *CHAINS, *OTHERS)
    policies: tuple[tuple[PublishPolicy, int], ...] = (
        (PublishPolicy.ALL_REUSABLE, 6),
        (PublishPolicy.PER_REQUEST, 2),
        (PublishPolicy.PER_CONVERSATION, 2),
        (PublishPolicy.NONE, 1),
    )
    reuse: tuple[int, ...] = (2, 4, 2, 2)
    windowless: int = 25
    host: int = 25
    copies: int = 55
    memory: int = 4
    warmup: int = 25
    graphs: int = 30
    gate: int = 25
    tight: int = 70
    short: int = 8
    requests: tuple[int, ...] = (3, 2, 4, 3, 5, 6)
    brink: int = 15
    scopes: int = 12
    calm: int = 20
    plain: int = 8
    children: tuple[int, ...] = (32, 32, 32, 2)
    sinks: tuple[int, ...] = (0, 0, 0, 1)
    parting: tuple[int, ...] = (5, 3, 2, 0)
    layers: int = 35
    chatty: int = 30
    run_ahead: int = 75
    realistic: int = 0
    stirred: tuple[str, ...] = ()


_HITS = {"reuse": (1, 6, 3, 2)}
_PAIRS = {"workers": (2, 0, 0, 10), "stirred": ("abort",)}
_RANKS = {"workers": (0, 4, 8, 0), "host": 70, "stirred": ("shrink",), **_HITS}
_FLEETS = {"workers": (5, 10, 0, 0), "warmup": 60, "graphs": 70}
_SHORT = {"tight": 92, "chatty": 50, "requests": (4, 3, 5, 6)}
# Managers whose matches end in different places: prompts that part inside a page, some of them in one tree alone.
_APART = {"plain": 15, "children": (32, 2), "sinks": (0, 1), "parting": (5, 3, 2, 3)}

FOCUS: dict[str, dict[str, Any]] = {
    "accounting": {**_HITS, **_SHORT, "host": 75, "copies": 75, "stirred": ("lose",)},
    "admission": {
        **_SHORT,
        **_APART,
        "workers": (10, 4, 1, 2),
        "gate": 40,
        "short": 25,
        "layers": 60,
        "windowless": 10,
    },
    "budget": {"memory": 85, "workers": (12, 1, 1, 1)},
    "claim": {**_HITS, "windowless": 10},
    "columns": {"brink": 70},
    "copy": _HITS,
    "dummy": _FLEETS,
    "epoch": {**_SHORT, "stirred": ("suspend",)},
    "index": _HITS,
    "keys": {**_HITS, "kinds": (*SLOTTED, ("eagle3", 6), ("mtp", 6), *OTHERS)},
    "lookup": {"kinds": (("ngram", 10), *SLOTTED)},
    "offload": {"workers": (12, 0, 0, 1), "host": 95, "copies": 80, "stirred": ("lose",), **_HITS, **_SHORT},
    "padding": {**_FLEETS, "workers": (10, 8, 0, 0), "graphs": 90},
    "pairing": {"kinds": (("draft-target-one-model", 8), *SLOTTED, *CHAINS), **_HITS},
    "prune": {**_HITS, "layers": 80, "windowless": 10},
    "publish": {
        **_HITS,
        "windowless": 8,
        "policies": ((PublishPolicy.ALL_REUSABLE, 4), (PublishPolicy.PER_REQUEST, 1)),
    },
    "ranks": _RANKS,
    "rebase": {"kinds": SLOTTED, **_HITS},
    "retention": {"windowless": 5, "chatty": 60},
    "scope": {**_HITS, "scopes": 80},
    "slots": {"kinds": SLOTTED, **_HITS},
    "suspension": _SHORT,
    "transfer": _PAIRS,
    "victim": _SHORT,
}


def mix_for(focus: Iterable[str], mix: Mix | None = None) -> Mix:
    """The mix for programs that look at the rules of ``focus``; one that is not named here needs nothing special."""
    mix = mix or Mix()
    for rule in focus:
        mix = replace(mix, **FOCUS.get(rule, {}))
    return mix
