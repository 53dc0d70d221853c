"""A kernel launch as a value: run it, or compile it without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from triton import knobs

INTERPRETED = bool(knobs.runtime.interpret)  # fixed when kernels are imported: TRITON_INTERPRET=1


@dataclass(frozen=True, slots=True)
class Launch:
    """``kernel[grid](*arguments, **constants)``; constants hold the kernel's constexprs and compile options."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> None:
        """Queue the kernel on the current stream; an empty grid queues nothing."""
        if all(self.grid):
            self.kernel[self.grid](*self.arguments, **self._options())

    def compile(self) -> Any:
        """Compile for the active driver's target and return Triton's compiled kernel; nothing runs."""
        return self.kernel.warmup(*self.arguments, grid=self.grid, **self._options())

    def _options(self) -> dict[str, Any]:
        """The constants; multiply-adds may be contracted, said openly because Triton's default is about to change."""
        return {"enable_fp_fusion": True, **self.constants}


def launches_early() -> bool:
    """Whether a kernel may be launched while the one before it still runs (programmatic dependent launch, sm_90 on)."""
    return not INTERPRETED and (not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (9, 0))


def upcast(dtype_is_bf16: bool) -> bool:
    """Whether dots must be carried out in float32: the interpreter multiplies the bit patterns of bf16."""
    return INTERPRETED and dtype_is_bf16
