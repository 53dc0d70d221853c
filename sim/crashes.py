"""A crash of the model or of a rule, told as a broken law: the same words wherever a program is run."""

from __future__ import annotations

from model.invariants import Violation

CRASH = "CRASH"  # stands where a law's code does: it is none of the model's own


def crashed(error: BaseException, step: int = -1) -> Violation:
    """What stands for ``error`` at ``step``: its type, the function that it came from, and what it says."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" in {place.tb_frame.f_code.co_name}" if place is not None else ""
    return Violation(CRASH, f"{type(error).__name__}{where}: {' '.join(str(error).split())}", step=step)


def broken_by(law: str, message: str) -> str:
    """What tells broken laws apart: the law's code, and for a crash the type of the error and its function, too."""
    return f"{law} {message.partition(':')[0]}" if law == CRASH else law
