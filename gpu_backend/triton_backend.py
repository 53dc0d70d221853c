"""The Triton kernels behind the backend's interface, with their plans kept between steps."""

from __future__ import annotations

import torch

from gpu_backend.calls import AttentionCall, CheckCall, ClaimCall, ConvertCall, CopyCall, SlotCall, StoreCall, WriteCall
from gpu_backend.kernels.attention_plan import AttentionPlan
from gpu_backend.kernels.check import check_launch
from gpu_backend.kernels.claims import claims_launch
from gpu_backend.kernels.page_copy import page_copy_launch
from gpu_backend.kernels.slots import slots_launch
from gpu_backend.kernels.store import store_launch
from gpu_backend.kernels.table import convert_launches
from gpu_backend.kernels.writes import writes_launch

MOST_PLANS = 1024
MOST_WORKSPACE = 1 << 30  # bytes of partial results that plans may keep between steps


class TritonKernels:
    """Launches without host work on device values, so that a step can be captured in a CUDA graph.

    An attention plan depends on the rows' widths, which a call holds on the device: :meth:`plan` makes one from widths
    that the host knows, and a call without one reads its widths back once and keeps the plan (do that before capture).
    Plans that were not used for longest are dropped when they become too many or hold too much, except those that a
    graph was captured with, whose workspace the graph goes on using.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact
        self._plans: dict[tuple[object, ...], AttentionPlan] = {}  # the one used last comes last
        self._captured: set[tuple[object, ...]] = set()
        self._workspace = 0

    def plan(self, call: AttentionCall, widths: tuple[int, ...]) -> AttentionPlan:
        """The plan for calls of this shape whose rows have ``widths`` query tokens."""
        page_size, kv_heads, dim = call.k_cache.shape[1:]
        longest = call.table.shape[1] * page_size
        key = (widths, call.q.shape, call.q.dtype, page_size, kv_heads, longest, call.window_left)
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = AttentionPlan(
                widths, call.q.shape[1], kv_heads, dim, page_size, call.q.dtype, call.q.device,
                longest=longest, window_left=call.window_left, exact=self.exact,
            )  # fmt: skip
            self._make_room(plan.workspace)
        self._plans[key] = plan
        if call.q.is_cuda and torch.cuda.is_current_stream_capturing():
            self._captured.add(key)
        return plan

    def _make_room(self, workspace: int) -> None:
        """Count ``workspace`` bytes more, and drop what was not used for longest until all is within bounds."""
        self._workspace += workspace
        for key in [key for key in self._plans if key not in self._captured]:
            if self._workspace <= MOST_WORKSPACE and len(self._plans) < MOST_PLANS:
                return
            self._workspace -= self._plans.pop(key).workspace

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

    def judge_writes(self, call: WriteCall) -> None:
        writes_launch(call)()

    def claim(self, call: ClaimCall) -> None:
        claims_launch(call)()
