"""What the target itself would write behind every anchor of raw text: paths of greedy tokens, all anchors at once.

Drafts are accepted where they are the target's own choice. The tokens that stand behind an anchor in raw text leave
its path after a few, and a drafter that does not see them would be trained on another branch than it is asked for.
"""

from __future__ import annotations

import torch

from gpu_backend.modules.target import Target
from gpu_backend.train.dense import KeyValues, Passes, working


@torch.no_grad()
def greedy_paths(
    target: Target, state: torch.Tensor, kept: list[KeyValues], anchor: torch.Tensor, count: int, passes: Passes
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` greedy tokens behind each anchor, int64 ``[rows, anchors, count]``, and the target's logits there.

    ``state`` ``[rows, anchors, hidden]`` stands behind the last layer at the anchors, whose positions are ``anchor``
    int64 ``[anchors]``; ``kept`` is K and V of whole sequences by layer, ``[rows, length, kv_heads, dim]``.
    """
    (rows, anchors, _), length, device = state.shape, kept[0][0].shape[1], state.device
    reached = torch.arange(length, device=device) <= anchor[:, None]
    step = torch.arange(count - 1, device=device)
    own = [[part.new_zeros(rows, anchors, count - 1, *part.shape[2:]) for part in pair] for pair in kept]
    x = state.flatten(0, 1)
    tokens, logits = [], []
    for number in range(count):
        (found,) = target.head(target.model.norm(x))
        logits.append(found)
        tokens.append(found.argmax(-1))
        if number + 1 < count:
            cos, sin = target.rotary.at((anchor + 1 + number).repeat(rows))
            x = working(target.embed(tokens[-1]))
            for layer, (k, v), mine in zip(target.stack, kept, own, strict=True):
                x, *mine[:] = passes.further(layer, x, cos, sin, k, v, *mine, reached, step - number)
    return torch.stack(tokens, 1).unflatten(0, (rows, anchors)), torch.stack(logits, 1).unflatten(0, (rows, anchors))
