"""DSpark's Markov head: the logits of a slot are biased by the token before it (DeepSpec, arXiv 2607.05147).

A block still takes one pass of the layers; its slots are then drafted one after another through this head alone. With
``e = W1[token before]`` of ``rank`` numbers and ``h`` the slot's normed state, the bias is

* ``vanilla``: ``W2 e``
* ``gated``: ``W2 (s(G [h, e] + g) * e)``, ``s`` the logistic function
* ``rnn``: ``W2 tanh(o)``, where ``[z, c, o] = J [state, e, h] + j`` and the state, 0 at the first slot, becomes
  ``s(z) state + (1 - s(z)) tanh(c)``

Parameter names are those of DSpark checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from gpu_backend.modules.blocks import RowBlocks
from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.layers import Embedding, Projection

FORMS = ("vanilla", "gated", "rnn")

# Tokens int64 ``[rows, n]`` for logits ``[rows, n, vocabulary]`` of the slots from the given one on, and what they were
# drawn from, float64 of the logits' shape, where somebody asks for it.
Choose = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor | None]]


def greedily(logits: torch.Tensor, first: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The largest logit of each slot."""
    return logits.argmax(-1), None


class Drafted(NamedTuple):
    """Drafts ``token`` int64 ``[rows, K]``, what they were drawn from (see :data:`Choose`), and their logits.

    ``confident`` float32 ``[rows, K]`` is the chance of acceptance that the drafter's confidence head gives a draft
    whose predecessors were accepted, ``None`` without such a head.
    """

    token: torch.Tensor
    offered: torch.Tensor | None
    logits: torch.Tensor
    confident: torch.Tensor | None = None


class MarkovHead(nn.Module):
    """The head of one drafter, of any of the three forms."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        rank = config.markov_rank
        self.form, self.rank = config.markov, rank
        self.markov_w1 = Embedding(config.vocabulary, rank)
        self.markov_w2 = Projection(rank, config.drawn or config.vocabulary)
        if self.form == "gated":
            self.gate_proj = Projection(config.hidden + rank, rank, bias=True)
        if self.form == "rnn":
            self.joint_proj = Projection(2 * rank + config.hidden, 3 * rank, bias=True)

    def state(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the first slot of a block begins with, for states ``[..., hidden]``; empty but for ``rnn``."""
        return hidden.new_zeros(*hidden.shape[:-1], self.rank if self.form == "rnn" else 0)

    def bias(
        self, hidden: torch.Tensor, previous: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Bias ``[..., vocabulary]`` of slots with states ``hidden`` behind tokens ``previous`` ``[...]``, and the
        next slot's ``state``."""
        before = self.markov_w1(previous)
        if self.form == "gated":
            before = torch.sigmoid(self.gate_proj(torch.cat([hidden, before], -1))) * before
        elif self.form == "rnn":
            keep, new, out = self.joint_proj(torch.cat([state, before, hidden], -1)).chunk(3, -1)
            keep, before = torch.sigmoid(keep), torch.tanh(out)
            state = keep * state + (1 - keep) * torch.tanh(new)
        return self.markov_w2(before), state

    def block_bias(self, hidden: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        """Bias ``[..., K, vocabulary]`` of all slots of blocks, ``hidden`` ``[..., K, hidden]``, ``previous``
        ``[..., K]``: all tokens are known, as in training."""
        if self.form != "rnn":
            return self.bias(hidden, previous, self.state(hidden))[0]
        state, found = self.state(hidden[..., 0, :]), []
        for slot in range(hidden.shape[-2]):
            bias, state = self.bias(hidden[..., slot, :], previous[..., slot], state)
            found.append(bias)
        return torch.stack(found, -2)


class ConfidenceHead(nn.Module):
    """One number a slot: the logit of the chance that its draft is accepted once those before it were."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        inputs = config.hidden + (config.markov_rank if config.confidence == "markov" else 0)
        self.with_markov = config.confidence == "markov"
        self.proj = Projection(inputs, 1, bias=True)

    def forward(self, hidden: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        """Logits float32 ``[...]`` for states ``[..., hidden]`` and embeddings ``[..., rank]`` of the tokens before."""
        read = torch.cat([hidden, before.to(hidden.dtype)], -1) if self.with_markov and before is not None else hidden
        return self.proj(read)[..., 0].float()


def draft_slots(
    head: MarkovHead | None, hidden: torch.Tensor, logits: torch.Tensor, anchor: torch.Tensor, choose: Choose,
    blocks: RowBlocks | None = None,
) -> Drafted:  # fmt: skip
    """Draft blocks behind ``anchor`` int64 ``[rows]``: ``logits`` ``[rows, K, vocabulary]`` are without the head's
    bias, ``hidden`` ``[rows, K, hidden]`` normed. Slot by slot with a head, at once without; nothing is read back."""
    if head is None:
        return Drafted(*choose(logits, 0), logits)
    blocks = blocks or RowBlocks(None)

    def biased(
        hidden: torch.Tensor, logits: torch.Tensor, previous: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        bias, state = head.bias(hidden, previous, state)
        return logits + bias, state

    state, previous = head.state(hidden[:, 0]), anchor
    tokens, offers, scores = [], [], []
    for slot in range(logits.shape[1]):
        score, state = blocks(biased, hidden[:, slot], logits[:, slot], previous, state)
        token, offered = choose(score[:, None], slot)
        previous = token[:, 0]
        tokens.append(token)
        scores.append(score)
        if offered is not None:
            offers.append(offered)
    return Drafted(torch.cat(tokens, 1), torch.cat(offers, 1) if offers else None, torch.stack(scores, 1))
