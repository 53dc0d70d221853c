"""METRIC and STATE: the checker's own books, kept from plans and results alone."""

from __future__ import annotations

from collections import Counter

from model.engine import Engine
from model.invariants.base import Docket, Violation
from model.plan import SettledRow, StepPlan
from model.request import CANCELLED


class Ledger:
    """Books of one engine: prefilled tokens by request, first claims, outputs by request and owner."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self.prefilled: Counter[int] = Counter()
        self.first_claims: dict[int, int] = {}
        self.outputs: Counter[int] = Counter()
        self.drafts: dict[int, tuple[int, int, int]] = {}  # verify steps, drafts, accepted drafts
        # Closed books: prefilled, output, verify steps, drafts, accepted drafts.
        self.sums = [0, 0, 0, 0, 0]
        self.came: dict[int, tuple[int, int]] = {}  # tokens received from another worker, output tokens known with them
        self.reached: Counter[int] = Counter()  # furthest end of a chunk, over all epochs
        # Where copies can be lost: the owner that each first claim was booked for, until a chunk of it has settled.
        self._unread: dict[int, int] | None = {} if engine.book is not None else None

    def submitted(self, request_id: int) -> None:
        """A request id starts (perhaps again): its books begin at zero."""
        self.drafts.pop(request_id, None)
        self.came.pop(request_id, None)
        self.prefilled.pop(request_id, None)
        self.first_claims.pop(request_id, None)
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
        self.came[request_id] = (tokens, known)

    def planned(self, plan: StepPlan) -> bool:
        """Book the chunks of a dispatched plan; whether one of them goes further than its request ever was."""
        new = False
        for row in plan.context:
            if self._unread is not None and row.request_id not in self.first_claims:
                self._unread[row.request_id] = row.owner
            self.first_claims.setdefault(row.request_id, row.start)
            self.prefilled[row.request_id] += row.end - row.start
            if row.end > self.reached[row.request_id]:
                self.reached[row.request_id] = row.end
                new = True
        return new

    def lost(self, owners: list[int]) -> None:
        """What these owners claimed was lost on its way: a first claim that no settled chunk has read is none."""
        unread = self._unread or {}
        for request_id in [request for request, owner in unread.items() if owner in owners]:
            del unread[request_id], self.first_claims[request_id]
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
        booked = (claim, self.prefilled.pop(request_id, 0), self.outputs.pop(request_id, 0))
        booked += self.drafts.pop(request_id, (0, 0, 0))
        self.reached.pop(request_id, None)
        reported = (record.cached_tokens, record.prefilled_tokens, record.output_tokens)
        reported += (record.spec_steps, record.drafted_tokens, record.accepted_drafts)
        for place, count in enumerate((booked[1], *booked[2:])):
            self.sums[place] += count
        came, known = self.came.pop(request_id, (0, 0))
        behind = claim + came + record.prefilled_tokens - record.recomputed_tokens - record.prompt_tokens
        whole = behind == 0 if not known else behind in (known - 1, known)  # the last known token has no cell yet
        whole = whole and record.received_tokens == came
        ended_early = record.state == CANCELLED.value
        if booked == reported and (whole or record.preemptions or record.recomputed_tokens or ended_early):
            return
        wording = "cached {}, prefilled {}, output {}, verify steps {}, drafts {}, accepted {}"
        self.docket.report(
            Violation(
                "METRIC",
                "a reported count is not what happened",
                request_id,
                step=step,
                expected=wording.format(*booked),
                found=wording.format(*reported),
            )
        )

    def totals(self, step: int) -> None:
        """Compare the engine's totals with the books of all requests, ended and live."""
        self.docket.count("METRIC")
        open_drafts = list(self.drafts.values())
        booked = (
            self.sums[0] + sum(self.prefilled.values()),
            self.sums[1] + sum(self.outputs.values()),
            self.sums[2] + sum(steps for steps, _, _ in open_drafts),
            self.sums[4] + sum(taken for _, _, taken in open_drafts),
        )
        totals = self.engine.totals
        reported = (totals.prefilled_tokens, totals.output_tokens, totals.spec_steps, totals.accepted_drafts)
        if booked != reported:
            wording = "prefilled {}, output {}, verify steps {}, accepted {}"
            expected, found = wording.format(*booked), wording.format(*reported)
            message = "totals differ from what was booked"
            self.docket.report(Violation("METRIC", message, -1, "", -1, -1, step, expected, found))
