"""Grid over the order of events: every interleaving of arrivals, dispatches and settles, for two and three requests."""

from __future__ import annotations

from model.ops import Dispatch, Settle
from sim.sweep.case import Case, Drive, Step
from sim.sweep.grid import Grid
from sim.sweep.toy import Toy, ask, own, shared

TO_END = Drive()


def interleavings(arrivals: int, length: int, run_ahead: int) -> list[str]:
    """Words of ``length`` letters: ``a`` the next request arrives, ``d`` a dispatch, ``s`` a settle, where each may
    come: no dispatch before an arrival or with ``run_ahead`` + 1 iterations in flight, no settle without one."""
    words: list[str] = []

    def grow(word: str, came: int, flying: int) -> None:
        if len(word) == length:
            words.append(word)
            return
        if came < arrivals:
            grow(word + "a", came + 1, flying)
        if came and flying <= run_ahead:
            grow(word + "d", came, flying + 1)
        if flying:
            grow(word + "s", came, flying - 1)

    grow("", 0, 0)
    return words


def _orders(requests: int, run_ahead: int, kind: str, outputs: tuple[int, ...], word: str) -> Case | None:
    """The word is played, then the rest arrives and the server goes on; ``outputs`` decide who completes first."""
    if word.count("a") > requests or (word not in _WORDS[run_ahead]) or len(outputs) != requests:
        return None
    toy = Toy(kind=kind, run_ahead=run_ahead, budget=9, batch=2 if requests == 3 else 4)
    waiting = [
        ask(number, shared(6 if number else 7), own(number, 2), output=outputs[number]) for number in range(requests)
    ]
    script: list[Step] = []
    for letter in word:
        script.append(waiting.pop(0) if letter == "a" else Dispatch() if letter == "d" else Settle(()))
    return Case(toy, (*script, *waiting, TO_END, ask(8, shared(6), own(8, 1)), TO_END), accepts=(9, 1, 2))


_FAST, _FULL = 7, 9  # letters of a word
_WORDS = {ahead: set(interleavings(3, _FAST, ahead)) | set(interleavings(3, _FULL, ahead)) for ahead in (0, 1)}
_BOTH = [sorted(set(interleavings(3, length, 0)) | set(interleavings(3, length, 1))) for length in (_FAST, _FULL)]

ORDERS = Grid(
    "orders",
    "every interleaving of arrivals, dispatches and settles, and every order of completion",
    ("finished", "deferrals", "joint_claims"),
    {
        "requests": (2,),
        "run_ahead": (1,),
        "kind": ("dspark",),
        "outputs": ((1, 4), (4, 1)),
        "word": [word for word in _BOTH[0] if word.count("a") == 2],
    },
    {
        "requests": (2, 3),
        "run_ahead": (0, 1),
        "kind": ("dspark", "mtp"),
        "outputs": ((1, 4), (4, 1), (3, 3), (1, 3, 5), (5, 3, 1), (2, 5, 1)),
        "word": _BOTH[1],
    },
    _orders,
)
