"""Block tables: which page backs which block of a sequence, and the row of it that a device is told."""

from __future__ import annotations

from array import array

from model.pages import PagePool

NO_PAGE = -1


class TableRow:
    """One row of a device table: slots (int32 bytes) of the sink blocks and of the blocks from ``base`` on.

    ``view`` reads ``pages`` as integers. Rows compare by content and never change.
    """

    __slots__ = ("base", "pages", "sinks", "view")

    def __init__(self, sinks: bytes, base: int, pages: bytes) -> None:
        self.sinks = sinks
        self.base = base
        self.pages = pages
        self.view = memoryview(pages).cast("i")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableRow):
            return NotImplemented
        return (self.sinks, self.base, self.pages) == (other.sinks, other.base, other.pages)

    def __hash__(self) -> int:
        return hash((self.sinks, self.base, self.pages))


def shifted(row: TableRow, blocks: int) -> TableRow:
    """``row`` as an access sees it that does not count its blocks from the base page ``blocks``."""
    return TableRow(row.sinks, row.base + blocks, row.pages)


def _ids(pages: array[int]) -> bytes:
    return pages.tobytes()


class Table:
    """Pages of one lifecycle: ``sinks`` from block 0, ``pages`` from block ``base``; what lies between is released."""

    __slots__ = ("base", "pages", "row", "sinks")

    def __init__(self) -> None:
        self.sinks = array("i")
        self.base = 0
        self.pages = array("i")
        self.row: TableRow | None = None  # what the device was last told; None after a change

    def snapshot(self, pool: PagePool, columns: int = 1 << 31, by_slot: bool = True) -> TableRow:
        """The row as a step sees it, cut off behind ``columns`` blocks; the same object as long as nothing changes.

        Not ``by_slot``: it names page ids.
        """
        if self.row is None:
            pages = self.pages if self.end() <= columns else self.pages[: max(0, columns - self.base)]
            told = pool.device_slots if by_slot else _ids
            self.row = TableRow(told(self.sinks), self.base, told(pages))
        return self.row

    def end(self) -> int:
        """One past the last backed block: the extent of the row."""
        return self.base + len(self.pages)

    def page(self, block: int) -> int:
        """Page of ``block``, or ``NO_PAGE`` where none backs it."""
        place = block - self.base
        if 0 <= place < len(self.pages):
            return self.pages[place]
        return self.sinks[block] if block < len(self.sinks) else NO_PAGE

    def count(self) -> int:
        """Number of backed blocks."""
        return len(self.sinks) + len(self.pages)
