"""The first sentences of a page: what came of the builds, and how they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from reports.comparison import Comparison
from reports.page.frames import floats

VERDICTS = {0: "good", 1: "bad", 3: "warn", 130: "warn"}


def verdict(comparison: Comparison) -> str:
    """Who broke a law or missed an expectation, in one sentence."""
    if not comparison.checked:
        return "Nothing was checked."
    surprises, declared = [], []
    for build, codes in comparison.laws.items():
        expected = comparison.declared(build)
        if news := [code for code in codes if code not in expected]:
            surprises.append(f"{build} broke {joined(news)}")
        if known := [code for code in codes if code in expected]:
            declared.append(f"{build} broke {joined(known)}, as it declares")
    surprises += [f"{build} missed an expectation" for build, missed in comparison.missed.items() if missed]
    if comparison.interrupted:
        surprises.append(f"Ctrl-C came before {joined(comparison.left_out)} had run")
    if surprises:
        return f"{'; '.join([*surprises, *declared])}."
    sound = [build for build in comparison.laws if not comparison.laws[build]]
    if declared:
        return f"{joined(sound)} broke no law; {'; '.join(declared)}." if sound else f"{'; '.join(declared)}."
    return "No law broke."


def lead(comparison: Comparison) -> str:
    """The differences that people come for, in sentences; builds of equal figures are named together."""
    table, sentences = comparison.table, []
    tokens = dict(zip(map(str, table.index), floats(table, "prefilled_tokens").tolist(), strict=True))
    least = min(tokens.values())
    best = joined([build for build, value in tokens.items() if value == least])
    told = f"{best} prefilled {'the fewest tokens, ' if len(set(tokens.values())) > 1 else ''}{least:,.0f}"
    told += " tokens" if len(set(tokens.values())) == 1 else ""
    if least and (more := {build: value / least - 1 for build, value in tokens.items() if value > least}):
        told += "; " + ", ".join(f"{joined(names)} {text} more" for text, names in alike(more, _percent).items())
    sentences.append(told)
    coverage = _column(comparison, "coverage_first")
    if coverage and min(coverage.values()) < 1:
        texts = alike(coverage, lambda value: f"{value:.1%}")
        told = ", ".join(f"{text} valid on {joined(names)}" for text, names in texts.items())
        sentences.append(f"At the first step after a hit the drafter's window was {told}")
    lengths = _column(comparison, "al_request_mean")
    if lengths:
        texts = alike(lengths, lambda value: f"{value:.2f}")
        shown = ", ".join(f"{text} on {joined(names)}" if len(texts) > 1 else text for text, names in texts.items())
        sentences.append(f"The mean acceptance length of a request is {shown} ({comparison.acceptance_mode})")
    return " ".join(f"{text}." for text in sentences)


def alike(values: Mapping[str, float], text: Callable[[float], str]) -> dict[str, list[str]]:
    """Names by the text of their value."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(text(value), []).append(name)
    return found


def joined(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def _column(comparison: Comparison, name: str) -> dict[str, float]:
    """The figures that are known, by build."""
    values = zip(map(str, comparison.table.index), floats(comparison.table, name).tolist(), strict=True)
    return {build: value for build, value in values if not math.isnan(value)}
