"""LOSSLESS with any rule: is what was committed what the rule gives from recomputed logits and the same draws?

Written apart from :mod:`gpu_backend.acceptance.rules`, row by row on the host, so that the two check each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.acceptance.draws import Purpose, stream_of
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.modules.verify import TIED, Differs, differences
from gpu_backend.replay.agreed import Ran
from model.tokens import mix64, mix64_array

_GOLDEN, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
Floats = NDArray[np.float64]


class ColdTokens:
    """The recorded output of one request beside the logits ``[outputs, vocabulary]`` of its cold run.

    Row ``i`` are the logits behind ``prompt`` tokens and ``output[:i]``. ``request`` is the key of its draws.

    A token of plain sampling (greedy, ``match``, behind a prompt or placeholders) is held to the argmax of logits and
    noise, tied as :func:`gpu_backend.modules.verify.differences` says. What a step commits by ``token`` or ``block`` is
    held to the rule by the cold logits of every place that was committed, those behind drafts that were not being the
    pass's own. Where that gives other tokens, the step is tied if the pass's logits at the committed places are within
    ``TIED`` of the cold ones; in exact mode nothing is.
    """

    def __init__(
        self, logits: torch.Tensor, prompt: int, output: Sequence[int], request: int, sampling: Sampling,
        dtype: torch.dtype, *, exact: bool,
    ) -> None:  # fmt: skip
        self.logits, self.prompt, self.output = logits[: len(output)], prompt, output
        self.request, self.sampling, self.dtype, self.exact = request, sampling, dtype, exact
        noise = None
        if sampling.rule is not Rule.GREEDY and output:
            position = prompt + torch.arange(len(output), device=logits.device)
            key = torch.tensor(request, device=logits.device)
            noise = sampling.noise(key, position, logits.shape[-1]) * sampling.temperature
        wrong = differences(self.logits, output, dtype, exact=exact, noise=noise)
        self.plain = {prompt + one.index: one for one in wrong}

    def wrong(self, begin: int, count: int, ran: Ran | None = None) -> list[tuple[int, Differs]]:
        """Tokens at ``[begin, begin + count)`` that are not what they had to be, by position; of a step the first one.

        ``ran`` is the pass that committed them, ``None`` behind a prompt.
        """
        if ran is None or ran.evidence is None or not ran.row.real_drafts:
            return [(place, self.plain[place]) for place in range(begin, begin + count) if place in self.plain]
        first = begin - self.prompt
        cold = _wide(self.logits[first : first + count])
        own = _wide(ran.evidence.logits)
        judged = np.concatenate([cold, own[len(cold) :]])
        wanted = self._step(judged, _wide(ran.evidence.proposal), ran.evidence.drafts.tolist(), begin - 1)
        found = list(self.output[first : first + count])
        if wanted == found:
            return []
        place = next((at for at, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), None)
        if place is None:  # one is the beginning of the other
            place = min(len(wanted), len(found)) - 1
        apart = float(np.abs(own[: len(cold)] - cold).max())
        tied = not self.exact and apart <= TIED[self.dtype] * float(np.abs(cold).max())
        return [(begin + place, Differs(first + place, found[place], wanted[place], apart, tied))]

    def _step(self, logits: Floats, q: Floats, drafts: list[int], start: int) -> list[int]:
        """Tokens that the rule commits behind the anchor at ``start``."""
        p = _softmax(logits / self.sampling.temperature)
        u = [_uniform(self._counter(Purpose.ACCEPT, start, slot)) for slot in range(len(drafts))]
        rule = by_token if self.sampling.rule is Rule.TOKEN else by_block
        accepted, weights = rule(p, q, drafts, u)
        with np.errstate(divide="ignore"):
            token = int((np.log(weights) + self._noise(start + accepted + 1, p.shape[1])).argmax())
        return [*drafts[:accepted], token]

    def _counter(self, purpose: Purpose, *places: int) -> int:
        found = mix64((self.request ^ stream_of(self.sampling.seed, purpose)) & _MASK)
        for place in places:
            found = mix64((found + (place + 1) * _GOLDEN) & _MASK)
        return found

    def _noise(self, position: int, vocabulary: int) -> Floats:
        token = np.arange(1, vocabulary + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        counter = mix64_array(token + np.uint64(self._counter(Purpose.TOKEN, position)))
        return -np.log(-np.log(((counter >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


def _uniform(counter: int) -> float:
    return ((counter >> 11) + 0.5) * 2.0**-53


def _wide(values: torch.Tensor) -> Floats:
    return values.double().cpu().numpy()


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def by_token(p: Floats, q: Floats, drafts: Sequence[int], u: Sequence[float]) -> tuple[int, Floats]:
    """Token rejection of one row: accepted drafts, and the weights of the token behind them."""
    for place, draft in enumerate(drafts):
        if u[place] * q[place, draft] >= p[place, draft]:
            return place, _rest(1.0, p[place], q[place])
    return len(drafts), p[len(drafts)]


def by_block(p: Floats, q: Floats, drafts: Sequence[int], u: Sequence[float]) -> tuple[int, Floats]:
    """Block verification of one row: the longest run whose number is not above its chance."""
    weight, accepted, kept = 1.0, 0, 1.0
    for place, draft in enumerate(drafts):
        weight = min(1.0, weight * float(p[place, draft]) / float(q[place, draft]))
        chance = weight
        if place + 1 < len(drafts):
            rest = float(np.maximum(weight * p[place + 1] - q[place + 1], 0).sum())
            chance = rest / (rest + 1 - weight) if rest + 1 - weight > 0 else 0.0
        if u[place] <= chance:
            accepted, kept = place + 1, weight
    return accepted, p[accepted] if accepted == len(drafts) else _rest(kept, p[accepted], q[accepted])


def _rest(weight: float, p: Floats, q: Floats) -> Floats:
    left = np.maximum(weight * p - q, 0)
    return left if left.sum() > 0 else p
