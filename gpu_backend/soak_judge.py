"""What a soak's rounds are held to: nothing is left behind by a round, and no round is slower than the first ones."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gpu_backend.replay.journal import landed
from gpu_backend.soak_rounds import FLOOD

DEVICE_BYTES = 8 << 20  # bounds: what a round may leave more than the baseline, of each
TENSORS = 16
PINNED_BYTES = 32 << 20
HOST_BYTES = 512 << 20
SLOWER = 1.5  # bound of drift: the last third's median over the first third's
THIRD = 3  # rounds that a third has at least, or nobody can say
STATM = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Left:
    """What is there between two rounds: bytes that torch allocated on the device, live tensors but those that wait to
    be read into again, the bytes of these, bytes of the process that are in memory (0: the system does not say)."""

    device_bytes: int = 0
    tensors: int = 0
    pinned_bytes: int = 0
    host_bytes: int = 0

    def most(self, other: Left) -> Left:
        """The larger of each."""
        return Left(
            max(self.device_bytes, other.device_bytes),
            max(self.tensors, other.tensors),
            max(self.pinned_bytes, other.pinned_bytes),
            max(self.host_bytes, other.host_bytes),
        )


@dataclass(frozen=True, slots=True)
class Round:
    """One replay: what ran, how long, what is wrong with it, what it left. ``step_us``: median time of the host for a
    dispatch and a settle of generation, which waits for the device. ``cut``: Ctrl-C ended it."""

    number: int
    kind: str
    build: str
    seed: int
    seconds: float
    steps: int = 0
    in_graphs: int = 0
    events: int = 0
    cells: int = 0
    step_us: float = 0.0
    suspended: int = 0  # by the client or for lack of pages
    cancelled: int = 0
    failed: int = 0
    digest: str = ""
    wrong: tuple[str, ...] = ()
    left: Left = Left()
    cut: bool = False

    def told(self, *wrong: str) -> Round:
        """The same, with more that is wrong."""
        return replace(self, wrong=(*self.wrong, *wrong))


@dataclass(frozen=True, slots=True)
class Drift:
    """Median step time of a kind's last rounds over that of its first ones; ``None``: too few rounds to say."""

    kind: str
    ratio: float | None

    @property
    def wrong(self) -> str:
        """One line, where the rounds became slower."""
        if self.ratio is None or self.ratio <= SLOWER:
            return ""
        return f"{self.kind}: steps of the last third take {self.ratio:.2f} x those of the first, bound {SLOWER}"


def left_behind(device: torch.device) -> Left:
    """What is there now, once everything that nobody holds is gone."""
    gc.collect()
    pinned, landings = landed()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return Left(
        torch.cuda.memory_allocated(device) if on_gpu else 0,
        sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects()) - landings,
        pinned,
        int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if STATM.exists() else 0,
    )


def leaks(left: Left, baseline: Left) -> list[str]:
    """What is more than the baseline by more than its bound, in words."""
    found = [
        (left.device_bytes - baseline.device_bytes, DEVICE_BYTES, "bytes on the device"),
        (left.tensors - baseline.tensors, TENSORS, "live tensors"),
        (left.pinned_bytes - baseline.pinned_bytes, PINNED_BYTES, "bytes of pinned memory"),
        (left.host_bytes - baseline.host_bytes, HOST_BYTES, "bytes of the process"),
    ]
    return [
        f"leak: {more:,} {what} more than after the first rounds, bound {bound:,}"
        for more, bound, what in found
        if more > bound
    ]


def drift_of(kind: str, rounds: Sequence[Round]) -> Drift:
    """The last third of a kind's rounds against the first third: each round against those of the same build and seed
    there, if there are none against those of its build, or else all."""
    mine = [one for one in rounds if one.kind == kind and one.step_us]
    third = len(mine) // 3
    if third < THIRD:
        return Drift(kind, None)
    first, last = mine[:third], mine[-third:]
    ratios = []
    for one in last:
        build = [early for early in first if early.build == one.build]
        alike = [early for early in build if early.seed == one.seed] or build or first
        ratios.append(one.step_us / statistics.median(early.step_us for early in alike))
    return Drift(kind, statistics.median(ratios))


def unmet(rounds: Sequence[Round]) -> list[str]:
    """What floods are for and none of them did."""
    floods = [one for one in rounds if one.kind == FLOOD]
    sums = {
        "suspension": sum(one.suspended for one in floods),
        "cancellation": sum(one.cancelled for one in floods),
        "failed forward": sum(one.failed for one in floods),
    }
    return [f"{FLOOD}: no round had a {what}" for what, number in sums.items() if floods and not number]
