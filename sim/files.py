"""Files are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write ``lines`` (without line ends) to ``path``; a reader sees the old file or the complete new one.

    Folders above are made. OSError as the file system raises it; the unfinished sibling is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(line)
                file.write("\n")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
