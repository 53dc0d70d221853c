"""Triton's interpreter, told not to do again what is done.

At every call of one function by another it looks through the whole language for what it has to replace. Inside a kernel
all of that is replaced already, and looking took two fifths of the time of a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def look_once() -> None:
    """Let a function whose language is replaced run as it is."""
    replace: Callable[[Any], Any] = interpreter._patch_lang

    def replace_once(function: Any) -> Any:
        languages = [value for value in function.__globals__.values() if value is tl or value is tl.core]
        if any(tl.core.is_builtin(language.load) for language in languages):
            return replace(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = replace_once
