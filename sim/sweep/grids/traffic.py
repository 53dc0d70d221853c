"""Grid over who drafts: requests with and without the drafter beside each other, on one prefix."""

from __future__ import annotations

from itertools import product

from sim.sweep.case import Case, Drive, Step
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, own, shared

TO_END = Drive()


def _traffic(kind: str, window: int | None, who: tuple[bool, ...], common: int, rest: int, together: bool) -> Case:
    """Requests on one prefix, those that ``who`` says with the drafter; one after the other or all at once."""
    toy = Toy(kind=kind, chain=2, window=window, budget=11)
    script: list[Step] = []
    for number, drafts in enumerate(who):
        script.append(ask(number, shared(common), own(number, rest), output=4, drafts=drafts))
        script.append(Drive(2) if together else TO_END)
    return Case(toy, (*script, TO_END))


TRAFFIC = Grid(
    "traffic",
    "requests with and without the drafter on one prefix, in every order, one by one and together",
    ("joint_claims", "fresh_claims"),
    {
        "kind": ("dspark", "mtp"),
        "window": (6,),
        "who": [who for who in product((True, False), repeat=3) if not all(who)],
        "common": (5,),
        "rest": (1, 9),
        "together": (False, True),
    },
    {
        "kind": ("dspark", "mtp", "eagle3", "pard", "draft-target-one-model"),
        "window": (None, 3, 6),
        "who": [who for who in product((True, False), repeat=4) if not all(who)],
        "common": (4, 5, 8, 11),
        "rest": (1, 4, 9),
        "together": (False, True),
    },
    _traffic,
)
