"""Rows of ``kvtwin al`` as people read them: figures with their changes, by condition and by kind of drafter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gpu_backend.al import seeds
from gpu_backend.al.order import BROKEN, Told
from model.builds import DEFAULT_BUILD
from reports.comparison import NONE
from reports.document import plural

Row = dict[str, Any]
COLUMNS = {
    "build": "build",
    "verdict": "verdict",
    "same": "as cold",
    "al16": "AL16 against cold",
    "al128": "AL128",
    "al": "AL",
    "first": "first",
    "prefilled": "prefilled",
    "cached": "cached",
    "caught": "law",
}
KINDS = {  # of the comparison by kind of drafter
    "condition": "condition",
    "build": "build",
    "drafter": "drafter",
    "verdict": "verdict",
    "identical": "identical",
    "al16": "AL16 against cold",
    "al128": "AL128 against cold",
    "first": "first step",
    "prefilled": "prefilled",
    "caught": "law",
}
COLD = ("AL16", "AL32", "AL64", "AL128", "AL")
LEGEND = (
    f"verdict: that of wrong rules is told beside the hits of {DEFAULT_BUILD} where they were measured, whatever both "
    "are against cold; first: tokens of the first step of real drafts; prefilled, cached: tokens of target/drafter; "
    f"law: those that see a fault in the sim, the first one first ({NONE}: none does, or it is no fault)"
)


def by_table(told: Told) -> dict[tuple[str, str, str], list[Row]]:
    """Rows by kind of drafter, how drafts are judged, and condition."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in told.arms:
        found.setdefault((row["drafter"], row["decoding"], row["condition"]), []).append(row)
    return found


def by_kind(told: Told) -> list[dict[str, str]]:
    """Every build under every condition, its kinds of drafters one below the other; none where there is one kind."""
    order = {kind: place for place, kind in enumerate(told.cold)}
    if len(order) < 2:
        return []
    conditions = {name: place for place, name in enumerate(dict.fromkeys(row["condition"] for row in told.arms))}
    builds = {name: place for place, name in enumerate(dict.fromkeys(row["build"] for row in told.arms))}

    def place(row: Row) -> tuple[Any, ...]:
        return row["decoding"], conditions[row["condition"]], builds[row["build"]], order[row["drafter"]]

    return [of_kind(row) for row in sorted(told.arms, key=place)]


def of_kind(row: Row) -> dict[str, str]:
    """A row of the comparison by kind."""
    cells = {name: str(row[name]) for name in ("condition", "build", "drafter", "verdict")}
    cells["identical"] = f"{row['same_traces'] / row['hits']:.0%}" if row["AL"] is not None else NONE
    for name in ("AL16", "AL128"):
        cells[name.lower()] = NONE if row[name] is None else f"{row[name]:.3f} {change(row, name)}"
    cells["first"] = NONE if row["first"] is None else f"{row['first']:.3f} {change(row, 'first')}"
    cells["prefilled"] = pools(row, "prefilled") or NONE
    cells["caught"] = ", ".join(row["caught_by"]) or NONE
    return cells


def of_table(row: Row) -> dict[str, Any]:
    """A row of the table of one condition."""
    shown = {"build": row["build"], "verdict": row["verdict"], "same": f"{row['same_traces']}/{row['hits']}"}
    shown["al16"] = None if row["AL16"] is None else f"{number(row['AL16'])} {change(row, 'AL16')}"
    for name in ("AL128", "AL"):
        moved = row[f"{name}_change"]
        shown[name.lower()] = None if moved is None else f"{number(row[name])} {moved:+.1%}"
    shown["first"] = number(row["first"])
    shown |= {what: pools(row, what) for what in ("prefilled", "cached")}
    shown["caught"] = ", ".join(row["caught_by"])
    return shown


def pools(row: Row, what: str) -> str | None:
    """Tokens of target and drafter."""
    return None if row["seconds"] is None else f"{row[f'{what}_target']:,}/{row[f'{what}_draft']:,}"


def cold_line(row: Row) -> str:
    """The figures of the cold run of a row."""
    *told, first = (number(row[f"{name}_cold"]) or NONE for name in (*COLD, "first"))
    return f"cold: {', '.join(f'{name} {length}' for name, length in zip(COLD, told, strict=True))}, first step {first}"


def number(value: float | None) -> str | None:
    """Three decimals."""
    return None if value is None else f"{value:.3f}"


def change(row: Row, name: str) -> str | None:
    """A change with its interval in per cent."""
    low, value, high = (row[f"{name}_{end}"] for end in ("low", "change", "high"))
    if value is None:
        return None
    if math.isnan(low):
        return f"{value:+.1%}"
    return f"{value:+.1%} [{100 * low:+.1f}, {100 * high:+.1f}]"


def in_columns(columns: dict[str, str], rows: Sequence[dict[str, Any]], words: int = 2) -> Iterator[str]:
    """Rows in columns under a heading; the first ``words`` columns to the left, figures to the right."""
    cells = [[str(row[key] or NONE) for key in columns] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        left = [cell.ljust(width) for cell, width in zip(row[:words], widths, strict=False)]
        right = [cell.rjust(width) for cell, width in zip(row[words:], widths[words:], strict=True)]
        yield "  ".join([*left, *right]).rstrip()


def as_markdown(columns: dict[str, str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The same as lines of Markdown."""
    yield f"| {' | '.join(columns.values())} |"
    yield "|" + "---|" * len(columns)
    yield from ("| " + " | ".join(str(row[key] or NONE) for key in columns) + " |" for row in rows)


def headline(told: Told) -> str:
    """One line: how many traces were owed, how many were equal."""
    owed, same = (sum(row[name] for row in told.arms) for name in ("owed", "owed_and_same"))
    broken = sum(row["verdict"] == BROKEN for row in told.arms)
    mode = "exact" if told.pair["exact"] else "not exact: ties may fall either way, nothing is owed"
    end = ", interrupted" if told.interrupted else ""
    seconds = sorted(row["seconds"] for row in told.arms if row["seconds"] is not None)
    pace = f"; {seconds[len(seconds) // 2]:.2f} s a run (median)" if seconds else ""
    return (
        f"{plural(len(told.arms), 'run')} ({mode}): of {owed} accept traces that are owed to be the cold ones "
        f"{same} are, {plural(broken, 'violation')}{end}{pace}"
    )


def closing(told: Told) -> list[str]:
    """What stands behind the tables, ahead of the headline."""
    failed = [f"{kind}: not measured to its end: {failure.line}" for kind, failure in told.failed.items()]
    return [*told.notes, *seeds.lines(told), *calibrated(told), *failed]


def calibrated(told: Told) -> list[str]:
    """How well the model of each drafter predicts the hits that it was not fitted from."""
    lines = []
    for kind, found in told.calibrations.items():
        error = found["error"]
        for name, label in (
            ("correct", "correct builds"),
            ("builds", "all builds"),
            ("faults", "faults, which were not fitted"),
        ):
            if f"{name}_rms" in error:
                off = f"{error[f'{name}_rms']:.1%} (root mean square), {error[f'{name}_largest']:.1%} at most"
                moved = f"its change against cold by {100 * error[f'{name}_change_rms']:.1f} points"
                lines.append(f"predicted by the model fitted for {kind}, {label}: AL is off by {off}, {moved}")
    return lines
