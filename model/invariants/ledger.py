"""METRIC and STATE: the checker's own books, kept from plans and results alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from model.engine import Engine
from model.invariants.base import Docket, Violation
from model.plan import ContextRow, SettledRow, StepPlan
from model.request import CANCELLED

ELSEWHERE = -2  # the first epoch of a request that another worker prefilled: no chunk here is of it


@dataclass(slots=True)
class Epochs:
    """The epochs of one request as its chunks name them. ``first`` and ``last``: their owners; ``claim`` and
    ``covered``: tokens that the last one claimed, and that it claimed, received or computed; ``again``: an earlier
    one's claim counts as reuse."""

    first: int
    claim: int = 0
    covered: int = 0
    last: int = ELSEWHERE
    again: bool = False


def _covers(epochs: Epochs | None, prompt: int, known: int, output: int) -> bool:
    """Whether the last epoch of a request went through its context: its prompt and what it knew of its ``output``.

    ``known``: output tokens that came with the request. The last of them has no cell yet if its prompt came too.
    """
    if epochs is None:
        return False
    behind = epochs.covered - prompt
    if epochs.last != epochs.first:
        return 0 <= behind <= output
    return behind in ((known - 1, known) if known else (0,))


class Ledger:
    """Books of one engine: prefilled and claimed tokens by request and epoch, outputs by request and owner."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self.prefilled: defaultdict[int, int] = defaultdict(int)
        self.first_claims: dict[int, int] = {}
        self.epochs: dict[int, Epochs] = {}
        self.recomputed: defaultdict[int, int] = defaultdict(int)
        self.reclaimed: defaultdict[int, int] = defaultdict(int)
        self.outputs: defaultdict[int, int] = defaultdict(int)
        self.drafts: dict[int, tuple[int, int, int]] = {}  # verify steps, drafts, accepted drafts
        # Closed books: prefilled, recomputed, claimed again, output, verify steps, drafts, accepted drafts.
        self.sums = [0] * 7
        self.came: dict[int, tuple[int, int]] = {}  # tokens received from another worker, output tokens known with them
        self.reached: defaultdict[int, int] = defaultdict(int)  # furthest end of a chunk, over all epochs
        # Where copies can be lost: the owner that each last claim was booked for, until a chunk of it has settled.
        self._unread: dict[int, int] | None = {} if engine.book is not None else None

    def submitted(self, request_id: int) -> None:
        """A request id starts (perhaps again): its books begin at zero."""
        self.drafts.pop(request_id, None)
        self.came.pop(request_id, None)
        self.prefilled.pop(request_id, None)
        self.first_claims.pop(request_id, None)
        self.epochs.pop(request_id, None)
        self.recomputed.pop(request_id, None)
        self.reclaimed.pop(request_id, None)
        if self._unread:
            self._unread.pop(request_id, None)
        self.outputs.pop(request_id, None)
        self.reached.pop(request_id, None)

    def received(self, request_id: int, claim: int | None, tokens: int, known: int) -> None:
        """Begin the books of a request that another worker prefilled, which gave ``known`` tokens of its output.

        ``tokens`` were received behind a ``claim``; ``None``: nothing came, the prompt is prefilled here.
        """
        self.submitted(request_id)
        if claim is not None:
            self.first_claims[request_id] = claim
            self.epochs[request_id] = Epochs(ELSEWHERE, claim, claim + tokens)
        self.came[request_id] = (tokens, known)

    def planned(self, plan: StepPlan) -> bool:
        """Book the chunks of a dispatched plan; whether one of them goes further than its request ever was."""
        new = False
        for row in plan.context:
            request_id, size = row.request_id, row.end - row.start
            epochs = self.epochs.get(request_id)
            if epochs is None or epochs.last != row.owner:
                epochs = self._began(row, epochs)
            epochs.covered += size
            self.prefilled[request_id] += size
            if epochs.first != row.owner:
                self.recomputed[request_id] += size
            if row.end > self.reached[request_id]:
                self.reached[request_id] = row.end
                new = True
        return new

    def _began(self, row: ContextRow, epochs: Epochs | None) -> Epochs:
        """Book the claim of an epoch whose first chunk is ``row``: its request's first, or one of its own pages."""
        if epochs is None:
            epochs = self.epochs[row.request_id] = Epochs(row.owner)
        epochs.last, epochs.claim, epochs.covered = row.owner, row.start, row.start
        if self._unread is not None:
            self._unread[row.request_id] = row.owner
        epochs.again = row.request_id in self.first_claims
        if epochs.again:
            self.reclaimed[row.request_id] += row.start
        else:
            self.first_claims[row.request_id] = row.start
        return epochs

    def lost(self, owners: list[int]) -> None:
        """What these owners claimed was lost on its way: a claim that no settled chunk has read is none."""
        unread = self._unread or {}
        for request_id in [request for request, owner in unread.items() if owner in owners]:
            del unread[request_id]
            epochs = self.epochs[request_id]
            if epochs.again:
                self.reclaimed[request_id] -= epochs.claim
            else:
                del self.first_claims[request_id]
        self.began_anew()

    def began_anew(self) -> None:
        """Whoever was set back, for want of pages or by a lost copy, keeps the claim of the epoch that is over."""
        unread, live = self._unread, self.engine.live
        if unread:
            over = [request for request, owner in unread.items() if request in live and live[request].owner != owner]
            for request_id in over:
                del unread[request_id]

    def settled(
        self, plan: StepPlan, accepted: tuple[int, ...], current: dict[int, int], rows: list[SettledRow]
    ) -> None:
        """Book outputs; a row's output counts only for the epoch of the request that dispatched it."""
        owners = [row.owner for row in (*plan.context, *plan.generation)]
        if self._unread:
            for row in plan.context:
                if self._unread.get(row.request_id) == row.owner:
                    del self._unread[row.request_id]
        self.docket.count("STATE", len(rows))
        first_step = len(plan.context)
        for place, (owner, row) in enumerate(zip(owners, rows, strict=True)):
            if row.drafted:
                self._book_drafts(row, plan.generation[place - first_step].width - 1, accepted[place - first_step] - 1)
            if row.tokens and current.get(row.request_id) != owner:
                self.docket.report(
                    Violation(
                        "STATE",
                        "the output of an earlier epoch was applied",
                        row.request_id,
                        step=plan.iteration,
                        expected=f"outputs of owner {current.get(row.request_id)}",
                        found=f"{row.tokens} tokens of owner {owner}",
                    )
                )
            self.outputs[row.request_id] += row.tokens
            if row.finished:
                self.check(row.request_id, plan.iteration)

    def _book_drafts(self, row: SettledRow, drafted: int, accepted: int) -> None:
        steps, drafts, taken = self.drafts.get(row.request_id, (0, 0, 0))
        self.drafts[row.request_id] = (steps + 1, drafts + drafted, taken + accepted)

    def check(self, request_id: int, step: int) -> None:
        """Compare one ended request's record with its books, and close them."""
        self.docket.count("METRIC")
        record = self.engine.records[request_id]
        claim = self.first_claims.pop(request_id, 0)
        if self._unread:
            self._unread.pop(request_id, None)
        counts = (self.prefilled, self.recomputed, self.reclaimed, self.outputs)
        booked = (claim, *(count.pop(request_id, 0) for count in counts), *self.drafts.pop(request_id, (0, 0, 0)))
        self.reached.pop(request_id, None)
        reported = (record.cached_tokens, record.prefilled_tokens, record.recomputed_tokens, record.reclaimed_tokens)
        reported += (record.output_tokens, record.spec_steps, record.drafted_tokens, record.accepted_drafts)
        for place, count in enumerate(booked[1:]):
            self.sums[place] += count
        came, known = self.came.pop(request_id, (0, 0))
        epochs = self.epochs.pop(request_id, None)
        ended_early = record.state == CANCELLED.value
        whole = ended_early or (
            record.received_tokens == came and _covers(epochs, record.prompt_tokens, known, booked[4] + known)
        )
        if booked == reported and whole:
            return
        wording = "cached {}, prefilled {}, recomputed {}, claimed again {}, output {}, verify steps {}, drafts {}, "
        wording += "accepted {}"
        covered = 0 if epochs is None else epochs.covered
        expected, found = wording.format(*booked), wording.format(*reported)
        if not whole:
            expected += f", a prompt of {record.prompt_tokens} tokens covered, {came} of them received"
            found += f", {covered} covered, {record.received_tokens} received"
        self.docket.report(
            Violation(
                "METRIC",
                "a reported count is not what happened",
                request_id,
                step=step,
                expected=expected,
                found=found,
            )
        )

    def totals(self, step: int) -> None:
        """Compare the engine's totals with the books of all requests, ended and live."""
        self.docket.count("METRIC")
        drafts = list(self.drafts.values())
        counts = (self.prefilled, self.recomputed, self.reclaimed, self.outputs)
        live = [sum(count.values()) for count in counts]
        live += [sum(steps for steps, _, _ in drafts), 0, sum(taken for _, _, taken in drafts)]
        booked = tuple(
            closed + more for place, (closed, more) in enumerate(zip(self.sums, live, strict=True)) if place != 5
        )
        totals = self.engine.totals
        reported = (totals.prefilled_tokens, totals.recomputed_tokens, totals.reclaimed_tokens, totals.output_tokens)
        reported += (totals.spec_steps, totals.accepted_drafts)
        if booked != reported:
            wording = "prefilled {}, recomputed {}, claimed again {}, output {}, verify steps {}, accepted {}"
            expected, found = wording.format(*booked), wording.format(*reported)
            message = "totals differ from what was booked"
            self.docket.report(Violation("METRIC", message, -1, "", -1, -1, step, expected, found))
