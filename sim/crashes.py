"""A crash of the model or of a rule, told as a broken law: the same words wherever a program is run."""

from __future__ import annotations

import traceback
from types import TracebackType

from model.invariants import Violation
from scenarios.user_rules import IMPORTED

CRASH = "CRASH"  # stands where a law's code does: it is none of the model's own
HANG = "HANG"  # and one for a program that does not end
ROOMS = ("model", "scenarios", "sim", "property_tests", "gpu_backend", "reports", "kvtwin")


class Hang(BaseException):
    """A program took too long, where somebody limits that; the message says where it was.

    No ``Exception``: it comes at any place, and neither a rule nor hypothesis may take it for an error of its own.
    """

    def __reduce__(self) -> tuple[type[Hang], tuple[str]]:
        return (Hang, (str(self),))


ENDS = (Exception, SystemExit, Hang)  # what ends a program before its end: a rule may call sys.exit, too


def crashed(error: BaseException, step: int = -1) -> Violation:
    """What stands for ``error`` at ``step``: its type, the function that it came from, and what it says.

    The innermost line of a rule of the user's is named, too, or where it came through none, that of kvtwin. A program
    that was ended because it took too long is no crash, but a hang.
    """
    frames = _frames(error)
    own = [frame for frame in frames if _is_own(frame)]
    if isinstance(error, Hang):
        return Violation(HANG, f"{error}{_line(own)}", step=step)
    where = f" in {frames[-1].tb_frame.f_code.co_name}" if frames else ""
    where += _line(own or [frame for frame in frames if _is_ours(frame)])
    return Violation(CRASH, f"{type(error).__name__}{where}: {' '.join(str(error).split())}", step=step)


def _line(places: list[TracebackType]) -> str:
    """The innermost of ``places``, in brackets."""
    return f" ({places[-1].tb_frame.f_globals['__name__']}, line {places[-1].tb_lineno})" if places else ""


def traceback_of(error: BaseException) -> str:
    """The traceback of ``error``, from the first line of a rule of the user's on where it came through one.

    What called the rule is below it, whole.
    """
    error = _origin(error)
    whole = "".join(traceback.format_exception(error))
    frames = _frames(error)
    first = next((place for place, frame in enumerate(frames) if _is_own(frame)), None)
    if first is None:
        return whole
    own = "".join(traceback.format_list(traceback.extract_tb(frames[first])))
    told = "".join(traceback.format_exception_only(error))
    return f"In the rule:\n{own}{told}\nWhole:\n{whole}"


def _origin(error: BaseException) -> BaseException:
    """``error`` as it was raised first: the clock raises a copy of what happens in one of its processes."""
    while (cause := error.__cause__) is not None and (type(cause), cause.args) == (type(error), error.args):
        error = cause
    return error


def _frames(error: BaseException) -> list[TracebackType]:
    """The places that ``error`` came through, the innermost last."""
    frames: list[TracebackType] = []
    place = _origin(error).__traceback__
    while place is not None:
        frames.append(place)
        place = place.tb_next
    return frames


def _is_own(place: TracebackType) -> bool:
    return place.tb_frame.f_globals.get("__name__") in IMPORTED


def _is_ours(place: TracebackType) -> bool:
    return str(place.tb_frame.f_globals.get("__name__")).partition(".")[0] in ROOMS


def broken_by(law: str, message: str) -> str:
    """What tells broken laws apart: the law's code, and for a crash the type of the error and its place, too."""
    return f"{law} {message.partition(':')[0]}" if law == CRASH else law


def cause_of(law: str, message: str, kinds: tuple[str, ...]) -> tuple[str, ...]:
    """What tells failures apart: the broken law and the ``kinds`` of the ops, in order.

    A crash or a hang is one cause at one place, whatever came before it; the line of a loop is that of the moment.
    """
    if law == HANG:
        return (law, message.partition(" (")[0])
    return (broken_by(law, message),) if law == CRASH else (broken_by(law, message), *kinds)
