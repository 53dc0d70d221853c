"""Plain decoding: the same weights with dense K/V, no pages, no kernels, no drafter; torch alone.

Written apart from the modules, from the names and shapes of a checkpoint, so that the two check each other. With
``dtype`` float64 it is the reference of every tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from gpu_backend.modules.config import DecoderConfig, DrafterConfig, TargetConfig

Weights = Mapping[str, torch.Tensor]


class DenseCache:
    """K and V of one sequence by layer, ``[length, kv_heads, head_dim]``, grown by concatenation."""

    def __init__(self, layers: int) -> None:
        self.k: list[torch.Tensor | None] = [None] * layers
        self.v: list[torch.Tensor | None] = [None] * layers

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.k[0] is None else len(self.k[0])

    def extended(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of ``layer`` with more rows behind them; the cache stays as it is."""
        held_k, held_v = self.k[layer], self.v[layer]
        return (k, v) if held_k is None or held_v is None else (torch.cat([held_k, k]), torch.cat([held_v, v]))

    def put(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Replace what is held of ``layer``."""
        self.k[layer], self.v[layer] = k, v


class PlainStack:
    """Decoder layers of one sequence, from checkpoint ``weights`` whose layers begin with ``prefix``."""

    def __init__(self, config: DecoderConfig, weights: Weights, prefix: str, dtype: torch.dtype | None) -> None:
        self.config, self.prefix = config, prefix
        self.dtype = dtype or config.dtype
        self.weights = {name: tensor.detach().to(self.dtype) for name, tensor in weights.items()}
        self.device = next(iter(self.weights.values())).device

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """RMSNorm by the gain ``name``."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scaled = wide / (wide.pow(2).mean(-1, keepdim=True) + self.config.eps).sqrt()
        return (scaled * self.weights[name].to(wide.dtype)).to(x.dtype)

    def heads(self, x: torch.Tensor, layer: int, kind: str, first: int | torch.Tensor) -> torch.Tensor:
        """Projected heads ``[tokens, heads, head_dim]`` of one layer: ``kind`` q, k (both turned) or v."""
        name = f"{self.prefix}layers.{layer}.self_attn.{kind}"
        heads = (x @ self.weights[f"{name}_proj.weight"].T).unflatten(-1, (-1, self.config.head_dim))
        if kind == "v":
            return heads
        return self.turned(self.norm(heads, f"{name}_norm.weight") if self.config.qk_norm else heads, first)

    def turned(self, heads: torch.Tensor, first: int | torch.Tensor) -> torch.Tensor:
        """The rotary embedding as a product of complex numbers; row ``i`` stands at ``first + i``."""
        half = self.config.head_dim // 2
        position = first + torch.arange(len(heads), dtype=torch.float64, device=self.device)
        frequency = self.config.theta ** (-torch.arange(half, dtype=torch.float64, device=self.device) / half)
        angle = torch.outer(position, frequency)
        wide = heads.to(torch.promote_types(heads.dtype, torch.float32))
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]
        product = torch.complex(wide[..., :half].double(), wide[..., half:].double()) * turn
        return torch.cat([product.real, product.imag], -1).to(heads.dtype)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Dense attention; ``seen`` is bool ``[queries, keys]``."""
        wide = torch.promote_types(q.dtype, torch.float32)
        group = self.config.heads // self.config.kv_heads
        k, v = (part.to(wide).repeat_interleave(group, 1) for part in (k, v))
        score = torch.einsum("qhd,nhd->hqn", q.to(wide), k) / self.config.head_dim**0.5
        weight = score.masked_fill(~seen, float("-inf")).softmax(-1)
        return torch.einsum("hqn,nhd->qhd", weight, v).to(q.dtype)

    def behind_attention(self, x: torch.Tensor, attended: torch.Tensor, layer: int) -> torch.Tensor:
        """The residual stream behind the layer."""
        name = f"{self.prefix}layers.{layer}"
        x = x + attended.flatten(1) @ self.weights[f"{name}.self_attn.o_proj.weight"].T
        normed = self.norm(x, f"{name}.post_attention_layernorm.weight")
        gate = normed @ self.weights[f"{name}.mlp.gate_proj.weight"].T
        up = normed @ self.weights[f"{name}.mlp.up_proj.weight"].T
        wide = gate.to(torch.promote_types(gate.dtype, torch.float32))
        return x + ((wide / (1 + (-wide).exp())).to(gate.dtype) * up) @ self.weights[f"{name}.mlp.down_proj.weight"].T


class PlainTarget(PlainStack):
    """Plain decoding of one sequence at a time."""

    config: TargetConfig

    def __init__(self, config: TargetConfig, weights: Weights, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, weights, "model.", dtype)

    @torch.no_grad()
    def forward(
        self, tokens: Sequence[int], cache: DenseCache, taps: tuple[int, ...] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run ``tokens`` behind what ``cache`` holds.

        Logits are ``[tokens, vocabulary]``, features ``[tokens, taps * hidden]``.
        """
        first = cache.length
        ids = torch.tensor(list(tokens), device=self.device)
        x = self.weights["model.embed_tokens.weight"][ids]
        position = first + torch.arange(len(ids), device=self.device)
        key = torch.arange(first + len(ids), device=self.device)
        tapped: dict[int, torch.Tensor] = {}
        for layer in range(self.config.layers):
            normed = self.norm(x, f"model.layers.{layer}.input_layernorm.weight")
            q, k, v = (self.heads(normed, layer, kind, first) for kind in "qkv")
            cache.put(layer, *(held := cache.extended(layer, k, v)))
            seen = key[None] <= position[:, None]
            window = self.config.window(layer)
            if window is not None:
                seen = seen & (position[:, None] - key[None] < window)
            x = tapped[layer] = self.behind_attention(x, self.attend(q, *held, seen), layer)
        features = torch.cat([tapped[layer] for layer in taps], -1) if taps else x[:, :0]
        return self.head(self.norm(x, "model.norm.weight")), features

    def head(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits of normed states."""
        name = "model.embed_tokens.weight" if self.config.tied else "lm_head.weight"
        return normed @ self.weights[name].T


class PlainDrafter(PlainStack):
    """The drafter over dense context rows."""

    config: DrafterConfig

    def __init__(self, config: DrafterConfig, weights: Weights, dtype: torch.dtype | None = None) -> None:
        super().__init__(config, weights, "", dtype)

    @torch.no_grad()
    def context_rows(self, features: torch.Tensor, first: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """K and V by layer of the context rows of positions ``first`` on, recomputed from ``features``."""
        fused = self.norm(features.to(self.dtype) @ self.weights["fc.weight"].T, "hidden_norm.weight")
        return [
            (self.heads(fused, layer, "k", first), self.heads(fused, layer, "v", first))
            for layer in range(self.config.layers)
        ]

    @torch.no_grad()
    def block(self, anchor: int, context: DenseCache, target: PlainTarget, hidden: int = 0) -> torch.Tensor:
        """Logits ``[K, vocabulary]`` of the drafts behind ``anchor``, which stands behind the context.

        With a Markov head each slot is biased by the greedy draft of the one before it. Rows below ``hidden`` are not
        read.
        """
        start = context.length
        ids = torch.full((self.config.block,), self.config.mask_token, device=self.device)
        ids[0] = anchor
        x = target.weights["model.embed_tokens.weight"][ids].to(self.dtype)
        position = start + torch.arange(self.config.block, device=self.device)
        key = torch.arange(start + self.config.block, device=self.device)
        for layer in range(self.config.layers):
            normed = self.norm(x, f"layers.{layer}.input_layernorm.weight")
            q, k, v = (self.heads(normed, layer, kind, start) for kind in "qkv")
            seen = (key >= hidden).expand(len(position), -1)
            if self.config.is_causal(layer):
                seen = seen & (key[None] <= position[:, None])
            window = self.config.window(layer)
            if window is not None:
                seen = seen & (position[:, None] - key[None] < window)
            x = self.behind_attention(x, self.attend(q, *context.extended(layer, k, v), seen), layer)
        states = self.norm(x, "norm.weight")[self.config.logits_start :]
        logits = states @ self.weights["lm_head.weight"].T if self.config.drawn else target.head(states)
        return self.chained(anchor, states, logits) if self.config.markov_rank else self.wide(logits)

    def wide(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits ``[..., vocabulary]`` of a drafter that drafts some ids only; the others have minus infinity."""
        if not self.config.drawn:
            return logits
        every = torch.full((*logits.shape[:-1], self.config.vocabulary), float("-inf"), dtype=logits.dtype)
        every = every.to(self.device)
        for place, offset in enumerate(self.weights["d2t"].tolist()):
            every[..., place + int(offset)] = logits[..., place]
        return every

    def chained(self, anchor: int, hidden: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` ``[K, vocabulary]`` with the Markov head's bias; ``hidden`` ``[K, hidden]`` is normed."""
        weights = {name.removeprefix("markov_head."): tensor for name, tensor in self.weights.items()}
        state = torch.zeros(self.config.markov_rank, dtype=self.dtype, device=self.device)
        before, found = anchor, []
        for own, base in zip(hidden, logits, strict=True):
            read = weights["markov_w1.weight"][before]
            if self.config.markov == "gated":
                gate = weights["gate_proj.weight"] @ torch.cat([own, read]) + weights["gate_proj.bias"]
                read = read / (1 + (-gate).exp())
            if self.config.markov == "rnn":
                joint = weights["joint_proj.weight"] @ torch.cat([state, read, own]) + weights["joint_proj.bias"]
                forget, new, read = joint.reshape(3, -1)
                state = new.tanh() + (state - new.tanh()) / (1 + (-forget).exp())
                read = read.tanh()
            found.append(self.wide(base + weights["markov_w2.weight"] @ read))
            before = int(found[-1].argmax())
        return torch.stack(found)
