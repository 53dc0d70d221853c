"""Faults that only a device can have: its kernels, its buffers, the order of its copies. No rule of the model is wrong.

Each is put under a replay of a sound build, so that whatever is found is found in the device's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from gpu_backend.backend import Kernels
from gpu_backend.calls import (
    AttentionCall,
    CheckCall,
    ClaimCall,
    ConvertCall,
    CopyCall,
    SlotCall,
    SlotOp,
    StoreCall,
    WriteCall,
)
from gpu_backend.replay.executor import DeviceWorld


class Wrapped:
    """Kernels that pass every call on; a fault overrides one of them."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.calls = 0

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        self.kernels.store(call, writable)

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        self.kernels.attend(call, readable, widths)

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        self.kernels.copy(call, writable)

    def convert(self, call: ConvertCall) -> None:
        self.kernels.convert(call)

    def check(self, call: CheckCall, longest: int) -> None:
        self.kernels.check(call, longest)

    def update_slots(self, call: SlotCall) -> None:
        self.kernels.update_slots(call)

    def judge_writes(self, call: WriteCall) -> None:
        self.kernels.judge_writes(call)

    def claim(self, call: ClaimCall) -> None:
        self.kernels.claim(call)


class BaseDropped(Wrapped):
    """The attention counts a rebased row's blocks from its first entry."""

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        super().attend(replace(call, base=torch.zeros_like(call.base)), readable, widths)


class WindowOneShort(Wrapped):
    """The attention leaves out the first key of every range."""

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        super().attend(replace(call, start=call.start + 1), readable, widths)


class TagsSkipped(Wrapped):
    """Every fifth store writes K/V rows without their tags."""

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        self.calls += 1
        skipped = call.cells is not None and self.calls % 5 == 0
        super().store(replace(call, cells=None, tag=None, state=None) if skipped else call, writable)


class RowsSkipped(Wrapped):
    """Every fifth store writes tags without their K/V rows."""

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        self.calls += 1
        if self.calls % 5:
            super().store(call, writable)
        else:
            super().store(replace(call, k_cache=call.k_cache.clone(), v_cache=call.v_cache.clone()), writable)


class LastTokenDropped(Wrapped):
    """A store of several tokens leaves out the last one, as a grid that is rounded down does."""

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        row = call.row.clone()
        if len(row) > 4:
            row[-1] = -1
        super().store(replace(call, row=row), writable)


