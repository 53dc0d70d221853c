"""``kvtwin al`` as a page: builds by kind of drafter, every condition, predicted against measured acceptance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpu_backend.al.order import BROKEN, CONDITIONS, COSTS, IDENTICAL, Told
from reports.al_words import (
    COLUMNS,
    KINDS,
    LEGEND,
    by_kind,
    by_table,
    closing,
    cold_line,
    headline,
    of_table,
)
from reports.comparison import NONE
from reports.page.figures import Plot
from reports.page.render import Cell, Column, Page, Table, render
from reports.page.theme import FAINT, Sheet, colour, dash, mark

WORDS = ("build", "condition", "drafter", "verdict", "caught")  # columns that are no figures
TONES = {IDENTICAL: "good", BROKEN: "bad", COSTS: "warn"}


def html(told: Told) -> str:
    """The page, one file without a reference to any other."""
    return render(page(told))


def page(told: Told) -> Page:
    """What stands on it."""
    broken = [
        f"{row['drafter']}, {row['condition']} on {row['build']}: {law}" for row in told.arms for law in row["laws"]
    ]
    pair = told.pair
    tables = [table("kinds", "Builds by kind of drafter", KINDS, kinds, LEGEND)] if (kinds := by_kind(told)) else []
    tables += [
        table(
            f"{kind}-{decoding}-{name}", f"{kind}: {name}, {decoding}", COLUMNS, [*map(of_table, rows)],
            f"{CONDITIONS[name]}; {cold_line(rows[0])}", folded=bool(kinds),
        )
        for (kind, decoding, name), rows in by_table(told).items()
    ]  # fmt: skip
    return Page(
        "acceptance",
        f"Cold against hit: {pair['name']}",
        "Sound reuse changed accept traces." if broken else "Sound reuse changed nothing that it owes.",
        "bad" if broken else "good",
        headline(told),
        warnings=closing(told),
        problems=broken,
        facts=facts(told),
        tables=tables,
        plots=plots(told.calibrations),
    )


def facts(told: Told) -> list[tuple[str, str]]:
    """What was measured with."""
    names = ("prompts", "tokens", "device_name", "python", "torch", "page", "temperature", "timeline", "prompts_sha256")
    found = [(name.replace("_", " "), str(told.pair[name])) for name in names if name in told.pair]
    for kind, own in told.drafters.items():
        window = "full attention" if own["window"] is None else f"window {own['window']}"
        hashes = ", ".join(f"{name} {digest[:12]}" for name, digest in own["sha256"].items() if "drafter" in name)
        found.append((kind, f"K {own['drafts']}, {window}, lookahead {own['lookahead']}; {hashes or 'drawn weights'}"))
    return found


def table(
    name: str, heading: str, columns: dict[str, str], rows: Sequence[dict[str, Any]], note: str, *, folded: bool = False
) -> Table:
    """Rows of words as a table that can be sorted."""
    return Table(
        name, heading, [Column(label, key not in WORDS) for key, label in columns.items()],
        [[_cell(key, row[key]) for key in columns] for row in rows], note, folded, find=name == "kinds",
    )  # fmt: skip


def _cell(key: str, told: str | None) -> Cell:
    text = str(told or NONE)
    head, _, behind = text.partition(" ") if key not in WORDS else (text, "", "")
    return Cell(head, _value(head), behind, TONES.get(text, "") if key == "verdict" else "")


def _value(text: str) -> float | None:
    try:
        return float(text.split("/")[0].rstrip("%").replace(",", ""))
    except ValueError:
        return None


def plots(calibrations: dict[str, dict[str, Any]]) -> list[Plot]:
    """Predicted against measured acceptance length, and the curves, by kind of drafter."""
    if not calibrations:
        return []
    with Sheet("predicted") as sheet:
        for place, (kind, found) in enumerate(calibrations.items()):
            rows = found["predictions"]
            sheet.axes.plot(
                [row["measured"] for row in rows], [row["predicted"] for row in rows], mark(place),
                color=colour(place), alpha=0.7, markersize=4.5, label=kind,
            )  # fmt: skip
        rows = [row for found in calibrations.values() for row in found["predictions"]]
        ends = [row[name] for row in rows for name in ("measured", "predicted")] or [1.0, 2.0]
        sheet.axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=FAINT, linewidth=1)
        sheet.axes.set_xlabel("AL measured, hits that were not fitted")
        sheet.axes.set_ylabel("AL predicted by the sim")
        sheet.axes.legend()
        predicted = sheet.svg("Acceptance length predicted by the sim over the one measured, by kind of drafter")
    with Sheet("kept") as sheet:
        for place, (kind, found) in enumerate(calibrations.items()):
            model = json.loads(found["model"])
            sheet.axes.plot(
                model["shares"],
                model["kept"],
                color=colour(place),
                linestyle=dash(place),
                marker=mark(place),
                label=kind,
            )
        sheet.axes.set_xlabel("valid share of what the drafter reads, newest rows first")
        sheet.axes.set_ylabel("kept of every acceptance rate")
        sheet.axes.set_ylim(0, 1.05)
        sheet.axes.legend()
        kept = sheet.svg("What is left of the acceptance rates by how much of the drafter's context is valid")
    return [
        Plot(
            "Predicted against measured", predicted, "A point is one build under one condition; faults were not fitted."
        ),
        Plot(
            "What missing context costs",
            kept,
            "Of a window, or of the whole context where a drafter attends all of it.",
        ),
    ]
