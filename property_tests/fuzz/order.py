"""What a campaign was asked to do: plain values that travel to a worker process."""

from __future__ import annotations

from dataclasses import dataclass

DRIVERS = ("swarm", "bytes", "machine")
MACHINES = ("cache", "engine", "sim")
PROFILES = ("quick", "nightly", "deep")
SHRUNK = 3  # failures of one law on one build that are shrunk and told apart: more of them are counted


@dataclass(frozen=True, slots=True)
class Order:
    """One campaign. ``builds`` are texts that name a build (``sim.rulespec``), taken in rotation, example by example.

    ``driver`` is one of :data:`DRIVERS`, ``machine`` the layer that it drives, one of :data:`MACHINES`; ``seed`` starts
    the numbering of the examples; ``focus`` names the rules under test, whose surroundings are generated more often.
    ``database`` is where the machines keep failing examples (a folder, or ``redis://...``); it decides nothing else.
    """

    builds: tuple[str, ...]
    driver: str = "swarm"
    machine: str = "engine"
    profile: str = "quick"
    seed: int = 0
    focus: tuple[str, ...] = ()
    database: str = ""
