"""Plans of the attention are kept between steps, within bounds."""

from __future__ import annotations

import pytest
import torch

from gpu_backend import triton_backend
from gpu_backend.contracts.attention import AttentionCase, build
from gpu_backend.triton_backend import TritonKernels


def plan_of(kernels: TritonKernels, width: int, device: torch.device) -> object:
    """The plan for one row of ``width`` tokens."""
    return kernels.plan(build(AttentionCase((width,), (20,)), device, 1), (width,))


def test_a_plan_is_kept_for_the_next_step_of_its_shape(device: torch.device) -> None:
    kernels = TritonKernels()
    assert plan_of(kernels, 4, device) is plan_of(kernels, 4, device)
    assert plan_of(kernels, 4, device) is not plan_of(kernels, 5, device)


def test_the_plans_that_were_not_used_for_longest_are_dropped(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_backend, "MOST_PLANS", 3)
    kernels = TritonKernels()
    first, second, third = (plan_of(kernels, width, device) for width in (1, 2, 3))
    assert plan_of(kernels, 1, device) is first
    plan_of(kernels, 4, device)
    assert plan_of(kernels, 1, device) is first
    assert plan_of(kernels, 3, device) is third
    assert plan_of(kernels, 2, device) is not second


def test_plans_hold_no_more_workspace_than_they_may(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "MOST_WORKSPACE", 40_000)
    kernels = TritonKernels(exact=True)  # always split
    plans = [plan_of(kernels, width, device) for width in range(1, 30)]
    held = sum(plan.workspace for plan in kernels._plans.values())
    assert held == kernels._workspace <= 40_000
    assert plan_of(kernels, 29, device) is plans[-1]
    assert plan_of(kernels, 1, device) is not plans[0]


def test_a_plan_larger_than_the_bound_is_still_made(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_backend, "MOST_WORKSPACE", 10)
    kernels = TritonKernels(exact=True)
    assert plan_of(kernels, 3, device) is plan_of(kernels, 3, device)
