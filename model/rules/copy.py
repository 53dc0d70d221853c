"""Rule *copy*: how a claim that ends inside a page gets a page of its own."""

from __future__ import annotations

from dataclasses import dataclass

from model.pages import PagePool


@dataclass(frozen=True, slots=True)
class CopyPartialPage:
    """Copy the shared page into a fresh one at the first resume; the source stays as it is."""

    name: str = "fresh-page"

    def fresh_page(self, pool: PagePool, source: int) -> int:
        """Page that the claimer will write: a fresh one."""
        return pool.grant(1)[0]


@dataclass(frozen=True, slots=True)
class WriteInPlace:
    """Wrong: go on in the shared page itself."""

    name: str = "in-place"

    def fresh_page(self, pool: PagePool, source: int) -> int:
        return source
