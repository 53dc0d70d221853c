"""JSON files that hold a mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, reason_of


def load_mapping(path: Path) -> dict[str, Any]:
    """The mapping in ``path``; InputError, in one line, for a file that cannot be read or holds none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"cannot be read: {reason_of(error)}") from error
    except json.JSONDecodeError as error:
        raise InputError(str(path), error.lineno, "", f"is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # of integers without end, and of lists in lists
        raise InputError(str(path), 0, "", f"is not JSON that can be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(str(path), 0, "", "expected a mapping")
    return values
