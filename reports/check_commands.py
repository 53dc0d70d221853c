"""The command ``kvtwin check LOG``: laws over logs of events, whoever wrote them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from reports import interrupts
from reports.options import Json, Out


class LogFormat(enum.StrEnum):
    """Formats of logs."""

    KVTWIN = "kvtwin"
    TRTLLM = "trtllm-events"
    VLLM = "vllm-events"


def register(app: typer.Typer) -> None:
    """Add ``check`` to ``app``."""

    @app.command()
    def check(
        log: Annotated[Path, typer.Argument(metavar="LOG", help="A log of events, plain or gzip, or a run folder.")],
        format: Annotated[
            LogFormat | None, typer.Option("--format", help="Whose events they are; guessed from the first one.")
        ] = None,
        partial: Annotated[
            bool, typer.Option("--partial", help="The log begins or ends in mid-run: what it does not tell may be.")
        ] = False,
        windowed: Annotated[
            bool, typer.Option("--windowed", help="No pool has full attention, so parents may go before children.")
        ] = False,
        out: Out = None,
        json: Json = False,
    ) -> None:
        """Check the laws that a log allows, also on logs that kvtwin did not write."""
        from reports import log_checks

        interrupts.raise_again()
        name = None if format is None else format.value
        report = log_checks.run(log, name, partial, windowed, out)
        log_checks.show(report, json)
        raise typer.Exit(log_checks.exit_code_of(report))
