"""What a stage of a training is told as: a few lines or a table, and its loss as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.document import plural

QUIET = ("runs", "curve", "columns", "packages", "refused", "held_out_modules", "drafters")  # which the files hold
FIGURES = ("AL", "AL16", "AL32", "AL64", "AL128", "first_step", "looping_share")


def show(stage: str, folder: Path, told: dict[str, Any], as_json: bool) -> None:
    """Print the answer of a stage; draw its curve beside the weights, if it has one."""
    if "curve" in told:
        from gpu_backend.shipped.card import DRAFTERS

        place = DRAFTERS[told["kind"]] if "kind" in told else stage
        draw(folder / place / "curve.png", place, told)
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        if name not in QUIET:
            print(f"{name.replace('_', ' ')}: {value}")
    if "packages" in told:
        print(f"packages: {len(told['packages'])} taken, {len(told['refused'])} refused by their licence")
    for line in table(told.get("drafters", {})):
        print(line)


def table(drafters: dict[str, dict[str, Any]]) -> list[str]:
    """Acceptance by kind, a line for each timeline; none without a drafter."""
    if not drafters:
        return []
    head = ["drafter", "K", "timeline", *(name.replace("_", " ") for name in FIGURES), "by slot"]
    rows = [head]
    for kind, figures in drafters.items():
        for timeline, found in (("immediate", figures), ("seed", figures["seed"])):
            values = ["-" if found.get(name) is None else f"{found[name]:.3f}" for name in FIGURES]
            slots = " ".join(f"{share:.2f}".lstrip("0") for share in found["slots"])
            rows.append([kind, str(figures["drafts"]), timeline, *values, slots])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def draw(path: Path, stage: str, told: dict[str, Any]) -> None:
    """The curve of all runs: losses over steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    rows, columns = told["curve"], list(told["columns"])
    for name in (name for name in columns if "loss" in name):
        place = columns.index(name)
        axes.plot([row[0] for row in rows], [row[place] for row in rows], label=name.replace("_", " "))
    axes.set_title(f"{stage}: {plural(told['steps'], 'step')}, {told['seconds']:,.0f} s", loc="left")
    axes.set_xlabel("step")
    axes.set_ylabel("nats a token")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.legend(frameon=False)
    figure.savefig(path, format="png", metadata={"Software": "kvtwin"})
