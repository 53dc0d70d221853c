"""Qwen3-style target over paged K/V: one pass over context chunks, verify rows and padding rows alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from gpu_backend.backend import kernels_for
from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import TargetConfig
from gpu_backend.modules.layers import Embedding, Layer, Norm, Projection, Rotary
from gpu_backend.modules.stack import Runner, run_layers
from gpu_backend.modules.step import Step


@dataclass(slots=True)
class TargetOutput:
    """Logits ``[wanted, vocabulary]``, and the features of every token, ``[tokens, taps * hidden]``."""

    logits: torch.Tensor
    features: torch.Tensor


class Body(nn.Module):
    """Everything but the head, under the name that checkpoints use."""

    def __init__(self, config: TargetConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, config.eps)


class Target(nn.Module):
    """The target; ``taps`` are the layers whose outputs its drafter reads.

    :meth:`ready` binds the kernels of its device; a forward pass queues kernels only and reads nothing back, so it can
    be captured in a CUDA graph.
    """

    run: Runner

    def __init__(self, config: TargetConfig, taps: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.config, self.taps = config, taps
        self.model = Body(config)
        self.rotary = Rotary(config)
        if not config.tied:
            self.lm_head = Projection(config.hidden, config.vocabulary)

    def ready(self, device: torch.device | str, *, exact: bool = False) -> Target:
        """Move to ``device``, in the configuration's dtype, for inference.

        ``exact``: a row's results do not depend on the other rows of its step.
        """
        place_for_inference(self, device, self.config.dtype)
        self.run = Runner(kernels_for(device, exact=exact), RowBlocks.of(device, exact=exact))
        return self

    @property
    def stack(self) -> list[Layer]:
        """The layers."""
        return [layer for layer in self.model.layers if isinstance(layer, Layer)]

    @property
    def head_weight(self) -> torch.Tensor:
        """The head, ``[vocabulary, hidden]``."""
        return self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight

    def embed(self, token: torch.Tensor) -> torch.Tensor:
        """Embeddings of ``token`` ``[tokens]``: ``[tokens, hidden]``."""
        return self.model.embed_tokens(token)

    def head(self, normed: torch.Tensor) -> tuple[torch.Tensor]:
        """Logits of normed states ``[tokens, hidden]``."""
        return (F.linear(normed, self.head_weight),)

    @torch.no_grad()
    def forward(self, step: Step, wanted: torch.Tensor | None = None) -> TargetOutput:
        """Store, attend and compute; ``wanted`` int64 names the tokens whose logits are asked for (``None``: all)."""
        x = self.embed(step.token)
        rotation = self.rotary.at(step.position)
        x, tapped = run_layers(self.stack, self.config, x, rotation, step, self.run, causal=True, taps=self.taps)
        last = x if wanted is None else x[wanted]
        (logits,) = self.run.blocks(lambda rows: self.head(self.model.norm(rows)), last)
        features = torch.cat(tapped, -1) if tapped else x.new_empty(len(x), 0)
        return TargetOutput(logits, features)


def place_for_inference(module: nn.Module, device: torch.device | str, dtype: torch.dtype) -> None:
    """Parameters of ``module`` on ``device`` in ``dtype``; the tables of rotations stay in float32."""
    module.requires_grad_(False).eval()
    for parameter in module.parameters():
        parameter.data = parameter.data.to(device, dtype)
    kept = module.state_dict().keys()
    for name, buffer in list(module.named_buffers()):
        owner = module.get_submodule(name.rpartition(".")[0])
        owner.register_buffer(name.rpartition(".")[2], buffer.to(device), persistent=name in kept)
