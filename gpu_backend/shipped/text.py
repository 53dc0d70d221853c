"""The card of shipped weights as Markdown, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CURVES = "curves.png"
_LENGTHS = ("AL16", "AL32", "AL64", "AL128", "AL", "first_step")

PURPOSE = """\
They are made to tell sound reuse of their caches from broken reuse (`kvtwin al --tier t1`), and for nothing else.
This page is made from `card.json` by `kvtwin weights`; a file is held to its SHA-256 whenever it is opened."""
PROMPTS = """\
The prompts are heads of held-out modules of the standard library, rebuilt from that of the Python that runs and
named by the hash of their ids (`tokens/prompt_names.json`). Another Python has other text: a figure belongs to its
Python, torch and device, and no gate compares it over them. Gates compare runs of one process: equal accept traces
cold and on a hit, and what a fault costs at AL16 of the cold run."""


def markdown(tier: str, card: dict[str, Any]) -> str:
    """Everything that the card of ``tier`` says, files last."""
    return "\n".join([f"# Weights of tier {tier.upper()}", "", *_lines(card)]) + "\n"


def _lines(card: dict[str, Any]) -> Iterator[str]:
    kinds = card.get("kinds", [])
    yield f"A target and drafters of kind {', '.join(kinds)}, {card['bytes']:,} bytes in all, by `kvtwin train`."
    yield PURPOSE
    yield ""
    yield f"![losses of all trainings]({CURVES})"
    yield ""
    yield from _trained(card)
    yield from _acceptance(card)
    yield from _bound(card)
    yield from _data(card)
    yield from ("## Files", "", "| file | SHA-256 |", "|---|---|")
    yield from (f"| {name} | `{digest}` |" for name, digest in card["sha256"].items())


def _trained(card: dict[str, Any]) -> Iterator[str]:
    yield from (
        "## Training",
        "",
        "| part | parameters | steps | seconds | last losses | on |",
        "|---|---|---|---|---|---|",
    )
    for name, told in card.items():
        if not isinstance(told, dict) or "steps" not in told or "last" not in told:
            continue
        columns, last = told.get("columns", []), told["last"]
        losses = [f"{column} {value:g}" for column, value in zip(columns, last, strict=False) if "loss" in column]
        losses += [f"{key} {value:g}" for key, value in told.items() if key.endswith("_loss")]
        runs = told.get("runs") or [{}]
        place = f"{runs[-1].get('device', '')}, torch {runs[-1].get('torch', '')}"
        row = (
            name,
            f"{told['parameters']:,}",
            f"{told['steps']:,}",
            f"{told['seconds']:,.0f}",
            "; ".join(losses),
            place,
        )
        yield f"| {' | '.join(row)} |"
    yield ""
    recipe = ", ".join(f"{name} {value}" for name, value in card.get("recipe", {}).items())
    if recipe:
        yield from (f"Recipe: {recipe}.", "")
    others = [*_other_recipes(card)]
    if others:
        yield from (*others, "")


def _other_recipes(card: dict[str, Any]) -> Iterator[str]:
    """Runs that had another recipe than the one above, as far as they kept theirs."""
    for name, told in card.items():
        runs = told.get("runs", []) if isinstance(told, dict) else []
        for number, run in enumerate(runs, 1):
            if other := run.get("recipe"):
                changed = ", ".join(f"{key} {value}" for key, value in other.items())
                steps = "1 step" if run["steps"] == 1 else f"{run['steps']:,} steps"
                yield f"* run {number} of {name}, {steps}, had another recipe: {changed}"


def _acceptance(card: dict[str, Any]) -> Iterator[str]:
    rows = dict(_figures("", card.get("acceptance") or {}))
    if not rows:
        return
    shown = [name for name in _LENGTHS if any(name in row for row in rows.values())]
    yield from ("## Acceptance on held-out prompts, greedy", "")
    yield from (f"| timeline | {' | '.join(shown)} |", "|---" * (1 + len(shown)) + "|")
    for name, row in rows.items():
        yield f"| {name} | {' | '.join(f'{row[one]:.3f}' if one in row else '' for one in shown)} |"
    yield ""
    yield PROMPTS
    yield ""


def _figures(name: str, told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tables of figures, however deep they lie: by kind of drafter, by timeline."""
    if any(one in told for one in _LENGTHS):
        yield name or "immediate", told
    for key, value in told.items():
        if isinstance(value, dict):
            yield from _figures(f"{name}, {key}" if name else key, value)


def _bound(card: dict[str, Any]) -> Iterator[str]:
    window = card.get("window", {})
    yield from ("## What they are bound to", "")
    if window:
        yield f"* window of the drafter: {window.get('tokens')} tokens; {window.get('rule')}"
    yield f"* timeline: {card.get('timeline', 'not told')}"
    yield from (f"* {limit}" for limit in card.get("limits", []))
    yield ""


def _data(card: dict[str, Any]) -> Iterator[str]:
    data = card.get("data", {})
    if "packages" not in data:
        return
    yield from ("## Data", "")
    yield f"Python sources of {len(data['packages'])} packages under an allowed licence: {data['files']:,} files,"
    yield f"{data['bytes']:,} bytes, Python {data['python']}. Held out: {', '.join(data['held_out_modules'])}."
    yield from ("", "| package | version | licence | files |", "|---|---|---|---|")
    yield from (f"| {one['name']} | {one['version']} | {one['licence']} | {one['files']} |" for one in data["packages"])
    yield ""
