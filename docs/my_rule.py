"""A claim rule of one's own, and wrong: ``kvtwin fuzz --rule claim=docs.my_rule:MyClaim`` finds out how."""

from dataclasses import dataclass

from model.rules.claim import Claim, ClaimView, WindowedPair


@dataclass(frozen=True)
class MyClaim(WindowedPair):
    """Go as deep as the drafter has the last page: older pages of its window slide out of sight soon anyway."""

    name: str = "last-page-is-enough"

    def decide(self, view: ClaimView) -> Claim:
        usual, deeper = WindowedPair.decide(self, view), view.touched(view.target)
        return Claim(deeper, fresh=False) if deeper > usual.tokens else usual
