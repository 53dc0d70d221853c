"""Weights as they are shipped: packed from a training, with a page for people and a picture of the losses."""

from __future__ import annotations

from pathlib import Path

from gpu_backend.shipped.pack import README, Curve, curves, pack
from gpu_backend.shipped.text import CURVES, markdown
from reports.folder import Output, stamp


def write(source: Path, target: Path) -> None:
    """Ship the training in ``source`` to ``target``, whole or not at all."""
    with Output(target, several=False, sources=(source,)) as output:
        folder = output.folder("weights")
        card = pack(source, folder)
        (folder / README).write_text(markdown(target.name, card), encoding="utf-8")
        draw(folder / CURVES, curves(source))
        _stamp(folder)


def _stamp(folder: Path) -> None:
    for part in sorted(path for path in folder.rglob("*") if path.is_dir()):
        stamp(part, "weights")
    stamp(folder, "weights")


def draw(path: Path, told: dict[str, Curve]) -> None:
    """Losses over steps, a panel for each part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * max(1, len(told)), 3.4), dpi=110, layout="constrained")
    panels = figure.subplots(1, max(1, len(told)), squeeze=False)[0]
    for axes, (name, (columns, rows)) in zip(panels, told.items(), strict=False):
        for place in (place for place, column in enumerate(columns) if "loss" in column):
            axes.plot([row[0] for row in rows], [row[place] for row in rows], label=columns[place].replace("_", " "))
        axes.set_title(name, loc="left")
        axes.set_xlabel("step")
        axes.set_ylabel("nats a token")
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.legend(frameon=False)
    figure.savefig(path, format="png", metadata={"Software": "kvtwin"})
