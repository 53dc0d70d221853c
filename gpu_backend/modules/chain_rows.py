"""A chain drafter behind row slots: its cells of chunks, and its pass behind a verify row.

A pass behind a verify row runs every module over the positions that were just verified, with the tokens that were
committed and the states that the target had there, whatever drafts had stood for them; then it goes on by itself. Of a
chain of D modules the cells of the last D - 1 positions before them are run once more, as only now their tokens are
there: so the target's states of that many positions are kept for each slot.

Cells of rejected drafts are stored along with the others, since what nobody wrote is poison to a whole tile of the
attention, whoever may see it: they are scratch, which the drafter's own steps and the next pass write over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gpu_backend.modules.chain import Chain
from gpu_backend.modules.row_models import RowModels
from gpu_backend.modules.step import Step
from gpu_backend.modules.views import Lane, StepShape


@dataclass(frozen=True, slots=True)
class Accepted:
    """Row slots int64 ``[rows]`` whose verify rows began at ``start`` and committed ``taken`` tokens, int64 ``[rows]``.

    The drafter's cells of them lie from ``stored`` on. ``kept`` bool ``[rows]``: cells of accepted drafts are left as
    the pass before wrote them (wrong).
    """

    slot: torch.Tensor
    start: torch.Tensor
    taken: torch.Tensor
    stored: torch.Tensor
    kept: torch.Tensor | None = None

    @property
    def after(self) -> torch.Tensor:
        """Positions behind the last token that was verified: where the next anchor stands."""
        return self.start + self.taken


class ChainRows:
    """``tail`` ``[slots, D - 1, taps * hidden]``: the target's states at a slot's last positions, ``begun`` int64
    ``[slots]``: the first position whose state can be among them."""

    def __init__(self, models: RowModels, drafter: Chain) -> None:
        config = drafter.config
        self.models, self.drafter = models, drafter
        self.depth, self.drafts = config.depth, config.drafts
        slots, width = len(models.key), len(config.taps) * config.hidden
        device = models.device
        self.tail = torch.zeros((slots, self.depth - 1, width), dtype=config.dtype, device=device)
        self.begun = torch.zeros(slots, dtype=torch.int64, device=device)
        self._shapes: dict[tuple[int, int], StepShape] = {}  # of verify rows: to make one copies from the host

    def chunks(
        self, shape: StepShape, start: torch.Tensor, features: torch.Tensor, ahead: torch.Tensor, lanes: Sequence[Lane],
        first: torch.Tensor,
    ) -> None:  # fmt: skip
        """Cells of chunks from ``start`` int64 ``[rows]`` on; those below ``first`` int64 ``[rows]`` are not stored.

        ``ahead`` int64 ``[tokens, D]`` are the tokens that each position looks ahead to.
        """
        hidden = self.drafter.fused(features)
        step = shape.step(ahead[:, 0], start, lanes)
        _drop(step, step.position >= first[shape.row])
        for number in range(self.depth):
            step.token = ahead[:, number]
            hidden = self.drafter.cells(number, step, hidden, self.models.target)

    def draft(self, rows: Accepted, features: torch.Tensor, lanes: Sequence[Lane]) -> None:
        """Run the cells of what was verified, ``features`` ``[rows * (1 + K), ...]``, and draft behind it."""
        models, drafter, back = self.models, self.drafter, self.depth - 1
        states = torch.cat([self.tail[rows.slot], features.unflatten(0, (len(rows.slot), -1))], 1)
        width = states.shape[1]
        place = torch.arange(width, device=models.device)
        position = rows.start[:, None] - back + place
        shape = self._shape(len(rows.slot), width)
        step = shape.step(position.flatten(), rows.stored - back, lanes)
        step.position = position.clamp(min=0).flatten()
        _drop(step, self._stores(rows, position, place).flatten())
        hidden = drafter.fused(states.flatten(0, 1))
        last = (rows.taken + back - 1).clamp(min=0)[:, None, None]  # the newest verified position; padding has none
        drafts: list[torch.Tensor] = []
        state = hidden
        for number in range(self.depth):
            step.token = self._ahead(rows, position + number + 1, drafts).flatten()
            hidden = drafter.cells(number, step, hidden, models.target)
            state = hidden.unflatten(0, (-1, width))
            state = state.gather(1, last.expand(-1, 1, state.shape[2]))[:, 0]
            drafts.append(self._drawn(rows, number, state, len(drafts)))
        for further in range(self.drafts - self.depth):
            step = self._shape(len(rows.slot), 1).step(drafts[-1], rows.stored + rows.taken + further, lanes)
            step.position = rows.after + further
            state = drafter.cells(back, step, state, models.target)
            drafts.append(self._drawn(rows, back, state, len(drafts)))
        models.drafts[rows.slot] = torch.stack(drafts, 1)
        if back:
            newest = (rows.taken[:, None] + place[:back])[..., None]
            self.tail[rows.slot] = states.gather(1, newest.expand(-1, -1, states.shape[2]))

    def _stores(self, rows: Accepted, position: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Which cells are stored: not those whose states are not there, nor, where they are kept, those of drafts."""
        stored = position >= self.begun[rows.slot][:, None]
        if rows.kept is None:
            return stored
        back = self.depth - 1
        own = place >= back + (self.drafts - 1 if not back else 0)  # where the pass before wrote nothing
        return stored & (own | (place == 0) | ~rows.kept[:, None])

    def _ahead(self, rows: Accepted, wanted: torch.Tensor, drafts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Tokens at positions ``wanted`` ``[rows, n]``: the request's up to the anchor, ``drafts`` behind it."""
        stream = self.models.stream
        token = stream[rows.slot[:, None], wanted.clamp(0, stream.shape[1] - 1)]
        for number, draft in enumerate(drafts):
            token = torch.where(wanted == rows.after[:, None] + 1 + number, draft[:, None], token)
        return token

    def _drawn(self, rows: Accepted, number: int, state: torch.Tensor, slot: int) -> torch.Tensor:
        """The draft of one slot, int64 ``[rows]``, by states of module ``number``; what it is drawn from is kept."""
        models = self.models
        logits = self.drafter.logits(number, state, models.target)[:, None]
        draft, offered = models.sampling.draft(logits, models.key[rows.slot], rows.after, slot)
        if models.proposal is not None and offered is not None:
            models.proposal[rows.slot, slot] = offered[:, 0]
        return draft[:, 0]

    def _shape(self, rows: int, width: int) -> StepShape:
        found = self._shapes.get((rows, width))
        if found is None:
            found = self._shapes[rows, width] = StepShape([width] * rows, self.models.device)
        return found


def _drop(step: Step, stored: torch.Tensor) -> None:
    """Store only the K/V of tokens that are ``stored``, bool ``[tokens]``; all attend."""
    step.paging = tuple(replace(paging, row=torch.where(stored, paging.row, -1)) for paging in step.paging)
