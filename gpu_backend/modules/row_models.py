"""Target and drafter behind row slots: tokens and drafts of every slot on the device, passes over whatever lanes say.

The caller keeps lengths, tables and bases and hands them in as tensors; nothing here reads one back. Acceptance is
natural, by a rule, or forced: then a row's accepted drafts are its stream's tokens and the first rejected one differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gpu_backend.acceptance.confidence import Confidence
from gpu_backend.acceptance.rules import Sampling
from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.target import Target, TargetOutput
from gpu_backend.modules.verify import Verified
from gpu_backend.modules.views import Lane, StepShape


class RowModels:
    """``stream`` int64 ``[slots, longest]``: tokens of a slot's request as far as they are known.

    ``longest`` leaves room for a verify row behind the last position. ``drafts`` int64 ``[slots, K]``: what a slot's
    drafter proposed last, placeholders (0) before it did. ``proposal`` float64 ``[slots, K, vocabulary]``: what they
    were drawn from, where the rule of ``sampling`` asks for it. ``key`` int64 ``[slots]`` names a slot's request to the
    draws. ``confidence`` is kept of a drafter with such a head.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None, slots: int, longest: int, drafts: int,
        sampling: Sampling | None = None,
    ) -> None:  # fmt: skip
        if drafter is not None and drafter.config.drafts != drafts:
            raise ValueError(f"the drafter drafts {drafter.config.drafts} tokens, rows verify {drafts}")
        self.target, self.drafter = target, drafter
        self.device = target.rotary.cos.device
        self.stream = torch.zeros((slots, longest), dtype=torch.int64, device=self.device)
        self.drafts = torch.zeros((slots, drafts), dtype=torch.int64, device=self.device)
        self._block = torch.arange(drafts, device=self.device)
        self.sampling = sampling or Sampling()
        self.key = torch.zeros(slots, dtype=torch.int64, device=self.device)
        size = (slots, drafts, target.config.vocabulary)
        self.proposal = torch.zeros(size, dtype=torch.float64, device=self.device) if self.sampling.proposes else None
        sure = drafter is not None and bool(drafter.config.confidence)
        self.confidence = Confidence(slots, drafts, self.device) if sure else None

    def bind(self, slot: int, tokens: torch.Tensor, key: int = 0) -> None:
        """A slot is another request's now: ``tokens`` int64 ``[n]`` of it are known, nothing is drafted."""
        self.key[slot].fill_(key)
        self.stream[slot].fill_(0)
        self.stream[slot, : len(tokens)].copy_(tokens, non_blocking=True)
        self.drafts[slot].fill_(0)
        if self.confidence is not None:
            self.confidence.forget(slot)

    def context(
        self,
        shape: StepShape,
        slot: torch.Tensor,
        start: torch.Tensor,
        lanes: Sequence[Lane],
        draft_lanes: Sequence[Lane] = (),
        draft_start: torch.Tensor | None = None,
    ) -> TargetOutput:
        """Run chunks of row slots ``slot`` int64 ``[rows]`` from ``start`` on, and fold them for the drafter.

        The logits are those behind each chunk, ``[rows, vocabulary]``. The drafter's rows are turned by their absolute
        positions and stored from ``draft_start`` on (``None``: as the target), without ``draft_lanes`` nowhere.
        """
        token = self.stream[slot[shape.row], shape.positions(start)]
        output = self.target(shape.step(token, start, lanes), shape.last())
        self._fold(shape, token, start, output.features, draft_lanes, draft_start)
        return output

    def verify(
        self,
        shape: StepShape,
        slot: torch.Tensor,
        start: torch.Tensor,
        lanes: Sequence[Lane],
        forced: torch.Tensor | None = None,
        real: torch.Tensor | None = None,
        *,
        learns: bool = True,
    ) -> tuple[Verified, TargetOutput]:
        """Verify rows of one width, 1 + K or 1: the stream's token at ``start`` and the drafts behind it.

        ``forced`` int64 ``[rows]`` tokens, 1 .. width, are committed whatever the target says; otherwise what it chose
        is written to the stream, unless that is known already (``learns`` off). ``choice`` is the target's own in all
        cases. Rows that are not ``real`` (bool ``[rows]``) verify placeholders and commit one token.
        """
        rows, drafts = len(shape.widths), self.drafts[slot][:, : shape.widths[0] - 1]
        position = start.long()[:, None] + self._block[: shape.widths[0] - 1] + 1
        if forced is not None:
            forced = (forced if real is None else torch.where(real, forced, 1)).long()
            told = self._forced(slot, position, forced)
            drafts = told if real is None else torch.where(real[:, None], told, drafts)
        token = torch.cat([self.stream[slot, start.long()][:, None], drafts], 1).flatten()
        output = self.target(shape.step(token, start, lanes))
        logits = output.logits.unflatten(0, (rows, -1))
        offered = None if self.proposal is None else self.proposal[slot][:, : shape.widths[0] - 1]
        verdict = self.sampling.verify(logits, drafts, self.key[slot], start.long(), offered, real)
        if forced is not None:
            last = self.stream[slot, start.long() + forced]
            return Verified(forced, verdict.choice, last), output
        if self.confidence is not None and drafts.shape[1]:
            self.confidence.judge(slot, verdict.accepted, real)
        if not learns:
            return verdict, output
        place = start.long()[:, None] + 1 + torch.arange(shape.widths[0], device=self.device)
        known = self.stream[slot[:, None], place]
        taken = torch.arange(place.shape[1], device=self.device) < verdict.accepted[:, None]
        self.stream[slot[:, None], place] = torch.where(taken, verdict.choice, known)
        return verdict, output

    def fold(
        self,
        shape: StepShape,
        start: torch.Tensor,
        accepted: torch.Tensor,
        features: torch.Tensor,
        lanes: Sequence[Lane],
        draft_start: torch.Tensor | None = None,
    ) -> None:
        """Fold the first ``accepted`` tokens of every verify row into the drafter's context; the others are dropped."""
        begin = (start if draft_start is None else draft_start).long()
        bounded = [replace(lane, limit=_least(lane.limit, begin + accepted)) for lane in lanes]
        self._fold(shape, shape.row, start, features, bounded, draft_start)

    def draft(
        self,
        shape: StepShape,
        slot: torch.Tensor,
        anchor: torch.Tensor,
        start: torch.Tensor,
        lanes: Sequence[Lane],
        draft_start: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Draft behind ``anchor`` int64 ``[rows]`` at positions ``start``; returns logits ``[rows, K, vocabulary]``.

        The blocks lie from ``draft_start`` on (``None``: from ``start``).
        """
        assert self.drafter is not None
        step = shape.step(self.drafter.block_tokens(anchor), start if draft_start is None else draft_start, lanes)
        step.position = shape.positions(start)
        key, place = self.key[slot], start.long()
        drafted = self.drafter(
            step, self.target, lambda logits, first: self.sampling.draft(logits, key, place, first)
        )  # fmt: skip
        self.drafts[slot] = drafted.token
        if self.proposal is not None and drafted.offered is not None:
            self.proposal[slot] = drafted.offered
        if self.confidence is not None and drafted.confident is not None:
            self.confidence.hear(slot, drafted.confident)
        return drafted.logits

    def _fold(
        self,
        shape: StepShape,
        token: torch.Tensor,
        start: torch.Tensor,
        features: torch.Tensor,
        lanes: Sequence[Lane],
        draft_start: torch.Tensor | None,
    ) -> None:
        if self.drafter is None or not lanes:
            return
        step = shape.step(token, start if draft_start is None else draft_start, lanes)
        step.position = shape.positions(start)
        self.drafter.fold(features, step)

    def _forced(self, slot: torch.Tensor, position: torch.Tensor, forced: torch.Tensor) -> torch.Tensor:
        """Drafts at ``position`` of which ``forced - 1`` are the stream's tokens; those behind differ from them."""
        wanted = self.stream[slot[:, None], position]
        other = (wanted + 1) % self.target.config.vocabulary
        return torch.where(self._block[: position.shape[1]] < forced[:, None] - 1, wanted, other)


def _least(limit: torch.Tensor | None, end: torch.Tensor) -> torch.Tensor:
    return end if limit is None else torch.minimum(limit.long(), end)
