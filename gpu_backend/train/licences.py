"""Which installed packages may be trained on: those whose own metadata says PSF, BSD, MIT or Apache-2.0.

What says nothing, or says more than that, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution

ALLOWED = {
    "PSF-2.0": ("psf-2.0", "python-2.0", "psf", "psf license", "python software foundation license"),
    "BSD": (
        *("bsd-2-clause", "bsd-3-clause", "bsd", "bsd license", "new bsd", "new bsd license", "modified bsd license"),
        *("bsd 3-clause", "bsd-3", "3-clause bsd", "3-clause bsd license", "bsd 3-clause license", "simplified bsd"),
    ),
    "MIT": ("mit", "mit license", "the mit license", "the mit license (mit)", "mit license (mit)"),
    "Apache-2.0": (
        *("apache-2.0", "apache 2.0", "apache 2", "apache2", "apache license 2.0", "apache license, version 2.0"),
        *("apache software license", "apache software license 2.0", "apache 2.0 license", "apache license version 2.0"),
    ),
}
FAMILY = {name: family for family, names in ALLOWED.items() for name in names}


def licence_of(package: Distribution) -> str | None:
    """What ``package`` may be used under, such as ``MIT``, or ``None`` if that is not on the list or not said.

    An expression (PEP 639) counts before classifiers, these before the old free field.
    """
    metadata = package.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return of_expression(expression)
    stated = [line for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    named = [line.rpartition("::")[2] for line in stated if line != "License :: OSI Approved"]
    if named:
        return _joined(_family(name) for name in named)
    field = metadata.get("License") or ""
    return of_expression(field) if re.search(r" (AND|OR) ", field) else _family(field)


def of_expression(expression: str) -> str | None:
    """An SPDX expression: all of what ``AND`` joins has to be allowed, one of what ``OR`` joins."""
    found: list[str | None] = []
    for term in re.split(r"\s+AND\s+", _outer(expression.strip())):
        choices = [_family(name) for name in re.split(r"\s+OR\s+", _outer(term.strip()))]
        found.append(next((choice for choice in choices if choice), None))
    return _joined(found)


def _outer(text: str) -> str:
    """``text`` without the brackets around all of it."""
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return text if "(" in inner or ")" in inner else inner


def _family(name: str) -> str | None:
    return FAMILY.get(" ".join(name.lower().split()))


def _joined(families: Iterable[str | None]) -> str | None:
    names: list[str] = []
    for family in families:
        if family is None:
            return None
        if family not in names:
            names.append(family)
    return " AND ".join(names)
