"""What the stages that train have in common: time, curve, weights that are left and found again."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.saver import save
from gpu_backend.train.files import PROGRESS, beside, read_json, recover, replace, write_json
from scenarios.errors import InputError

MOST_BYTES = (15 << 20) - (1 << 16)  # of tensors a file, so that it stays under 15 MiB with its header
PAST = {"steps": int, "seconds": (int, float), "runs": list, "curve": list}  # of progress: what a run goes on from
RESERVE_S = 4.0  # of a run's time, for saving; less of a short run

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """One run of a stage: no step but the first begins after ``seconds``, of which a share is kept for saving.

    ``schedule`` seconds of training span several runs; without it a run is a whole schedule of its own that begins
    with the weights it finds.
    """

    folder: Path
    seconds: float
    schedule: float | None
    seed: int
    device: torch.device


@dataclass(slots=True)
class Session:
    """A run of the stage ``name``: how far it is, and the curve of all runs so far."""

    name: str
    order: Order
    columns: tuple[str, ...]
    say: Say
    begun: float = field(default_factory=time.monotonic)
    ready: float | None = None  # when steps began
    first: float | None = None  # when the first step, which compiles, was over
    past: dict[str, Any] = field(default_factory=lambda: {"steps": 0, "seconds": 0.0, "runs": [], "curve": []})
    steps: int = 0

    def find(self) -> bool:
        """Take up what an earlier run left; whether there is any."""
        recover(self.folder)
        path = self.folder / PROGRESS
        if not path.exists():
            return False
        found = read_json(path, self.name)
        if not isinstance(found, dict) or any(not isinstance(found.get(name), kind) for name, kind in PAST.items()):
            problem = f"expected {', '.join(PAST)}, as `kvtwin train` leaves them"
            raise InputError(str(path), 0, "", problem)
        self.past = found
        if self.order.schedule is not None and self.past["seconds"] >= self.order.schedule:
            problem = f"expected more than the {self.past['seconds']:.0f} s that were trained, found"
            raise InputError(str(path), 0, "schedule", f"{problem} {self.order.schedule:g}")
        return True

    @property
    def folder(self) -> Path:
        """Where the weights lie."""
        return self.order.folder / self.name

    @property
    def number(self) -> int:
        """Steps of all runs."""
        return self.past["steps"] + self.steps

    @property
    def room(self) -> float:
        """Seconds of this run before saving begins."""
        return self.order.seconds - min(RESERVE_S, self.order.seconds / 10)

    @property
    def elapsed(self) -> float:
        """Seconds of this run's training, the first step aside."""
        return 0.0 if self.first is None else time.monotonic() - self.first

    @property
    def progress(self) -> float:
        """Where the schedule stands, in [0, 1]."""
        if self.order.schedule is not None:
            return min(1.0, (self.past["seconds"] + self.elapsed) / self.order.schedule)
        room = self.room - ((self.first or self.begun) - self.begun)
        return 1.0 if room <= 0 else min(1.0, self.elapsed / room)

    def spent(self, share: float) -> bool:
        """Whether this share of the run's time is up."""
        return time.monotonic() - self.begun > share * self.order.seconds

    def over(self) -> bool:
        """Whether schedule or time are up; a run takes one step at least."""
        self.ready = self.ready or time.monotonic()
        return self.steps > 0 and (self.progress >= 1 or time.monotonic() - self.begun > self.room)

    def stepped(self, every: int, values: Callable[[], tuple[float, ...]]) -> None:
        """Count a step; ``values`` of the other columns are asked for now and then, since that waits for the device."""
        self.steps += 1
        if self.first is None:
            if self.order.device.type == "cuda":
                torch.cuda.synchronize()
            self.first = time.monotonic()
            self.say(f"{self.name}: first step in {self.first - (self.ready or self.begun):.1f} s, with compilation")
        if self.steps % every == 0 or self.steps == 1:
            self.note(values())

    def note(self, values: tuple[float, ...]) -> None:
        """Put a row into the curve, and tell of it."""
        seconds = self.past["seconds"] + self.elapsed
        row = [self.number, round(seconds, 1), *(round(value, 4) for value in values)]
        self.past["curve"].append(row)
        told = ", ".join(f"{name} {value:g}" for name, value in zip(self.columns, row, strict=True))
        self.say(f"{self.name}: {told}")

    def leave(
        self, module: nn.Module, config: TargetConfig | DrafterConfig, recipe: dict[str, Any], **more: Any
    ) -> dict[str, Any]:
        """Write weights and progress, whole or not at all; returns the progress. ``recipe`` is that of this run."""
        run = {"seed": self.order.seed, "steps": self.steps, "seconds": round(self.elapsed, 1)}
        run |= {"device": device_name(self.order.device), "torch": torch.__version__}
        ready, first = self.ready or self.begun, self.first or self.begun
        run |= {"seconds_before": round(ready - self.begun, 1), "seconds_compiling": round(first - ready, 1)}
        run |= {"recipe": recipe}
        left = {
            "columns": self.columns,
            "steps": self.number,
            "seconds": round(self.past["seconds"] + self.elapsed, 1),
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            **more,
            "runs": [*self.past["runs"], run],
            "curve": self.past["curve"],
        }
        recover(self.folder)
        part, _ = beside(self.folder)
        save(part, module, config, most_bytes=MOST_BYTES)
        write_json(part / PROGRESS, left)
        replace(self.folder)
        before = f"{run['seconds_before']:g} s of preparation and {run['seconds_compiling']:g} s of compilation"
        taken = "1 step" if self.steps == 1 else f"{self.steps} steps"
        self.say(f"{self.name}: {taken} in {run['seconds']:g} s, behind {before}")
        return left


def device_name(device: torch.device) -> str:
    """What people call the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def reduced(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Matrix products in bf16 on a GPU."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


class Texts:
    """Ids on the device, of which crops are drawn."""

    def __init__(self, ids: np.ndarray, device: torch.device, file: Path) -> None:
        self.ids, self.file = torch.from_numpy(ids.astype(np.int32)).to(device), file

    def identity(self) -> dict[str, str]:
        """What crops are drawn from, by its SHA-256."""
        return {"texts": hashlib.sha256(self.ids.cpu().numpy().astype("<u2").tobytes()).hexdigest()}

    def crops(self, count: int, length: int, seed: int) -> torch.Tensor:
        """``count`` crops int64 ``[count, length]`` from places that ``seed`` draws."""
        if len(self.ids) <= length:
            raise InputError(str(self.file), 0, "", f"expected more than {length} tokens, found {len(self.ids)}")
        draw = torch.Generator(device=self.ids.device).manual_seed(seed)
        first = torch.randint(0, len(self.ids) - length, (count, 1), device=self.ids.device, generator=draw)
        return self.ids[first + torch.arange(length, device=self.ids.device)].long()


def seed_of(seed: int, step: int, what: int) -> int:
    """Seed of one draw; steps of later runs go on."""
    return (seed * 1_000_003 + step) * 8 + what
