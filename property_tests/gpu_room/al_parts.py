"""What stands for a measurement in a process of its own: kinds that finish, are refused, crash or are cut off.

Every function here is named to a fresh interpreter, which has to be there at once: no torch.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

from gpu_backend.al.apart import Progress
from gpu_backend.al.order import Order, Told
from scenarios.errors import InputError

_kept: list[int] = []  # files that are open until the process is gone


def told_of(kind: str, runs: int, *, interrupted: bool = False) -> Told:
    """What a measurement of so many runs tells."""
    arms = [{"drafter": kind, "laws": [], "owed": 1, "run": number} for number in range(runs)]
    return Told({"name": "a pair"}, arms, [], {kind: {}}, interrupted, drafters={kind: {}})


def finishes(order: Order, progress: Progress) -> Told:
    """Two runs. The file ``kind`` beside the weights is there when one is done, and locked until the process ends."""
    (kind,) = order.drafters or ("",)
    progress(0, 2)
    progress(1, 2)
    if order.weights is not None:
        whole, part = order.weights / kind, order.weights / f"{kind}.part"
        _kept.append(os.open(part, os.O_CREAT | os.O_RDWR))
        fcntl.flock(_kept[-1], fcntl.LOCK_EX)
        part.rename(whole)
    progress(2, 2)
    return told_of(kind, 2)


def _comes(order: Order, kind: str) -> Path:
    """The file of a kind whose first run is done."""
    assert order.weights is not None
    path = order.weights / kind
    while not path.exists():
        time.sleep(0.01)
    return path


def _ended(order: Order, kind: str) -> None:
    """Wait until the process of a kind has answered and is gone."""
    with _comes(order, kind).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def one_is_cut(order: Order, progress: Progress) -> Told:
    """Ctrl-C comes when dflash has ended: mtp has one run by then, and dspark loads its weights."""
    (kind,) = order.drafters or ("",)
    if kind == "dflash":
        return finishes(order, progress)
    if kind == "dspark":
        time.sleep(60)
    progress(0, 2)
    progress(1, 2)
    _ended(order, "dflash")
    try:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)  # a terminal sends it to the whole group, the parent once more
        return told_of(kind, 1, interrupted=True)
    raise AssertionError("Ctrl-C did not come")


def one_is_given_up(order: Order, progress: Progress) -> Told:
    """The user presses again and again while mtp tells what it has, which takes it long."""
    (kind,) = order.drafters or ("",)
    if kind == "dflash":
        return finishes(order, progress)
    _ended(order, "dflash")
    try:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        for _ in range(600):
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.1)
    raise AssertionError("it was not given up")


def others_go_on(order: Order, progress: Progress) -> Told:
    """dflash has done one run when mtp is refused, dspark crashes and eagle3 is killed."""
    (kind,) = order.drafters or ("",)
    if kind == "dflash":
        return finishes(order, progress)
    _comes(order, "dflash")
    if kind == "mtp":
        raise InputError("device", 0, "", "pool draft needs 7 pages")
    if kind == "dspark":
        raise LookupError("no such row")
    os._exit(9)


def refused_at_once(order: Order, progress: Progress) -> Told:
    """mtp is refused before any run is done."""
    if order.drafters == ("mtp",):
        raise InputError("mtp/config.json", 0, "window", "expected a number")
    progress(0, 2)
    time.sleep(60)
    raise AssertionError("it was not stopped")


def cut_alone(order: Order, progress: Progress) -> Told:
    """Somebody sends Ctrl-C to the process of mtp alone, which has done nothing yet."""
    if order.drafters == ("mtp",):
        os.kill(os.getpid(), signal.SIGINT)
    return finishes(order, progress)


def stays(order: Order, progress: Progress) -> Told:
    """What it was measured with keeps the process from its end."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    return finishes(order, progress)


def leaves_another(order: Order, progress: Progress) -> Told:
    """The process of mtp is killed, and one that it started holds its pipe open for a while."""
    if order.drafters == ("mtp",):
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3)
        assert order.weights is not None
        (order.weights / "later").touch()
        os._exit(0)
    return finishes(order, progress)


def refused_and_crashed(order: Order, progress: Progress) -> Told:
    """mtp crashes, and then eagle3 is refused; neither has done a run."""
    assert order.weights is not None
    if order.drafters == ("mtp",):
        with (order.weights / "mtp").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _kept.append(os.dup(file.fileno()))
        (order.weights / "mtp").rename(order.weights / "crashes")
        raise LookupError("no such row")
    _ended(order, "crashes")
    raise InputError("eagle3/config.json", 0, "window", "expected a number")


def waits(order: Order, progress: Progress) -> Told:
    """It would take long. Its file is locked until the process ends."""
    if order.weights is not None:
        part = order.weights / "locks"
        _kept.append(os.open(part, os.O_CREAT | os.O_RDWR))
        fcntl.flock(_kept[-1], fcntl.LOCK_EX)
        part.rename(order.weights / "waits")
    time.sleep(60)
    raise AssertionError("it was not stopped")


def pressed() -> None:
    """Ctrl-C comes now."""
    os.kill(os.getpid(), signal.SIGINT)
