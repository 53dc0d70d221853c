"""The room's front door for the command line."""

from __future__ import annotations

import torch

from gpu_backend.al.session import measure
from gpu_backend.device import default_device
from gpu_backend.replay.drills import NAMES, drill
from gpu_backend.replay.session import replay
from scenarios.errors import InputError

__all__ = ["device_name", "drill", "drillable", "measure", "replay"]


def device_name(device: str) -> str:
    """What ``cuda`` or ``cpu`` is called here; InputError where torch sees no such device."""
    if device != "cuda":
        return device
    if not torch.cuda.is_available():
        raise InputError("device", 0, "", "expected a GPU, found none: torch sees no CUDA device here")
    return torch.cuda.get_device_name(default_device())


def drillable() -> tuple[str, ...]:
    """Names of the faults that :func:`drill` knows."""
    return NAMES
