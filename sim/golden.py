"""Golden acceptance lengths by draft length, and the chain of rates behind one of them.

The curves are mean acceptance lengths (bonus token included) for K = 1..8 drafts on SPEED-Bench coding, from the
public InferenceX repository (golden_al_distribution, Apache-2.0). They are cold, full-context values: the natural
ceiling of a model whose penalty is missing drafter context.
"""

from __future__ import annotations

from itertools import pairwise

from sim.cost_fit import non_decreasing

CURVES: dict[str, tuple[float, ...]] = {
    "kimi-k3-dspark": (1.84, 2.45, 2.87, 3.22, 3.44, 3.54, 3.78, 3.88),
    "kimi-k3-dspark-block": (1.85, 2.51, 3.00, 3.36, 3.62, 3.75, 3.84, 4.00),
    "deepseek-v4-pro-dspark": (1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.73, 3.47),
    "minimax-m3-eagle3": (1.78, 2.38, 2.83, 3.11, 3.35, 3.45, 3.53, 3.74),
    "qwen3.5-mtp": (1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
}


def chain_rates(curve: tuple[float, ...], drafts: int) -> tuple[float, ...]:
    """Conditional acceptance rates of positions 1..``drafts`` whose chain has the mean length ``curve[drafts - 1]``.

    The increments of the curve are the chances that at least j drafts are accepted. Each K was measured with its own
    drafter, so neighbours may rise and the last may be negative (a deeper draft that does worse); they are pooled until
    none is, which keeps their sum and so the mean exact.
    ValueError if the curve has no value for ``drafts``.
    """
    if not 1 <= drafts <= len(curve):
        raise ValueError(f"the curve has acceptance lengths for 1..{len(curve)} drafts, not {drafts}")
    lengths = (1.0, *curve[:drafts])
    falls = [before - after for before, after in pairwise(lengths)]
    survival = [-value for value in non_decreasing(falls, [1] * drafts)]
    tail = 1
    while survival[-1] < 0.0:
        tail += 1
        survival[-tail:] = [sum(survival[-tail:]) / tail] * tail
    return tuple(
        min(1.0, chance / before) if before else 0.0 for chance, before in zip(survival, (1.0, *survival), strict=False)
    )
