"""The command ``weights``: what is shipped, whether it is whole, and how a training becomes one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.options import Json, Out


def register(app: typer.Typer) -> None:
    """Add ``weights`` to ``app``."""

    @app.command()
    def weights(
        where: Annotated[str, typer.Argument(metavar="DIR|TIER", help="A folder of weights, or t1.")] = "t1",
        out: Out = None,
        json: Json = False,
    ) -> None:
        """Hold weights to the SHA-256 on their card; with --out, ship a training: weights, card, page and losses."""
        from gpu_backend.shipped.card import CARD, DRAFTERS, HOME, TARGET, TOKENS, card_of, checked
        from gpu_backend.shipped.pack import sizes_of
        from reports import shipping
        from reports.document import dump
        from scenarios.errors import InputError

        folder = HOME / where if (HOME / where).is_dir() else Path(where)
        if out is not None:
            shipping.write(folder, out)
            folder = out
        card = card_of(folder)
        if not card:
            raise InputError(str(folder), 0, "weights", "expected a folder with card.json in it, found none")
        found = checked(folder, (TARGET, TOKENS, *DRAFTERS.values()))
        if not found:
            raise InputError(str(folder / CARD), 0, "sha256", "expected files of weights, found none")
        sizes = {name: size for name, size in sizes_of(folder).items() if name in found}
        if json:
            print(dump({"folder": str(folder), "files": sizes, "bytes": sum(sizes.values()), "sha256": found}), end="")
            return
        for name, size in sizes.items():
            print(f"{name}: {size:,} bytes, as on the card")
        print(f"{len(sizes)} files, {sum(sizes.values()):,} bytes")
