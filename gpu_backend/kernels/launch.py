"""A kernel launch as a value: run it, or compile it without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import triton

INTERPRETED = bool(triton.knobs.runtime.interpret)  # fixed when kernels are imported: TRITON_INTERPRET=1


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
            self.kernel[self.grid](*self.arguments, **self.constants)

    def compile(self) -> Any:
        """Compile for the active driver's target and return Triton's compiled kernel; nothing runs."""
        return self.kernel.warmup(*self.arguments, grid=self.grid, **self.constants)


def upcast(dtype_is_bf16: bool) -> bool:
    """Whether dots must be carried out in float32: the interpreter multiplies the bit patterns of bf16."""
    return INTERPRETED and dtype_is_bf16
