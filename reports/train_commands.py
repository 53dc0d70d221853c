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
    TINY = "tiny"


class Place(enum.StrEnum):
    """Where it is trained."""

    CUDA = "cuda"
    CPU = "cpu"


class Stages(Protocol):
    """What trains."""

    def run(
        self, stage: str, folder: Path, recipe_name: str, *, seconds: float, schedule: float | None, seed: int,
        device: str | None, files: int | None, kind: str, say: Callable[[str], None],
    ) -> dict[str, Any]:  # fmt: skip
        """Run one stage; returns what is to be told of it."""
        ...


def register(app: typer.Typer, stages: Callable[[], Stages]) -> None:
    """Add ``train`` to ``app``; ``stages`` is asked for when it runs."""

    @app.command()
    def train(
        stage: Annotated[Stage, typer.Argument(metavar="STAGE", help=f"One of {', '.join(Stage)}, in this order.")],
        out: Annotated[
            Path, typer.Option("--out", metavar="DIR", help="Folder of the training; each stage reads what is there.")
        ],
        size: Annotated[
            Size, typer.Option("--size", help="The T1 pair, or one that a CPU trains in seconds.")
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
        json: Json = False,
    ) -> None:
        """Train the T1 pair and its other drafters on installed Python sources; a stage goes on from what it left."""
        from reports import sources, training

        interrupts.raise_again()
        if stage not in (Stage.TARGET, Stage.DRAFTER) and (seconds or schedule):
            raise sources.usage(f"expected --seconds and --schedule only for target and drafter, found {stage.value}")
        if stage is not Stage.DRAFTER and kind:
            raise sources.usage(f"expected --kind only for drafter, found {stage.value}")
        told = _opened(stages).run(
            stage.value, out, size.value, seconds=seconds or SECONDS, schedule=schedule, seed=seed,
            device=None if device is None else device.value, files=files, kind=(kind or Kind.DFLASH).value, say=_say,
        )  # fmt: skip
        training.show(stage.value, out, told, json)


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
