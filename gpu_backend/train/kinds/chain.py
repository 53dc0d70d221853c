"""What EAGLE3 and MTP share: cells that look ahead, over dense K/V."""

from __future__ import annotations

import torch

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import Rotation, attend, new_cache, run_target
from gpu_backend.train.kinds.base import Choose, Passes, Ran
from gpu_backend.train.optimiser import start


def begin_chain(module: Chain, norms: list[torch.nn.Parameter], target: Target, seed: int) -> None:
    """Weights by chance; ``norms``, those ahead of the head, are the target's."""
    start(module, module.config.layers, seed)
    with torch.no_grad():
        for norm in norms:
            norm.copy_(target.model.norm.weight)


@torch.no_grad()
def seen_by_target(
    target: Target, ids: torch.Tensor, behind: torch.Tensor, passes: Passes
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features ``[rows * length, taps * hidden]`` of ``ids`` int64 ``[rows, length]``; the target's logits
    ``[rows, *behind, vocabulary]`` behind the tokens at ``behind``; embeddings ``[rows, length, hidden]``."""
    states, features = run_target(target, ids, passes)
    (wanted,) = target.head(target.model.norm(states.unflatten(0, ids.shape)[:, behind]))
    return features, wanted, target.embed(ids).to(features.dtype)


class ChainContext:
    """Cells of every module, and the states that those of the next module are made of.

    What is known of a token is taken up by all modules at once: behind a token at position ``p`` stands one that the
    cell at ``p - j`` of module ``j`` (from 0) looks ahead to. Cells before the first position, and their states, lie in
    a spare place that nothing sees.
    """

    def __init__(self, target: Target, module: Chain, rows: int, longest: int) -> None:
        self.target, self.module = target, module
        self.cache = new_cache(module, rows, longest + 1)
        config = module.config
        self.states = self.cache.new_zeros(config.depth, rows, longest + 1, config.hidden)
        self.row = torch.arange(rows, device=self.cache.device)[:, None]

    def fold(self, ran: Ran) -> None:
        """The cells whose tokens are known."""
        hidden = self.module.fuse(ran.features).unflatten(0, ran.position.shape)
        for number in range(self.module.config.depth):
            place = ran.position - number
            place = torch.where(place < 0, self.cache.shape[3] - 1, place)
            if number:
                hidden = self.states[number - 1][self.row, place]
            self._cells(number, place, ran.following, hidden)

    def draft(
        self, anchor: torch.Tensor, position: torch.Tensor, choose: Choose
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One draft after the other: a module each, or all by the only one, from its own states."""
        config, last = self.module.config, position[:, None] - 1
        state = self.states[0][self.row, last]
        tokens, offers = [], []
        for drafted in range(config.drafts):
            number = drafted if config.depth > 1 else 0
            if drafted and config.depth == 1:
                last = last + 1
                state = self._cells(0, last, tokens[-1], state)
            elif drafted:
                for later in range(drafted, config.depth):
                    place = last + drafted - later
                    self._cells(later, place, tokens[-1], self.states[later - 1][self.row, place])
                state = self.states[number][self.row, last]
            (logits,) = self.target.head(self.module.normed(number, state))
            token, offered = choose(logits, drafted)
            tokens.append(token)
            if offered is not None:
                offers.append(offered)
        return torch.cat(tokens, 1), torch.cat(offers, 1) if offers else None

    def _cells(self, number: int, position: torch.Tensor, token: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """States ``[rows, n, hidden]`` of cells at ``position`` ``[rows, n]``, which are stored."""
        layer, kv = self.module.stack[number], self.cache[number]
        x = self.module.enter(number, self.target.embed(token.flatten()), hidden.flatten(0, 1))
        cos, sin = self.module.rotary.at(position.flatten())
        q, k, v = (part.unflatten(0, position.shape) for part in layer.project(x, cos, sin))
        kv[0][self.row, position], kv[1][self.row, position] = k, v
        seen = torch.arange(kv.shape[2], device=token.device) <= position[..., None]
        (x,) = layer.finish(x, attend(q, kv[0], kv[1], seen).flatten(0, 1))
        state = x.unflatten(0, position.shape)
        self.states[number][self.row, position] = state
        return state


def rotation_at(module: Chain, position: torch.Tensor, rows: int) -> Rotation:
    """Cosines and sines of ``position`` int64 ``[tokens]`` in each of ``rows`` sequences, flat."""
    return module.rotary.at(position.repeat(rows))
