"""The commands that list what kvtwin comes with: scenarios, builds, faults, laws."""

from __future__ import annotations

from typing import Annotated

import typer

from reports.options import Json


def register(app: typer.Typer) -> None:
    """Add ``scenarios``, ``builds``, ``faults`` and ``invariants`` to ``app``."""

    @app.command()
    def scenarios(json: Json = False) -> None:
        """List the scenarios that come with kvtwin."""
        from reports import catalogue

        catalogue.show(
            catalogue.scenario_rows(),
            json,
            {"name": "scenario", "build": "build", "geometry": "geometry", "summary": "what it shows"},
        )

    @app.command()
    def builds(
        pair: Annotated[
            list[str] | None, typer.Argument(metavar="BUILD", help="One build: its rules. Two: only what differs.")
        ] = None,
        json: Json = False,
    ) -> None:
        """List the builds and their rules, the rules of one, or what differs between two."""
        from reports import builds as listed

        listed.show(tuple(pair or ()), json)

    @app.command()
    def faults(json: Json = False) -> None:
        """List the faults: builds with one wrong rule, the law that has to fire first, and those that may follow."""
        from reports import catalogue

        catalogue.show_faults(json)

    @app.command()
    def invariants(json: Json = False) -> None:
        """List the laws: what each says, where it is checked, and the faults that show that it can fail."""
        from reports import catalogue

        catalogue.show(
            catalogue.invariant_rows(),
            json,
            {"name": "law", "sentence": "says", "checked": "checked at", "faults": "faults"},
        )
