"""FlashInfer's fa2 as a second implementation: it must agree wherever it is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.contracts.attention import build, launches
from gpu_backend.contracts.base import relative_error
from gpu_backend.cross_check import AGREEMENT, fa2_output
from property_tests.gpu_room.on_device.test_large_shapes import VERIFY

CASES = {
    "verify rows": VERIFY,
    "verify rows, page 32": replace(VERIFY, page_size=32),
    "drafter block": replace(VERIFY, kv_heads=4, causal=False, window_left=511),
    "context chunk": replace(VERIFY, widths=(300, 8, 700), past=(500, 0, 2000)),
}


@pytest.mark.parametrize("name", CASES)
def test_fa2_agrees_with_our_attention(name: str) -> None:
    case = CASES[name]
    call = build(case, torch.device("cuda"), 5)
    for launch in launches(case, call):
        launch()
    assert relative_error(fa2_output(case, call), call.out) <= AGREEMENT
