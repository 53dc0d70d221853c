"""The contract table: one row per kernel, with its axes, input builder, reference and cases."""

from __future__ import annotations

from typing import Any

from gpu_backend.contracts.attention import ATTENTION
from gpu_backend.contracts.base import Contract
from gpu_backend.contracts.check import CHECK
from gpu_backend.contracts.holders import CLAIMS, WRITES
from gpu_backend.contracts.page_copy import PAGE_COPY
from gpu_backend.contracts.slots import SLOTS
from gpu_backend.contracts.store import STORE
from gpu_backend.contracts.table import TABLE

CONTRACTS: dict[str, Contract[Any, Any]] = {
    contract.name: contract for contract in (STORE, ATTENTION, PAGE_COPY, TABLE, CHECK, SLOTS, WRITES, CLAIMS)
}
