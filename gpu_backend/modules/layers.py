"""Decoder layers: normalisation, rotation, projections and the gated MLP, with parameter names as in HF checkpoints.

A layer is split where the pages come in: :meth:`Layer.project` gives queries, keys and values, the stack stores and
attends, :meth:`Layer.finish` does the rest. Both compute each row from its own alone, so they run in row blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from gpu_backend.modules.config import DecoderConfig

BEHIND = 256  # positions behind the last that verify rows and blocks may reach

Reduce = Callable[[torch.Tensor], torch.Tensor]


def alone(partial: torch.Tensor) -> torch.Tensor:
    """The sum over ranks where there is one rank."""
    return partial


class Projection(nn.Linear):
    """A matrix, by default without a bias. Its weights are loaded or filled, so none are drawn for nothing."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class Embedding(nn.Embedding):
    """A table of embeddings, loaded or filled as well."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class Norm(nn.Module):
    """RMSNorm over the last axis, in float32 (Zhang and Sennrich 2019)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (scaled * self.weight.float()).to(x.dtype)


class Rotary(nn.Module):
    """Rotary embedding (Su et al. 2021) by halves, as in HF: pair ``i`` of a head is ``(i, i + head_dim / 2)``.

    The tables are computed on the CPU in float64, so that every device has the same bits.
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device="cpu") / config.head_dim
        position = torch.arange(config.positions + BEHIND, dtype=torch.float64, device="cpu")
        angle = position[:, None] * config.theta**-half
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def at(self, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine at ``position`` ``[tokens]``, float32 ``[tokens, head_dim / 2]`` each."""
        return self.cos[position], self.sin[position]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """``x`` ``[tokens, heads, head_dim]`` turned by the angles of its tokens, computed in float32."""
    left, right = x.float().chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(x.dtype)


class Attention(nn.Module):
    """Projections of one layer's attention; heads may be a rank's share. ``inputs`` is the hidden size unless said."""

    def __init__(self, config: DecoderConfig, inputs: int | None = None) -> None:
        super().__init__()
        self.dim = config.head_dim
        inputs = inputs or config.hidden
        self.q_proj = Projection(inputs, config.heads * self.dim)
        self.k_proj = Projection(inputs, config.kv_heads * self.dim)
        self.v_proj = Projection(inputs, config.kv_heads * self.dim)
        self.o_proj = Projection(config.heads * self.dim, config.hidden)
        self.q_norm = Norm(self.dim, config.eps) if config.qk_norm else nn.Identity()
        self.k_norm = Norm(self.dim, config.eps) if config.qk_norm else nn.Identity()

    def queries(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Queries of ``x`` ``[tokens, inputs]``: ``[tokens, heads, head_dim]``."""
        return rotate(self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.dim))), cos, sin)

    def keys_values(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of ``x``: ``[tokens, kv_heads, head_dim]`` each."""
        k = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.dim)))
        return rotate(k, cos, sin), self.v_proj(x).unflatten(-1, (-1, self.dim))


class GatedMlp(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = Projection(config.hidden, config.intermediate)
        self.up_proj = Projection(config.hidden, config.intermediate)
        self.down_proj = Projection(config.intermediate, config.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One decoder layer without the attention itself. ``reduce`` sums partial outputs over the ranks that share it."""

    reduce: Reduce = staticmethod(alone)

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = GatedMlp(config)
        self.input_layernorm = Norm(config.hidden, config.eps)
        self.post_attention_layernorm = Norm(config.hidden, config.eps)

    def project(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values of the residual stream ``x`` ``[tokens, hidden]``."""
        normed = self.input_layernorm(x)
        k, v = self.self_attn.keys_values(normed, cos, sin)
        return self.self_attn.queries(normed, cos, sin), k, v

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> tuple[torch.Tensor]:
        """The residual stream behind the layer; ``attended`` is ``[tokens, heads, head_dim]``."""
        x = x + self.reduce(self.self_attn.o_proj(attended.flatten(1)))
        return (x + self.reduce(self.mlp(self.post_attention_layernorm(x))),)
