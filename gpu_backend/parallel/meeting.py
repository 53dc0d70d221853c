"""Where the ranks meet: what they agree on, and the sums of their partial results; nobody waits for ever.

Words about the plan go over the CPU (gloo), so that a rank finds out that it is alone before it enters a collective of
the device; sums go over NCCL on GPUs. A rank that waited too long says where it stands, and learns where the others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

GRACE = 1.5  # seconds in which ranks that waited too long hear of each other
DEVICE_SLACK = 10  # a device's collectives are given so many times the patience: the host looks sooner


class Absent(RuntimeError):
    """Ranks did not meet in time. ``seen``: where each rank waits, by rank; ``None`` for one that waits nowhere."""

    def __init__(self, where: str, patience: float, seen: dict[int, str | None]) -> None:
        super().__init__(f"the ranks did not meet at {where}, where each waits {patience:g} s at most")
        self.where, self.seen = where, seen


@dataclass(slots=True)
class Meeting:
    """One rank's way to the others: ``control`` goes over the CPU, ``data`` over the device. ``patience`` is in s."""

    rank: int
    ranks: int
    control: dist.ProcessGroup
    data: dist.ProcessGroup
    store: c10d.Store
    patience: float
    rounds: int = 0  # words compared
    sums: int = 0

    @classmethod
    def joined(cls, device: torch.device, patience: float, name: str = "run") -> Meeting:
        """Join the processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).

        A meeting of another ``name`` finds no word of those before it.
        """
        store, rank, ranks = next(iter(rendezvous("env://", timeout=timedelta(seconds=max(patience, 60)))))
        wait = timedelta(seconds=patience)
        own = c10d.PrefixStore(name, store)
        groups = c10d.PrefixStore("groups", own)
        dist.init_process_group("gloo", store=groups, rank=rank, world_size=ranks, timeout=wait)
        control = dist.new_group(backend="gloo", timeout=wait)
        backend, slack = ("nccl", DEVICE_SLACK) if device.type == "cuda" else ("gloo", 1)
        data = dist.new_group(backend=backend, timeout=wait * slack)
        assert isinstance(control, dist.ProcessGroup) and isinstance(data, dist.ProcessGroup)
        return cls(rank, ranks, control, data, c10d.PrefixStore("words", own), patience)

    def same(self, word: int, where: Callable[[], str]) -> bool:
        """Whether all ranks bring the same ``word``, 63 bits: its minimum and its maximum over them are equal."""
        both = torch.tensor([word, -word])
        self._collective(lambda: dist.all_reduce(both, dist.ReduceOp.MIN, self.control), where)
        self.rounds += 1
        return int(both[0]) == -int(both[1])

    def told(self, own: Any, where: Callable[[], str]) -> list[Any]:
        """What every rank brings, in the order of the ranks."""
        found: list[Any] = [None] * self.ranks
        self._collective(lambda: dist.all_gather_object(found, own, self.control), where)
        return found

    def sum(self, part: torch.Tensor) -> torch.Tensor:
        """``part`` summed over the ranks, in place; queued like a kernel on a GPU."""
        self.sums += 1
        total = part.contiguous()
        self._collective(lambda: dist.all_reduce(total, dist.ReduceOp.SUM, self.data), lambda: f"sum {self.sums}")
        return total

    def finished(self, device: torch.device, where: Callable[[], str]) -> None:
        """Wait until all that was queued on a GPU is done; a collective that some rank never joins does not end."""
        if device.type != "cuda":
            return
        done, until = torch.cuda.Event(), time.monotonic() + self.patience
        done.record()
        while not done.query():
            if time.monotonic() > until:
                raise self._absent(where())
            time.sleep(0.0002)

    def _collective(self, run: Callable[[], Any], where: Callable[[], str]) -> None:
        try:
            run()
        except RuntimeError as error:  # a time-out, or a connection that another rank closed
            raise self._absent(where()) from error

    def _absent(self, where: str) -> Absent:
        seen: dict[int, str | None] = dict.fromkeys(range(self.ranks))
        seen[self.rank] = where
        try:
            self.store.set(f"waits/{self.rank}", where)
            until = time.monotonic() + GRACE
            while None in seen.values() and time.monotonic() < until:
                time.sleep(0.05)
                for rank in (rank for rank, place in seen.items() if place is None):
                    if self.store.check([f"waits/{rank}"]):
                        seen[rank] = self.store.get(f"waits/{rank}").decode()
        except RuntimeError:  # whoever kept the store is gone as well
            pass
        return Absent(where, self.patience, seen)
