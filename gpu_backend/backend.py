"""The kernels behind one interface: Triton on a GPU, the torch references on a CPU."""

from __future__ import annotations

from typing import Protocol

import torch

from gpu_backend.calls import AttentionCall, CheckCall, ClaimCall, ConvertCall, CopyCall, SlotCall, StoreCall, WriteCall
from gpu_backend.kernels.attention_reference import attention_reference
from gpu_backend.kernels.check_reference import check_reference
from gpu_backend.kernels.claims_reference import claims_reference
from gpu_backend.kernels.page_copy_reference import page_copy_reference
from gpu_backend.kernels.slots_reference import slots_reference
from gpu_backend.kernels.store_reference import store_reference
from gpu_backend.kernels.table_reference import convert_reference
from gpu_backend.kernels.writes_reference import writes_reference


class Kernels(Protocol):
    """Operations on pools. Masks of pages, bool ``[pages]``, are asserted by the references and unused on a GPU."""

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        """Write K/V rows and their tags."""

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        """Paged attention into ``call.out``; ``widths`` are the rows' query tokens, where the host knows them."""

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        """Copy prefixes of pages."""

    def convert(self, call: ConvertCall) -> None:
        """Rebase and convert a block table."""

    def check(self, call: CheckCall, longest: int) -> None:
        """Check up to ``longest`` positions of every row."""

    def update_slots(self, call: SlotCall) -> None:
        """Update drafter slots."""

    def judge_writes(self, call: WriteCall) -> None:
        """Judge cells before they are written."""

    def claim(self, call: ClaimCall) -> None:
        """Let rows take note of pages that are new to them."""


class ReferenceKernels:
    """The CPU mode: every operation by its torch reference, with ownership asserted."""

    def store(self, call: StoreCall, writable: torch.Tensor | None = None) -> None:
        store_reference(call, writable)

    def attend(
        self, call: AttentionCall, readable: torch.Tensor | None = None, widths: tuple[int, ...] | None = None
    ) -> None:
        attention_reference(call, readable)

    def copy(self, call: CopyCall, writable: torch.Tensor | None = None) -> None:
        page_copy_reference(call, writable)

    def convert(self, call: ConvertCall) -> None:
        convert_reference(call)

    def check(self, call: CheckCall, longest: int) -> None:
        check_reference(call)

    def update_slots(self, call: SlotCall) -> None:
        slots_reference(call)

    def judge_writes(self, call: WriteCall) -> None:
        writes_reference(call)

    def claim(self, call: ClaimCall) -> None:
        claims_reference(call)


def kernels_for(device: torch.device | str, *, exact: bool = False) -> Kernels:
    """Triton kernels on a GPU, references elsewhere; ``exact`` asks for attention whose bits do not depend on batching.

    The references are exact already: each row is computed alone.
    """
    if torch.device(device).type == "cuda":
        from gpu_backend.triton_backend import TritonKernels  # needs Triton, which a CPU-only user has not

        return TritonKernels(exact=exact)
    return ReferenceKernels()
