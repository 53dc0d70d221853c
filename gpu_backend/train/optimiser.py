"""Muon for matrices (Jordan 2024), AdamW for embeddings and gains, and the time that both follow."""

from __future__ import annotations

import torch
from torch import nn

TABLES = ("embed", "markov")  # in the names of matrices with a row for each token
QUINTIC = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """Near the closest semi-orthogonal matrices to ``x`` ``[n, rows, columns]``, in five Newton-Schulz steps."""
    first, second, third = QUINTIC
    wide = x.shape[-2] > x.shape[-1]
    y = (x.mT if wide else x).to(torch.bfloat16 if x.is_cuda else torch.float32)  # a CPU is slow in bf16
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = y @ y.mT
        y = first * y + (second * gram + third * gram @ gram) @ y
    return (y.mT if wide else y).float()


class Optimiser:
    """One step for all parameters of a module; matrices of one shape are stacked."""

    def __init__(self, module: nn.Module, muon: float, adam: float, decay: float = 0.0, momentum: float = 0.95) -> None:
        self.muon, self.adam, self.decay, self.momentum = muon, adam, decay, momentum
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.matrices: dict[torch.Size, list[nn.Parameter]] = {}
        others = []
        for name, parameter in module.named_parameters():
            if parameter.ndim == 2 and not _table(name):
                self.matrices.setdefault(parameter.shape, []).append(parameter)
            else:
                others.append(parameter)
        on_gpu = others[0].is_cuda
        self.other = torch.optim.AdamW(others, lr=adam, betas=(0.9, 0.95), weight_decay=0.0, fused=on_gpu)
        self.moving = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self.matrices.items()
        }
        self.orthogonal = torch.compile(orthogonal) if on_gpu else orthogonal

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Go down the gradients, clipped to a norm of 1, at ``scale`` times the rates, and clear them."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        rate = self.muon * scale
        for shape, group in self.matrices.items():
            grad = torch.stack([parameter.grad for parameter in group if parameter.grad is not None]).float()
            moving = self.moving[shape].mul_(self.momentum).add_(grad)
            update = self.orthogonal(grad + self.momentum * moving) * max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, part in zip(group, update.unbind(), strict=True):
                parameter.mul_(1 - rate * self.decay).add_(part, alpha=-rate)
                parameter.grad = None
        for options in self.other.param_groups:
            options["lr"] = self.adam * scale
        self.other.step()
        self.other.zero_grad(set_to_none=True)


def rate_at(progress: float, shape: tuple[float, float]) -> float:
    """Share of the rates at ``progress`` in [0, 1]: warm-up, flat, a line down to 0. ``shape`` are the shares of
    warm-up and descent."""
    warm, descent = shape
    if progress < warm:
        return max(progress / warm, 0.02)
    return 1.0 if progress <= 1 - descent else max((1 - progress) / descent, 0.0)


@torch.no_grad()
def start(module: nn.Module, layers: int, seed: int) -> None:
    """Draw first weights: matrices by their width, those that end a branch smaller, embeddings of 0.02, gains of 1."""
    draw = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1:
            parameter.fill_(1.0)
            continue
        scale = 0.02 if _table(name) else 0.6 * parameter.shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= (2 * layers) ** 0.5
        parameter.copy_(torch.randn(parameter.shape, generator=draw) * scale)


def _table(name: str) -> bool:
    return any(one in name for one in TABLES)
