"""From the words of a command line to a session of a campaign: what is ordered, for how long, and who runs it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from model.builds import BUILDS, DEFAULT_BUILD
from property_tests.fuzz import digest, shards
from property_tests.fuzz.campaign import Budget, Campaign, lack
from property_tests.fuzz.cluster import Cluster
from property_tests.fuzz.crew import Crew, local
from property_tests.fuzz.database import open_database
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import DRIVERS, MACHINES, PROFILES, Order
from scenarios.errors import InputError, quote
from sim.findings import Campaigned, Failure
from sim.rulespec import find, text_of

MINUTES = {"quick": 1.0, "nightly": 30.0, "deep": 480.0}  # of a session that is given no budget
COMMIT = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
COMMIT_DIGITS = 12  # hex digits of a commit id that make its seed


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``kvtwin fuzz`` as they were given."""

    minutes: float | None = None
    examples: int | None = None
    workers: int | None = None
    build: str | None = None
    rules: tuple[str, ...] = ()
    driver: str | None = None
    machine: str | None = None
    profile: str = "quick"
    seed: str = "0"
    cluster: str | None = None
    database: str = ""


class Desk(Protocol):
    """Where a session reports to: it keeps the folder and shows how the campaign goes."""

    @property
    def ledger(self) -> Path | None:
        """The file of the ledger, if anything is kept."""
        ...

    def keep(self, failure: Failure, command: str) -> str:
        """Write a failure that ``command`` found; the name of its folder, or nothing."""
        ...

    def drop(self, folder: str) -> None:
        """Remove the folder of a failure, by the name that :meth:`keep` gave it."""
        ...

    def tell(self, so_far: Campaigned) -> None:
        """Show how far it is."""
        ...

    def note(self, line: str) -> None:
        """Say something to whoever waits."""
        ...


def order_of(asked: Asked) -> Order:
    """What is ordered; raises :class:`InputError` for a name, a rule or a seed that cannot be."""
    texts = _build_texts(asked)
    driver = asked.driver or ("machine" if asked.machine else "swarm")
    for what, value, known in (
        ("driver", driver, DRIVERS),
        ("machine", asked.machine or MACHINES[1], MACHINES),
        ("profile", asked.profile, PROFILES),
    ):
        if value not in known:
            raise InputError(f"--{what}", 0, "", f"expected one of {', '.join(known)}, found {quote(value)}")
    if asked.database and driver != "machine":
        raise InputError("--database", 0, "", f"expected the driver machine beside it, found {driver}")
    if asked.cluster and asked.workers:
        raise InputError("--workers", 0, "", "expected none beside --cluster, whose workers are its own")
    focus = tuple(dict.fromkeys(rule.split("=", 1)[0] for rule in asked.rules))
    machine = asked.machine or MACHINES[1]
    order = Order(texts, driver, machine, asked.profile, seed_of(asked.seed), focus, asked.database)
    shards.runner(order)
    return order


def _build_texts(asked: Asked) -> tuple[str, ...]:
    """The builds of the order, each with the user's rules: those named, or every correct one.

    With a rule and no build it is the default build's rule that is replaced.
    """
    if asked.build is not None:
        names = [name.strip() for name in asked.build.split(",")]
    elif asked.rules:
        names = [DEFAULT_BUILD]
    else:
        names = [build.name for build in BUILDS.values() if build.correct]
    for name in names:
        _find(name, "--build")
    texts = tuple(text_of(name, asked.rules) for name in names)
    if len(set(texts)) < len(texts):
        raise InputError("--build", 0, "", f"expected each build once, found {', '.join(names)}")
    for text in texts:
        _find(text, "--rule")
    return texts


def _find(text: str, option: str) -> None:
    """Raise :class:`InputError` under the name of the option that is to blame where ``text`` names no build."""
    try:
        find(text)
    except InputError as error:
        raise InputError(option, 0, "", error.problem) from error


def seed_of(text: str) -> int:
    """A seed as people write it: a whole number, or a commit id, so that each commit is fuzzed from elsewhere."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    if COMMIT.fullmatch(text):
        return int(text[:COMMIT_DIGITS], 16)
    problem = f"expected a whole number from 0, or a commit id of 7 hex digits at least, found {quote(text)}"
    raise InputError("--seed", 0, "", problem)


def budget_of(asked: Asked) -> Budget:
    """How long the session is: by its option, else by its profile."""
    if asked.minutes is not None and asked.examples is not None:
        raise InputError("--minutes", 0, "", "expected no --examples beside it, found both")
    if asked.examples is not None:
        return Budget(examples=asked.examples)
    minutes = MINUTES[asked.profile] if asked.minutes is None else asked.minutes
    if not 0.0 < minutes < 1e6:
        raise InputError("--minutes", 0, "", f"expected a positive number of minutes, found {minutes:g}")
    return Budget(seconds=60.0 * minutes)


def run(asked: Asked, desk: Desk) -> Campaigned:
    """Run a session; :class:`InputError` for what cannot be, before anything runs."""
    order, budget = order_of(asked), budget_of(asked)
    open_database(asked.database)
    code = digest.of_texts(order.builds)
    ledger = Ledger(desk.ledger, order, code)
    try:
        crew: Crew = _cluster(asked.cluster, order, code, desk) if asked.cluster else local(asked.workers)
        runs = shards.runner(order)
        command = command_of(order, asked.rules)
        keep = partial(desk.keep, command=command)
        return Campaign(
            order,
            budget,
            crew,
            ledger,
            runs,
            keep=keep,
            drop=desk.drop,
            tell=desk.tell,
            note=desk.note,
            command=command,
        ).run()
    finally:
        ledger.close()


def _cluster(address: str, order: Order, code: str, desk: Desk) -> Cluster:
    """The workers of a scheduler, of which one is there at least and all have what the order needs."""
    crew = Cluster(address)
    try:
        crew.await_workers(desk.note)
        crew.ask(lack, order.builds, code)
    except BaseException:
        crew.leave(True)
        raise
    return crew


def command_of(order: Order, rules: tuple[str, ...] = ()) -> str:
    """The command line of an order, without a budget."""
    suffix = text_of("", rules)
    names = [text.removesuffix(suffix) if rules else text for text in order.builds]
    words = ["kvtwin", "fuzz", "--build", ",".join(names)]
    words += [word for rule in rules for word in ("--rule", rule)]
    words += ["--driver", order.driver]
    words += ["--machine", order.machine] if order.machine != MACHINES[1] or order.driver == "machine" else []
    words += ["--profile", order.profile, "--seed", str(order.seed)]
    return shlex.join(words)
