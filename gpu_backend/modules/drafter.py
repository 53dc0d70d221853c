"""DFlash drafter over paged K/V (arXiv 2602.06036), and DSpark, which is DFlash with a Markov head (arXiv 2607.05147).

Its context rows are the target's hidden features at the tapped layers, fused and projected into every layer's K and V:
the row of position ``p`` depends on the target's states at ``p`` and on ``p`` alone. A block is the anchor, the last
committed token, which has no such row yet, and masks behind it; it attends the context and itself, without causality
unless its configuration says otherwise of a layer, each query within its window. Block K/V are scratch: they lie where
the next fold writes.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from gpu_backend.backend import kernels_for
from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.layers import Layer, Norm, Projection, Rotary
from gpu_backend.modules.markov import Choose, ConfidenceHead, Drafted, MarkovHead, draft_slots, greedily
from gpu_backend.modules.stack import Runner, places, run_layer
from gpu_backend.modules.step import Step
from gpu_backend.modules.target import Target, place_for_inference


class Drafter(nn.Module):
    """The drafter of one target; parameter names are those of DFlash checkpoints."""

    run: Runner
    d2t: torch.Tensor

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, config.eps)
        self.fc = Projection(len(config.taps) * config.hidden, config.hidden)
        self.hidden_norm = Norm(config.hidden, config.eps)
        self.rotary = Rotary(config)
        self.markov_head = MarkovHead(config) if config.markov_rank else None
        self.confidence_head = ConfidenceHead(config) if config.confidence else None
        if config.drawn:
            self.lm_head = Projection(config.hidden, config.drawn)
            place = torch.arange(config.drawn)
            self.register_buffer("d2t", place * (config.vocabulary // config.drawn) - place)

    def ready(self, device: torch.device | str, *, exact: bool = False) -> Drafter:
        """As :meth:`Target.ready`."""
        place_for_inference(self, device, self.config.dtype)
        self.run = Runner(kernels_for(device, exact=exact), RowBlocks.of(device, exact=exact))
        return self

    @property
    def stack(self) -> list[Layer]:
        """The layers."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    @torch.no_grad()
    def context_rows(self, features: torch.Tensor, position: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """K and V of context rows, ``[tokens, kv_heads, head_dim]`` each, by layer.

        ``features`` is ``[tokens, taps * hidden]``, ``position`` absolute.
        """
        cos, sin = self.rotary.at(position)

        def rows(features: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
            fused = self.hidden_norm(self.fc(features))
            return tuple(part for layer in self.stack for part in layer.self_attn.keys_values(fused, cos, sin))

        flat = self.run.blocks(rows, features, cos, sin)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def fold(self, features: torch.Tensor, step: Step) -> None:
        """Store the context rows of tokens the target ran, which ``step`` places; nothing attends."""
        rows = self.context_rows(features, step.position)
        for (group, place), (k, v) in zip(places(self.config), rows, strict=True):
            paging = step.paging[group]
            self.run.kernels.store(paging.store(place, k, v), paging.writable)

    @torch.no_grad()
    def forward(self, step: Step, target: Target, choose: Choose = greedily) -> Drafted:
        """The drafts of each block; every row of ``step`` is one block.

        ``step.token`` is :meth:`block_tokens`, its positions go on from the anchor's. The lengths of its paging count
        the context and the block.
        """
        x, rotation = target.embed(step.token), self.rotary.at(step.position)
        for number, layer in enumerate(self.stack):
            causal = self.config.is_causal(number)
            x = run_layer(layer, number, self.config, x, rotation, step, self.run, causal=causal)
        slots = x.unflatten(0, (-1, self.config.block))[:, self.config.logits_start :].flatten(0, 1)
        anchor = step.token.unflatten(0, (-1, self.config.block))[:, 0]

        def scored(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.norm(rows)
            return hidden, self.narrow_logits(hidden, target.head_weight)

        hidden, logits = (part.unflatten(0, (-1, self.config.drafts)) for part in self.run.blocks(scored, slots))
        drafted = draft_slots(
            self.markov_head, hidden, logits, anchor, lambda told, first: choose(self.widened(told), first),
            self.run.blocks,
        )  # fmt: skip
        confident = self.confidence(hidden, anchor, drafted.token)
        return drafted._replace(logits=self.widened(drafted.logits), confident=confident)

    def narrow_logits(self, hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Logits of normed states by the drafter's own head, if it has one, else by the target's ``head``."""
        return self.lm_head(hidden) if self.config.drawn else F.linear(hidden, head.to(hidden.dtype))

    def widened(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits over the target's ids: of those that are never drafted minus infinity."""
        if not self.config.drawn:
            return logits
        ids = torch.arange(self.config.drawn, device=logits.device) + self.d2t
        wide = logits.new_full((*logits.shape[:-1], self.config.vocabulary), float("-inf"))
        return wide.index_copy(-1, ids, logits)

    def confidence(self, hidden: torch.Tensor, anchor: torch.Tensor, token: torch.Tensor) -> torch.Tensor | None:
        """Chances of acceptance, see :class:`Drafted`, of drafts ``token`` from normed states ``[rows, K, hidden]``."""
        if self.confidence_head is None:
            return None
        before = None
        if self.markov_head is not None:
            before = self.markov_head.markov_w1(torch.cat([anchor[:, None], token[:, :-1]], 1))
        return self.confidence_head(hidden, before).sigmoid()

    def logits_of(self, hidden: torch.Tensor, previous: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Logits ``[..., K, vocabulary]`` of normed states ``[..., K, hidden]`` where the tokens ``previous``
        ``[..., K]`` before each slot are known, as in training; ``head`` ``[vocabulary, hidden]`` is the target's."""
        logits = self.narrow_logits(hidden, head)
        if self.markov_head is not None:
            logits = logits + self.markov_head.block_bias(hidden, previous)
        return self.widened(logits)

    def block_tokens(self, anchor: torch.Tensor) -> torch.Tensor:
        """Tokens of the blocks behind ``anchor`` int64 ``[rows]``: ``[rows * block]``, masks behind each anchor."""
        blocks = anchor.new_full((len(anchor), self.config.block), self.config.mask_token)
        blocks[:, 0] = anchor
        return blocks.flatten()
