"""Rules by which drafts are accepted, batched, on the device: none reads anything back.

``p`` float64 ``[rows, 1 + K, vocabulary]`` is the target's distribution behind the anchor and behind each draft, ``q``
float64 ``[rows, K, vocabulary]`` the one that each draft was drawn from, ``drafts`` int64 ``[rows, K]``, ``u`` float64
``[rows, K]`` uniform numbers. A rule says how many drafts are accepted, int64 ``[rows]`` 0 .. K, and the weights,
``[rows, vocabulary]`` and not normalised, that the token behind them is drawn by. What is committed is distributed as
plain sampling by ``p`` in every case, whatever ``q`` is, as long as the drafts were drawn from it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import torch

from gpu_backend.acceptance.draws import Purpose, counters, gumbel, uniform
from gpu_backend.modules.verify import Verified, verify


class Rule(enum.StrEnum):
    """How drafts are judged. TensorRT-LLM's default is ``match``, its golden semantics are ``block``."""

    GREEDY = "greedy"  # drafts that are the target's own greedy choice
    TOKEN = "token"  # token rejection (Leviathan et al. 2023, arXiv 2211.17192)
    BLOCK = "block"  # block verification (Sun et al. 2024, arXiv 2403.10444)
    MATCH = "match"  # drafts that are what the target samples


