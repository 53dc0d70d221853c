"""The Triton kernels behind the backend's interface, with their plans kept between steps."""

from __future__ import annotations

import torch

from gpu_backend.calls import AttentionCall, CheckCall, ConvertCall, CopyCall, SlotCall, StoreCall
from gpu_backend.kernels.attention_plan import AttentionPlan
from gpu_backend.kernels.check import check_launch
from gpu_backend.kernels.page_copy import page_copy_launch
from gpu_backend.kernels.slots import slots_launch
from gpu_backend.kernels.store import store_launch
from gpu_backend.kernels.table import convert_launches


class TritonKernels:
    """Launches without host work on device values, so that a step can be captured in a CUDA graph.

    An attention plan depends on the rows' widths, which a call holds on the device: :meth:`plan` makes one from widths
    that the host knows, and a call without one reads its widths back once and keeps the plan (do that before capture).
    """

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact
        self._plans: dict[tuple[object, ...], AttentionPlan] = {}

    def plan(self, call: AttentionCall, widths: tuple[int, ...]) -> AttentionPlan:
        """The plan for calls of this shape whose rows have ``widths`` query tokens."""
        page_size, kv_heads, dim = call.k_cache.shape[1:]
        longest = call.table.shape[1] * page_size
        key = (widths, call.q.shape, call.q.dtype, page_size, kv_heads, longest, call.window_left)
        if key not in self._plans:
            self._plans[key] = AttentionPlan(
                widths, call.q.shape[1], kv_heads, dim, page_size, call.q.dtype, call.q.device,
                longest=longest, window_left=call.window_left, exact=self.exact,
            )  # fmt: skip
        return self._plans[key]

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        store_launch(call)()

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        if widths is None:
            widths = tuple(torch.diff(call.cu_query).tolist())
        self.plan(call, widths).run(call)

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        page_copy_launch(call)()

    def convert(self, call: ConvertCall) -> None:
        for launch in convert_launches(call):
            launch()

    def check(self, call: CheckCall, longest: int) -> None:
        check_launch(call, longest)()

    def update_slots(self, call: SlotCall) -> None:
        slots_launch(call)()
