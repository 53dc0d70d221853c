"""METRIC and STATE: the checker's own books, kept from plans and results alone."""

from __future__ import annotations

from collections import Counter

from model.engine import Engine
from model.invariants.base import Docket, Violation
from model.plan import SettledRow, StepPlan


class Ledger:
    """Books of one engine: prefilled tokens by request, first claims, outputs by request and owner."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        self.prefilled: Counter[int] = Counter()
        self.first_claims: dict[int, int] = {}
        self.outputs: Counter[int] = Counter()

    def submitted(self, request_id: int) -> None:
        """A request id starts (perhaps again): its books begin at zero."""
        self.prefilled.pop(request_id, None)
        self.first_claims.pop(request_id, None)
        self.outputs.pop(request_id, None)

    def planned(self, plan: StepPlan) -> None:
        """Book the chunks of a dispatched plan."""
        for row in plan.context:
            self.first_claims.setdefault(row.request_id, row.start)
            self.prefilled[row.request_id] += row.end - row.start

    def settled(self, plan: StepPlan, current: dict[int, int], rows: list[SettledRow]) -> None:
        """Book outputs; a row's output counts only for the epoch of the request that dispatched it."""
        owners = [row.owner for row in (*plan.context, *plan.generation)]
        self.docket.count("STATE", len(rows))
        for owner, row in zip(owners, rows, strict=True):
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

    def check(self, request_id: int, step: int) -> None:
        """Compare one ended request's record with the books."""
        self.docket.count("METRIC")
        record = self.engine.records[request_id]
        claim = self.first_claims.get(request_id, 0)
        booked = (claim, self.prefilled[request_id], self.outputs[request_id])
        reported = (record.cached_tokens, record.prefilled_tokens, record.output_tokens)
        whole = claim + record.prefilled_tokens - record.recomputed_tokens == record.prompt_tokens
        if booked == reported and (whole or record.preemptions or record.recomputed_tokens):
            return
        self.docket.report(
            Violation(
                "METRIC",
                "a reported count is not what happened",
                request_id,
                step=step,
                expected="cached {}, prefilled {}, output {}".format(*booked),
                found="cached {}, prefilled {}, output {}".format(*reported),
            )
        )

    def totals(self, step: int) -> None:
        """Compare the engine's totals with the sum of what was booked."""
        self.docket.count("METRIC")
        totals = self.engine.totals
        found = sum(record.prefilled_tokens for record in self.engine.records.values())
        if len(self.engine.records) == totals.finished + totals.cancelled and found != totals.prefilled_tokens:
            expected, reported = f"{found} prefilled tokens", f"{totals.prefilled_tokens}"
            message = "totals differ from the records"
            self.docket.report(Violation("METRIC", message, -1, "", -1, -1, step, expected, reported))