def token_rejection(
    p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draft ``i`` is accepted with ``min(1, p_i / q_i)`` once all before it were; the first rejected one is replaced
    by a token of ``max(p - q, 0)``."""
    wanted, offered = _at(p[:, :-1], drafts), _at(q, drafts)
    accepted = (u * offered < wanted).long().cumprod(-1).sum(-1)
    return accepted, _behind(p, q, accepted, torch.ones_like(p[:, :, 0]))


def block_verification(
    p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The longest run of drafts, of any length ``i``, that is accepted as a whole: ``u_i <= h_i`` of :func:`keeps`.

    It commits at least as many tokens as token rejection on average.
    """
    weight, keep = keeps(p, q, drafts)
    place = torch.arange(1, drafts.shape[1] + 1, device=p.device)
    accepted = torch.where(u <= keep, place, 0).amax(-1) if drafts.shape[1] else p.new_zeros(len(p)).long()
    return accepted, _behind(p, q, accepted, weight)


def keeps(p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Block verification's ``w`` ``[rows, 1 + K]`` and ``h`` ``[rows, K]``.

    ``w_0 = 1, w_i = min(1, w_{i-1} p_i / q_i)``; ``h_i = S_i / (S_i + 1 - w_i)`` with
    ``S_i = sum max(w_i p_{i+1} - q_{i+1}, 0)``, and ``h_K = w_K``.
    """
    ratio = _at(p[:, :-1], drafts) / _at(q, drafts)
    weights = [torch.ones_like(p[:, 0, 0])]
    for place in range(drafts.shape[1]):
        weights.append((weights[-1] * ratio[:, place]).clamp(max=1))
    weight = torch.stack(weights, 1)
    inner = weight[:, 1:-1]
    rest = (inner[..., None] * p[:, 1:-1] - q[:, 1:]).clamp(min=0).sum(-1)
    least = torch.finfo(p.dtype).tiny  # where both are 0, a longer run is accepted for certain
    return weight, torch.cat([rest / (rest + 1 - inner).clamp(min=least), weight[:, 1:][:, -1:]], 1)


def _at(distribution: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    return distribution.gather(-1, token[..., None])[..., 0]


def _behind(p: torch.Tensor, q: torch.Tensor, accepted: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``max(w p - q, 0)`` behind so many accepted drafts; ``p`` behind all, or where rounding leaves nothing."""
    row = torch.arange(len(p), device=p.device)
    offered = torch.cat([q, torch.zeros_like(p[:, :1])], 1)[row, accepted]
    whole = p[row, accepted]
    left = (weight[row, accepted][:, None] * whole - offered).clamp(min=0)
    return torch.where(left.sum(-1, keepdim=True) > 0, left, whole)


RULES = {Rule.TOKEN: token_rejection, Rule.BLOCK: block_verification}  # that ask for the drafts' distribution


@dataclass(frozen=True, slots=True)
class Sampling:
    """A rule with its temperature and the seed of its draws.

    Drafts are drawn from the drafter's softmax at the same temperature, slot by slot, under ``token`` and ``block``,
    which is the ``q`` of their rules. Under ``greedy`` and ``match`` they are its greedy choice, as DFlash's own loop
    makes them at every temperature.
    """

    rule: Rule = Rule.GREEDY
    temperature: float = 1.0
    seed: int = 0

    @property
    def proposes(self) -> bool:
        """Whether the rule asks for the distribution that drafts were drawn from."""
        return self.rule in RULES

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """The distribution, float64, of logits at this temperature."""
        return (logits.double() / self.temperature).softmax(-1)

    def noise(self, request: torch.Tensor, position: torch.Tensor, vocabulary: int) -> torch.Tensor:
        """What is added to log probabilities to choose the tokens at ``position``: ``[*position, vocabulary]``."""
        return gumbel(counters(self.seed, Purpose.TOKEN, request, position), vocabulary)

    def token(self, logits: torch.Tensor, request: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """The target's own choice for ``position`` ``[...]`` by ``logits`` ``[..., vocabulary]``.

        ``request`` int64 are the keys of requests; it and ``position`` broadcast.
        """
        if self.rule is Rule.GREEDY:
            return logits.argmax(-1)
        noise = self.noise(request, position, logits.shape[-1])
        return (logits.double() / self.temperature + noise).argmax(-1)

    def draft(
        self, logits: torch.Tensor, request: torch.Tensor, anchor: torch.Tensor, first: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Drafts int64 ``[rows, K]`` of the drafter's ``logits`` ``[rows, K, vocabulary]`` behind positions ``anchor``.

        And the distribution they were drawn from, where the rule asks for it. A drafter whose logits hang on the drafts
        before them asks slot by slot: ``logits`` are of slots ``first`` on.
        """
        if not self.proposes:
            return logits.argmax(-1), None
        q = self.spread(logits)
        slot = torch.arange(first, first + logits.shape[1], device=logits.device)
        counter = counters(self.seed, Purpose.DRAFT, request[:, None], anchor[:, None], slot)
        return (q.log() + gumbel(counter, q.shape[-1])).argmax(-1), q

    def verify(
        self,
        logits: torch.Tensor,
        drafts: torch.Tensor,
        request: torch.Tensor,
        start: torch.Tensor,
        q: torch.Tensor | None = None,
        real: torch.Tensor | None = None,
    ) -> Verified:
        """Judge ``drafts`` ``[rows, K]`` behind anchors at ``start`` ``[rows]`` by ``logits`` ``[rows, 1 + K, ...]``.

        Rows that are not ``real`` (bool ``[rows]``) hold placeholders: none is accepted. The first ``accepted`` of a
        row's choices are committed; those behind them mean nothing but under ``greedy`` and ``match``.
        """
        place = torch.arange(1, logits.shape[1] + 1, device=logits.device)
        if not self.proposes:
            told = drafts if real is None else torch.where(real[:, None], drafts, -1)
            if self.rule is Rule.GREEDY:
                return verify(logits, told)
            return matched(self.token(logits, request[:, None], start[:, None] + place), told)
        assert q is not None, "the rule asks for the distribution of the drafts"
        p = self.spread(logits)
        u = uniform(counters(self.seed, Purpose.ACCEPT, request[:, None], start[:, None], place[:-1] - 1))
        accepted, weights = RULES[self.rule](p, q, drafts, u)
        if real is not None:
            accepted, weights = torch.where(real, accepted, 0), torch.where(real[:, None], weights, p[:, 0])
        token = (weights.log() + self.noise(request, start + accepted + 1, p.shape[-1])).argmax(-1)
        choice = torch.where(place - 1 == accepted[:, None], token[:, None], torch.nn.functional.pad(drafts, (0, 1)))
        return Verified(accepted + 1, choice, token)


def matched(choice: torch.Tensor, drafts: torch.Tensor) -> Verified:
    """The longest run of ``drafts`` ``[rows, K]`` that are the target's ``choice`` ``[rows, 1 + K]``, and one more."""
    agreed = (drafts == choice[:, :-1]).long().cumprod(-1)
    accepted = agreed.sum(-1) + 1
    return Verified(accepted, choice, choice.gather(1, accepted[:, None] - 1)[:, 0])
