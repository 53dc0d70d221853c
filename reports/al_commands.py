"""The command ``al``: acceptance of a real drafter, cold and on a hit."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports import interrupts
from reports.device_commands import OnDevice, Room, open_room
from reports.options import Json, Out

if TYPE_CHECKING:
    from gpu_backend.al.order import Order

ALL, NO = "all", "none"
HELP = "kvtwin al --help"
RULES = ("greedy", "token", "block", "match")  # of acceptance


class Tier(enum.StrEnum):
    """Which pair is measured."""

    T0 = "t0"
    T1 = "t1"
    T2 = "t2"


Builds = Annotated[
    str | None,
    typer.Option("--builds", metavar="A,B,C", help="Builds; by default all correct ones and unified-nowindow."),
]
Faults = Annotated[
    str | None,
    typer.Option("--faults", metavar="A,B,C", help="Faults, all or none; by default those that the conditions show."),
]
Conditions = Annotated[
    str | None,
    typer.Option(
        "--conditions",
        metavar="A,B,C",
        help="By default all: repeat, two-turn, short-tail, long-tail, branch, suspend, host-load, transfer, agentic, "
        "chunked.",
    ),
]
Tiers = Annotated[
    Tier | None,
    typer.Option("--tier", help="T0: random weights over a few words; T1: the trained pair; T2: in the cache."),
]
Weights = Annotated[Path | None, typer.Option("--weights", metavar="DIR", help="A pair that `kvtwin train` left.")]
Drafters = Annotated[
    str | None,
    typer.Option("--drafters", metavar="A,B,C", help="Kinds: dflash, dspark, eagle3, mtp; by default all there are."),
]
Prompts = Annotated[int | None, typer.Option("--prompts", min=1, help="Requests of a condition; 256, 8 on a CPU.")]
Spans = Annotated[
    int | None, typer.Option("--spans", min=1, help="Windows that a prompt is long; 4. One is enough for a CPU.")
]
Tokens = Annotated[int | None, typer.Option("--tokens", min=2, help="Tokens of each; 128, 32 on a CPU.")]
Rules = Annotated[
    str,
    typer.Option(
        "--sampling", metavar="A,B,C", help="Rules of acceptance: greedy, token, block (golden), match (default)."
    ),
]
Temperature = Annotated[float, typer.Option("--temperature", min=0.01, help="Of the sampled rules.")]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact/--no-exact", help="Kernels whose bits do not depend on the batch; without them nothing is owed."
    ),
]
Eager = Annotated[bool, typer.Option("--eager", help="No CUDA graphs.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of drawn prompts, of sampling and of the intervals.")]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Fit the sim's acceptance model; with --out it is written there.")
]


def register(app: typer.Typer, room: Callable[[], Room]) -> None:
    """Add ``al`` to ``app``; ``room`` is asked for when it runs."""

    @app.command()
    def al(
        builds: Builds = None,
        faults: Faults = None,
        conditions: Conditions = None,
        tier: Tiers = None,
        weights: Weights = None,
        drafters: Drafters = None,
        prompts: Prompts = None,
        tokens: Tokens = None,
        spans: Spans = None,
        sampling: Rules = "greedy",
        temperature: Temperature = 1.0,
        device: OnDevice = None,
        exact: Exact = True,
        eager: Eager = False,
        seed: Seed = 0,
        calibrate: Calibrate = False,
        out: Out = None,
        json: Json = False,
    ) -> None:
        """Measure acceptance cold and on a hit, for builds and faults: sound reuse must not change a single step."""
        interrupts.raise_again()
        order = replace(
            order_of(builds, faults, conditions, tier, weights), prompts=prompts, tokens=tokens,
            device=None if device is None else device.value, exact=exact, graphs=False if eager else None, seed=seed,
            sampling=_some(sampling, RULES, "sampling", "a rule", HELP), temperature=temperature, calibrate=calibrate,
            drafters=None if drafters is None else kinds_of(drafters), spans=spans,
        )  # fmt: skip
        from reports import al as tables
        from reports import terminal
        from reports.folder import check_target

        if out is not None:
            check_target(out)
        with terminal.progress("al") as tick:
            told = open_room(room).measure(order, tick)
        tables.show(told, json)
        if out is not None:
            tables.write(out, told)
        for kind, failure in told.failed.items():
            terminal.complain(f"{kind}: {failure.line}")
        raise typer.Exit(told.exit_code)


def order_of(
    builds: str | None, faults: str | None, conditions: str | None, tier: Tier | None, weights: Path | None
) -> Order:
    """What the names and the pair of the options ask for; InputError, in one line, for unknown ones."""
    from gpu_backend.al.order import CONDITIONS, EXPERIMENTS, Order, faults_shown
    from model.builds import BUILDS
    from model.faults import FAULTS
    from scenarios.errors import InputError

    if (weights is None) == (tier is None):
        found = "neither" if tier is None else "both"
        raise InputError("al", 0, "weights", f"expected --tier or --weights, found {found}")
    correct = [name for name, build in BUILDS.items() if build.correct]
    named = (*correct, *EXPERIMENTS) if builds is None else _builds(builds)
    chosen = tuple(CONDITIONS)
    if conditions is not None:
        chosen = _names(conditions, CONDITIONS, "conditions", "a condition", HELP)
    wrong = faults_shown(chosen) if faults is None else _names(faults, FAULTS, "faults", "a fault", "kvtwin faults")
    return Order(_folder_of(tier, weights), named, wrong, chosen)


def _folder_of(tier: Tier | None, weights: Path | None) -> Path | None:
    """Where the weights lie; None for T0."""
    from gpu_backend.al.order import T1_FOLDER
    from gpu_backend.tier2.cache import made_t2

    if tier is Tier.T1:
        return T1_FOLDER
    return made_t2() if tier is Tier.T2 else weights


def kinds_of(told: str) -> tuple[str, ...]:
    """Kinds of drafters of a list with commas; InputError for one that has no module, and for one that is none."""
    from gpu_backend.shipped.card import DRAFTERS
    from model.drafter import KINDS
    from scenarios.errors import InputError

    chosen = _some(told, (*DRAFTERS, *KINDS), "drafters", "a drafter", HELP) if told != ALL else tuple(DRAFTERS)
    for name in chosen:
        if name not in DRAFTERS:
            problem = f"expected one of {', '.join(DRAFTERS)}, found {name}: the sim serves it, and it has no module"
            raise InputError("drafters", 0, "", problem)
    return chosen


def _builds(told: str) -> tuple[str, ...]:
    """Builds of a list with commas; none for ``none``."""
    from sim.rulespec import find

    names = () if told == NO else tuple(dict.fromkeys(name.strip() for name in told.split(",")))
    for name in names:
        find(name)
    return names


def _names(told: str, known: Collection[str], option: str, what: str, listed_by: str) -> tuple[str, ...]:
    """Names of a list with commas; ``all`` of them, or ``none``."""
    from scenarios.errors import InputError
    from scenarios.names import unknown_name

    if told in (ALL, NO):
        return tuple(known) if told == ALL else ()
    chosen = tuple(dict.fromkeys(name.strip().removeprefix("fault:") for name in told.split(",")))
    for name in chosen:
        if name not in known:
            raise InputError(option, 0, "", unknown_name(what, name, known, listed_by))
    return chosen


def _some(told: str, known: Collection[str], option: str, what: str, listed_by: str) -> tuple[str, ...]:
    """The same, where nothing can be done without one."""
    from scenarios.errors import InputError

    chosen = _names(told, known, option, what, listed_by)
    if not chosen:
        raise InputError(option, 0, "", f"expected at least one, found {told}")
    return chosen
