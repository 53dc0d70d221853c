"""Plain drafting of a chain: the whole sequence from nothing for every step, dense, no pages, no kept state.

Written apart from the modules, from the names and shapes of their checkpoints, so that the two check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gpu_backend.modules.config import DrafterConfig
from gpu_backend.modules.plain import DenseCache, PlainStack, PlainTarget, Weights

Choose = Callable[[torch.Tensor, int, int], int]  # logits [vocabulary], position of the anchor, slot -> a token


def greedily(logits: torch.Tensor, anchor: int, slot: int) -> int:
    """The likeliest token."""
    return int(logits.argmax())


class PlainChain(PlainStack):
    """EAGLE3 or MTP, one sequence at a time."""

    config: DrafterConfig

    def __init__(self, config: DrafterConfig, weights: Weights, dtype: torch.dtype | None = None) -> None:
        named = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in weights.items()}
        super().__init__(config, named, "", dtype)
        self.eagle = config.kind == "eagle3"

    def cell(
        self, module: int, tokens: Sequence[int], hidden: torch.Tensor, cache: DenseCache, target: PlainTarget
    ) -> torch.Tensor:
        """States ``[n, hidden]`` of cells of one module behind those in ``cache``, which keeps these as well."""
        name, first = f"layers.{module}", 0 if (held := cache.k[module]) is None else len(held)
        embedded = target.weights["model.embed_tokens.weight"][torch.tensor(list(tokens), device=self.device)]
        embedded = embedded.to(self.dtype)
        if self.eagle:
            x = hidden
            parts = self.norm(embedded, f"{name}.input_layernorm.weight"), self.norm(x, f"{name}.hidden_norm.weight")
            seen_by = torch.cat(parts, -1)
        else:
            parts = self.norm(embedded, f"{name}.enorm.weight"), self.norm(hidden, f"{name}.hnorm.weight")
            x = torch.cat(parts, -1) @ self.weights[f"{name}.eh_proj.weight"].T
            seen_by = self.norm(x, f"{name}.input_layernorm.weight")
        q, k, v = (self.heads(seen_by, module, kind, first) for kind in "qkv")
        cache.put(module, *(every := cache.extended(module, k, v)))
        position = first + torch.arange(len(x), device=self.device)
        key = torch.arange(first + len(x), device=self.device)
        seen = key[None] <= position[:, None]
        window = self.config.window(module)
        if window is not None:
            seen = seen & (position[:, None] - key[None] < window)
        return self.behind_attention(x, self.attend(q, *every, seen), module)

    @torch.no_grad()
    def drafts(
        self, target: PlainTarget, tokens: Sequence[int], choose: Choose = greedily
    ) -> tuple[list[int], DenseCache]:
        """K drafts behind ``tokens``, the last of which is the anchor, and the cells that a drafter had for them."""
        config, anchor = self.config, len(tokens) - 1
        _, features = target.forward(tokens[:-1], DenseCache(target.config.layers), config.taps)
        hidden = features.to(self.dtype)
        if self.eagle:
            hidden = hidden @ self.weights["fc.weight"].T
        cache, every = DenseCache(config.depth), list(tokens)
        for module in range(config.depth):
            hidden = self.cell(module, every[module + 1 : module + 1 + anchor], hidden, cache, target)
            every.append(choose(self.logits(module, hidden[-1:], target), anchor, module))
        last = config.depth - 1
        for slot in range(config.depth, config.drafts):
            hidden = self.cell(last, every[-1:], hidden[-1:], cache, target)
            every.append(choose(self.logits(last, hidden, target), anchor, slot))
        return every[anchor + 1 :], cache

    def logits(self, module: int, state: torch.Tensor, target: PlainTarget) -> torch.Tensor:
        """Logits ``[vocabulary]`` behind one state ``[1, hidden]``."""
        name = "norm.weight" if self.eagle else f"layers.{module}.shared_head.norm.weight"
        return target.head(self.norm(state, name).to(target.dtype))[0]


def speculate_chain(
    target: PlainTarget, drafter: PlainChain, prompt: Sequence[int], count: int, *, placeholders: int = 0
) -> tuple[list[int], list[int]]:
    """At least ``count`` greedy tokens behind ``prompt``, and the tokens that each step committed.

    The first token is in no step; the first ``placeholders`` steps verify drafts of nobody and commit one token.
    """
    logits, _ = target.forward(prompt, DenseCache(target.config.layers))
    output, steps = [int(logits[-1].argmax())], []
    while len(output) < count:
        drafts: list[int] = []
        if len(steps) >= placeholders:
            drafts, _ = drafter.drafts(target, [*prompt, *output])
        logits, _ = target.forward([*prompt, *output, *drafts], DenseCache(target.config.layers))
        choice = logits[len(prompt) + len(output) - 1 :].argmax(-1).tolist()
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == choice[accepted]:
            accepted += 1
        output += choice[: accepted + 1]
        steps.append(accepted + 1)
    return output, steps
