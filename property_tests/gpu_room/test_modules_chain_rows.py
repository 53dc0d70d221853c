"""A chain behind row slots: what its pass draws drafts from is what plain drafting gives, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.modules.chain import Chain
from gpu_backend.modules.chain_rows import Accepted, ChainRows
from gpu_backend.modules.own_pages import PagedRows
from gpu_backend.modules.plain import PlainTarget
from gpu_backend.modules.plain_chain import PlainChain
from gpu_backend.modules.row_models import RowModels
from gpu_backend.modules.tier0 import TINY, chain_for, random_pair
from gpu_backend.modules.views import Lane, StepShape

CPU, PAGE, LONGEST = torch.device("cpu"), 4, 64
TARGET = replace(TINY, layers=4, vocabulary=64)
KINDS = {
    "eagle3": chain_for(TARGET, "eagle3", drafts=4),
    "eagle3 in a window": chain_for(TARGET, "eagle3", drafts=3, window=6),
    "mtp-eagle": chain_for(TARGET, "mtp-eagle", drafts=3),
    "mtp of 2": chain_for(TARGET, "mtp", drafts=2, depth=2),
    "mtp of 3": chain_for(TARGET, "mtp", drafts=3, depth=3),
}
NEAR = 1e-4  # of a probability, between float32 and float64; the next position's rotation moves some by more than 1e-3


class Served:
    """Sequences in row slots of their own; all tokens are known, so that any number of drafts may be accepted."""

    def __init__(self, kind: str, slots: Sequence[int]) -> None:
        self.target, drafter = random_pair(TARGET, KINDS[kind], 5, CPU)
        assert isinstance(drafter, Chain)
        self.drafter, self.depth, self.drafts = drafter, drafter.config.depth, drafter.config.drafts
        self.models = RowModels(self.target, None, 4, LONGEST, self.drafts, Sampling(Rule.TOKEN, 1.0, 3))
        self.chain = ChainRows(self.models, drafter)
        self.pages = [PagedRows(module.config, 4, LONGEST, PAGE, CPU, 0) for module in (self.target, drafter)]
        self.slot, self.start = torch.tensor(slots), torch.zeros(len(slots), dtype=torch.int64)
        for slot in slots:
            ids = torch.randint(64, (LONGEST,), generator=torch.Generator().manual_seed(slot))
            self.models.bind(slot, ids, 100 + slot)
        self.plain = (
            PlainTarget(TARGET, self.target.state_dict(), torch.float64),
            PlainChain(drafter.config, drafter.state_dict(), torch.float64),
        )

    def lanes(self, drafter: bool) -> tuple[Lane, ...]:
        """Pages of the target or of the drafter."""
        return self.pages[drafter].lanes(self.slot.tolist())

    def prefill(self, lengths: Sequence[int]) -> None:
        """One chunk a slot."""
        shape = StepShape(lengths, CPU, chunks=len(lengths))
        features = self.models.context(shape, self.slot, self.start, self.lanes(False)).features
        ahead = torch.stack([
            self.models.stream[self.slot[shape.row], shape.offset + 1 + more] for more in range(self.depth)
        ], 1)  # fmt: skip
        self.chain.chunks(shape, self.start, features, ahead, self.lanes(True), self.start)
        ends = shape.width.cumsum(0)
        if self.depth > 1:
            self.chain.tail[self.slot] = torch.stack([features[end - self.depth + 1 : end] for end in ends.tolist()])
        self.start = torch.tensor(lengths)

    def step(self, taken: Sequence[int], kept: torch.Tensor | None = None) -> None:
        """Verify, commit ``taken`` tokens of each slot, and draft behind them."""
        shape, counts = StepShape([1 + self.drafts] * len(taken), CPU), torch.tensor(taken)
        _, output = self.models.verify(shape, self.slot, self.start, self.lanes(False), counts)
        self.chain.draft(Accepted(self.slot, self.start, counts, self.start, kept), output.features, self.lanes(True))
        self.start = self.start + counts

    def apart(self) -> float:
        """How far what drafts were drawn from is from what plain drafting gives behind the same tokens, at the most."""
        assert self.models.proposal is not None
        worst, target, drafter = 0.0, *self.plain
        for slot, length in zip(self.slot.tolist(), self.start.tolist(), strict=True):
            drawn, told = self.models.drafts[slot].tolist(), list[torch.Tensor]()

            def choose(
                logits: torch.Tensor, anchor: int, place: int, drawn: list[int] = drawn,
                told: list[torch.Tensor] = told,
            ) -> int:  # fmt: skip
                told.append(logits.double().softmax(-1))
                return drawn[place]

            drafter.drafts(target, self.models.stream[slot, : length + 1].tolist(), choose)
            worst = max(worst, float((torch.stack(told) - self.models.proposal[slot]).abs().max()))
        return worst


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_drawn_from_what_plain_drafting_gives(kind: str) -> None:
    """Two slots of different lengths, none the first, with every number of drafts accepted in turn."""
    served = Served(kind, (3, 1))
    served.prefill((9, 14))
    most = 1 + served.drafts
    for taken in ((1, most), (most, 1), (2, most - 1), (1, 1), (most, most)):
        served.step(taken)
        assert served.apart() < NEAR


def test_a_pass_leaves_cells_alone_whose_states_it_does_not_have() -> None:
    """Those before a slot's first chunk came from somebody else, and what the slot kept is another request's."""
    served = Served("mtp of 3", (2, 0))
    served.prefill((9, 14))
    served.chain.tail[2, 0] = 100.0  # the state at position 7, before what would have been the first chunk
    served.chain.begun[2] = 8
    served.step((1, 2))
    assert served.apart() < NEAR
    served.step((3, 1))
    assert served.apart() < NEAR


@pytest.mark.parametrize(("kind", "spared"), [("eagle3", [11, 12]), ("mtp of 3", [9])])
def test_kept_drafts_are_wrong_cells_but_the_first_and_those_that_no_pass_wrote(kind: str, spared: list[int]) -> None:
    """The wrong rule on the second pass behind 9 tokens, whose first cell is at 10, of three modules at 8. All drafts
    of it are other than the tokens. Of three modules the second one is looked at, whose cells hang on no wrong one."""
    cells, accepted, module = [], 1 + KINDS[kind].drafts, min(1, KINDS[kind].depth - 1)
    for kept in (None, torch.tensor([True, False])):
        served = Served(kind, (2, 0))
        served.prefill((9, 14))
        served.step((1, 1))
        served.step((accepted, accepted), kept)
        cells.append([served.pages[1].rows_of(slot, 14)[0][module][0] for slot in (2, 0)])
    differs = [(here - there).abs().amax((1, 2)) > 1e-3 for here, there in zip(*cells, strict=True)]
    assert torch.nonzero(differs[0]).flatten().tolist() == spared and not differs[1].any()
