"""The commands that read what a run left: ``tables`` of its events, ``pages`` of its pools at one of its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports import interrupts
from reports.options import Json


def register(app: typer.Typer) -> None:
    """Add ``tables`` and ``pages`` to ``app``."""

    @app.command()
    def tables(
        log: Annotated[Path, typer.Argument(metavar="LOG", help="A folder that `kvtwin run --out` wrote, or a log.")],
        out: Annotated[
            Path, typer.Option("--out", metavar="DIR", help="Write the tables to this folder, whole or not at all.")
        ],
        csv: Annotated[bool, typer.Option("--csv", help="CSV in place of Parquet.")] = False,
        json: Json = False,
    ) -> None:
        """Turn an event log into tables, a file for each kind of event."""
        from reports import log_tables

        interrupts.raise_again()
        log_tables.show_tables(log_tables.tables(log, out, csv), out, json)

    @app.command()
    def pages(
        run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `kvtwin run --out` wrote.")],
        at: Annotated[
            int | None, typer.Option("--at", metavar="N", min=0, help="When iteration N went out; the end of the run.")
        ] = None,
        json: Json = False,
    ) -> None:
        """Show what the pages of all pools hold at one step of a run, and whom they were granted to."""
        from reports import log_tables

        log_tables.show_pages(log_tables.pages(run, at), json)
