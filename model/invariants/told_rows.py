"""SHAPE and WINDOW of the table rows that a plan tells the device, looked at whenever a request's rows change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.engine import Engine
from model.geometry import cdiv
from model.invariants.base import Docket, Violation
from model.plan import ContextRow, GenerationRow, StepPlan
from model.request import GENERATION
from model.table import TableRow

if TYPE_CHECKING:
    from model.joint import Column


class ToldRows:
    """A row reaches as far as its request may write, and keeps nothing that its window left long ago."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket
        limits = engine.config.limits
        self.page = limits.page_size
        self._told: list[tuple[TableRow, ...]] = [()] * (limits.max_batch + 1)  # by row slot

    def rows(self, plan: StepPlan) -> list[GenerationRow]:
        """Look at the rows of a plan that are not what their slot was told last; returns the verify rows among them."""
        told, fresh = self._told, []
        for row in plan.context:
            if told[row.slot] is not row.tables:
                told[row.slot] = row.tables
                self._look(row, plan.iteration)
        for row in plan.generation:
            if told[row.slot] is not row.tables:
                told[row.slot] = row.tables
                self._look(row, plan.iteration)
                fresh.append(row)
        return fresh

    def forget(self) -> None:
        """Somebody was suspended: a row may be told again as it was and lie elsewhere by then."""
        self._told = [()] * len(self._told)

    def _look(self, row: ContextRow | GenerationRow, step: int) -> None:
        request = self.engine.owners.get(row.owner)
        if request is None:
            return
        settled = request.settled_position() if request.state is GENERATION else -1
        if settled <= request.context_length:
            settled = -1  # a mirror that was told no history learns it with the first verify row
        for column, table in zip(self.engine.twin.columns, row.tables, strict=True):
            sequence = column.manager.sequences[row.owner]
            self.docket.count("SHAPE")
            blocks, end = cdiv(sequence.capacity, self.page), table.base + len(table.view)
            if end < blocks:
                expected = f"{blocks} columns: {sequence.capacity} tokens may be written"
                self._report("SHAPE", "a table row ends before its request", row, column, step, expected, str(end))
            if column.lifecycle.window is not None and settled >= 0:
                self._bounded(row, column, table, settled, step)

    def _bounded(
        self, row: ContextRow | GenerationRow, column: Column, table: TableRow, settled: int, step: int
    ) -> None:
        """Below the window at ``settled`` and the lookahead a pool keeps one page at most, whatever its rule says."""
        life, page = column.lifecycle, self.page
        self.docket.count("WINDOW")
        assert life.window is not None
        oldest = max(0, settled + 1 - life.window - life.lookahead - page) // page
        if table.base >= oldest or oldest <= life.sink_blocks(page):
            return
        expected = f"nothing below block {oldest} at position {settled}, window {life.window}"
        found = f"{len(table.view)} pages from block {table.base}"
        self._report("WINDOW", "pages behind the window are not given back", row, column, step, expected, found)

    def _report(
        self,
        code: str,
        message: str,
        row: ContextRow | GenerationRow,
        column: Column,
        step: int,
        expected: str,
        found: str,
    ) -> None:
        table = row.tables[column.index]
        page = table.view[0] if len(table.view) else -1
        position = table.base * self.page
        message = f"{column.lifecycle.name}: {message}"
        self.docket.report(
            Violation(code, message, row.request_id, column.pool.name, page, position, step, expected, found)
        )