class CopyLate(Wrapped):
    """A partial page is copied when the next one is, so its reader comes first."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__(kernels)
        self.held: CopyCall | None = None

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        held, self.held = self.held, call
        if held is not None:
            super().copy(held, writable)


class CopyOneShort(Wrapped):
    """A partial page is copied without its last token."""

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        super().copy(replace(call, tokens=call.tokens - 1), writable)


class LengthsNotRestored(Wrapped):
    """A failed forward gives slots their bases back and leaves the lengths of whoever was bound for it."""

    def update_slots(self, call: SlotCall) -> None:
        slots, rolls = call.slots, bool((call.op == int(SlotOp.ROLLBACK)).all())
        length = slots.length.clone()
        super().update_slots(call)
        if rolls:
            slots.length.copy_(length)


class ExtentCounted(Wrapped):
    """The extent of a row is the number of its backed entries, whatever was released below them."""

    def convert(self, call: ConvertCall) -> None:
        super().convert(call)
        call.extent.copy_((call.table >= 0).sum(1))


def _stale_table(follower: DeviceWorld) -> None:
    """Every third upload of a table is lost: the step reads what is there."""
    for column in follower.memory.columns:
        change, count = column.buffer.change, 0

        def lossy(entries: torch.Tensor, change: Callable[..., None] = change) -> None:
            nonlocal count
            count += 1
            if count % 3:
                change(entries)

        column.buffer.change = lossy


def _load_late(follower: DeviceWorld) -> None:
    """A page comes back from the host when the next one does, behind the step that reads it."""
    for planes in follower.memory.planes:
        if planes.host is None:
            continue
        onboard, held = planes.host.onboard, list[tuple[int, int]]()

        def late(
            slot: int,
            page: int,
            onboard: Callable[[int, int], None] = onboard,
            held: list[tuple[int, int]] = held,
        ) -> None:
            held.append((slot, page))
            if len(held) > 1:
                onboard(*held.pop(0))

        planes.host.onboard = late


def _not_released(follower: DeviceWorld) -> None:
    """A page that is granted anew keeps the cells of its last tenant."""
    for planes in follower.memory.planes:
        planes.pool.release = _nothing


def _nothing(pages: torch.Tensor) -> None:
    """Leave everything as it is."""


def _with(kernels: Callable[[Kernels], Kernels]) -> Callable[[DeviceWorld], None]:
    def put(follower: DeviceWorld) -> None:
        wrapped = kernels(follower.memory.kernels)
        follower.memory.kernels = follower.memory.rows.kernels = wrapped

    return put


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """A fault of the device alone: how it is put under a replay, its scenario, the codes one of which comes first."""

    name: str
    put: Callable[[DeviceWorld], None]
    scenario: str
    codes: tuple[str, ...]
    looks_like: str


DEVICE_FAULTS: dict[str, DeviceFault] = {
    fault.name: fault
    for fault in (
        DeviceFault(
            "kernel-drops-base", _with(BaseDropped), "faults/unrebased_reader", ("KEY",),
            "Behind a hidden prefix the drafter attends to other blocks; acceptance falls on hits alone.",
        ),
        DeviceFault(
            "kernel-window-one-short", _with(WindowOneShort), "smoke/hello", ("KEY",),
            "Every output differs a little from plain decoding.",
        ),
        DeviceFault(
            "tag-write-skipped", _with(TagsSkipped), "smoke/hello", ("INIT", "PUB", "KEY"),
            "A cell holds its K/V rows and the tag of whoever was there before.",
        ),
        DeviceFault(
            "row-write-skipped", _with(RowsSkipped), "smoke/hello", ("KEY",),
            "A cell holds its tag and no K/V rows: outputs are not a number, or another request's.",
        ),
        DeviceFault(
            "last-token-dropped", _with(LastTokenDropped), "smoke/hello", ("INIT", "PUB", "KEY"),
            "The last token of a chunk is missing from the cache.",
        ),
        DeviceFault(
            "stale-table-buffer", _stale_table, "smoke/conversation", ("OWN", "MAP", "INIT", "KEY"),
            "A step reads and writes by the table of the step before it.",
        ),
        DeviceFault(
            "copy-out-of-order", _with(CopyLate), "faults/copy_in_place", ("INIT", "KEY"),
            "A claim that ends inside a page reads what its own page held before.",
        ),
        DeviceFault(
            "copy-one-short", _with(CopyOneShort), "faults/copy_in_place", ("INIT", "KEY"),
            "A claim that ends inside a page misses its last token.",
        ),
        DeviceFault(
            "load-out-of-order", _load_late, "smoke/host_tier", ("INIT", "KEY"),
            "A hit in the host tier reads what its pages held before.",
        ),
        DeviceFault(
            "lengths-not-restored", _with(LengthsNotRestored), "smoke/disturbed", ("INIT", "OWN", "MAP"),
            "After a failed forward a request drafts from another one's length.",
        ),
        DeviceFault(
            "extent-counted", _with(ExtentCounted), "faults/count_not_extent", ("OWN", "MAP", "INIT", "PUB"),
            "Once a window has released pages, the block's writes land on one cell.",
        ),
        DeviceFault(
            "page-not-released", _not_released, "smoke/pressure", ("KEY", "INIT", "OWN"),
            "A page that was granted anew looks written before anybody writes it.",
        ),
    )
}  # fmt: skip
