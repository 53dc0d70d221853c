"""Drafters that draft token by token: EAGLE3 (arXiv 2503.01840), and MTP as DeepSeek-V3 has it (arXiv 2412.19437).

Module ``j`` of a chain has a cell at position ``i`` that takes the embedding of token ``i + j`` and a hidden state at
``i``: of module 1 what the target said there, of module ``j`` the state of module ``j - 1``. It attends the cells of
its own layer up to ``i`` and says what token ``i + j + 1`` may be. So the cells of a position need as many tokens
behind it as there are modules: that is the lookahead.

EAGLE3 and MTP-Eagle have one module. Behind what the target has seen they go on by themselves: the hidden state of such
an autoregressive cell is the module's own at the position before, and its token the draft.

Everything but :meth:`Chain.cells` and :meth:`Chain.logits` computes each row from its own alone and takes whole
sequences as well, flat, so that a teacher-forced pass is :meth:`Chain.fuse`, then for each module :meth:`Chain.enter`,
the layer's two halves with plain causal attention between them, and :meth:`Chain.normed` ahead of the target's head.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import torch
from torch import nn

from gpu_backend.backend import kernels_for
from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.layers import Attention, Layer, Norm, Projection, Rotary
from gpu_backend.modules.stack import Runner, run_layer
from gpu_backend.modules.step import Step
from gpu_backend.modules.target import Target, place_for_inference


class Chain(nn.Module):
    """What all chains have in common; modules count from 0 here."""

    run: Runner

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        if config.depth != config.layers or (config.depth > 1 and config.depth != config.drafts):
            found = f"{config.depth} modules, {config.layers} layers and {config.drafts} drafts"
            raise ValueError(f"expected a layer a module and, of several modules, a draft each, found {found}")
        self.config = config
        self.rotary = Rotary(config)

    def ready(self, device: torch.device | str, *, exact: bool = False) -> Self:
        """As :meth:`Target.ready`."""
        place_for_inference(self, device, self.config.dtype)
        self.run = Runner(kernels_for(device, exact=exact), RowBlocks.of(device, exact=exact))
        return self

    @property
    @abstractmethod
    def stack(self) -> list[Layer]:
        """The modules' layers."""

    @abstractmethod
    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """What the target said at each position, ``[tokens, hidden]``, of ``features`` ``[tokens, taps * hidden]``."""

    @abstractmethod
    def enter(self, number: int, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """What the layer of module ``number`` takes, of embeddings and hidden states ``[tokens, hidden]``."""

    @abstractmethod
    def normed(self, number: int, state: torch.Tensor) -> torch.Tensor:
        """States of module ``number`` as the target's head takes them."""

    @torch.no_grad()
    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """:meth:`fuse` as a pass over pages needs it."""
        (found,) = self.run.blocks(lambda rows: (self.fuse(rows),), features)
        return found

    @torch.no_grad()
    def cells(self, number: int, step: Step, hidden: torch.Tensor, target: Target) -> torch.Tensor:
        """States ``[tokens, hidden]`` of cells of module ``number``, whose K/V is stored ahead of the attention.

        ``step.token`` are the tokens that the cells look ahead to; ``hidden`` is ``[tokens, hidden]``.
        """
        (x,) = self.run.blocks(lambda *rows: (self.enter(number, *rows),), target.embed(step.token), hidden)
        rotation = self.rotary.at(step.position)
        return run_layer(self.stack[number], number, self.config, x, rotation, step, self.run, causal=True)

    @torch.no_grad()
    def logits(self, number: int, state: torch.Tensor, target: Target) -> torch.Tensor:
        """Logits ``[rows, vocabulary]`` of states ``[rows, hidden]`` of module ``number``."""
        (found,) = self.run.blocks(lambda rows: target.head(self.normed(number, rows)), state)
        return found


class EagleLayer(Layer):
    """A layer whose attention sees the embedding beside the hidden state, while the stream is the latter alone."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.self_attn = Attention(config, 2 * config.hidden)
        self.hidden_norm = Norm(config.hidden, config.eps)

    def project(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values of ``x`` ``[tokens, 2 * hidden]``: embedding, then hidden state."""
        embedded, hidden = x.chunk(2, -1)
        normed = torch.cat([self.input_layernorm(embedded), self.hidden_norm(hidden)], -1)
        k, v = self.self_attn.keys_values(normed, cos, sin)
        return self.self_attn.queries(normed, cos, sin), k, v

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> tuple[torch.Tensor]:
        """The stream behind the layer, ``[tokens, hidden]``."""
        return super().finish(x.chunk(2, -1)[1], attended)


class Eagle3(Chain):
    """EAGLE3's one layer; parameter names are those of its checkpoints."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.fc = Projection(len(config.taps) * config.hidden, config.hidden)
        self.midlayer = EagleLayer(config)
        self.norm = Norm(config.hidden, config.eps)

    @property
    def stack(self) -> list[Layer]:
        return [self.midlayer]

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        return self.fc(features)

    def enter(self, number: int, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return torch.cat([embedded, hidden], -1)

    def normed(self, number: int, state: torch.Tensor) -> torch.Tensor:
        return self.norm(state)


class SharedHead(nn.Module):
    """The norm ahead of the head, under the name that checkpoints use; the head itself is the target's."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.norm = Norm(config.hidden, config.eps)


class MtpModule(Layer):
    """One module: embedding and hidden state, each normed, are projected into the stream of a decoder layer."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.enorm = Norm(config.hidden, config.eps)
        self.hnorm = Norm(config.hidden, config.eps)
        self.eh_proj = Projection(2 * config.hidden, config.hidden)
        self.shared_head = SharedHead(config)


class Mtp(Chain):
    """A chain of MTP modules, or one that goes on by itself (MTP-Eagle); parameter names are DeepSeek-V3's."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(MtpModule(config) for _ in range(config.depth))

    @property
    def stack(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def module(self, number: int) -> MtpModule:
        """Module ``number``."""
        found = self.layers[number]
        assert isinstance(found, MtpModule)
        return found

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def enter(self, number: int, embedded: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        module = self.module(number)
        return module.eh_proj(torch.cat([module.enorm(embedded), module.hnorm(hidden)], -1))

    def normed(self, number: int, state: torch.Tensor) -> torch.Tensor:
        return self.module(number).shared_head.norm(state)
