"""An example that ends its process: its program as far as it came, from a process that writes down what it does.

Such a process leaves nothing, so each op is on file before it is applied, and each line of a rule of the user's before
it runs. Only the drivers of the engine can be watched like that.
"""

from __future__ import annotations

import os
import pickle
import sys
from concurrent.futures import BrokenExecutor, wait
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, BinaryIO

from model.invariants import Violation
from model.ops import At, Op, Outcome
from property_tests.fuzz.crew import Crew
from property_tests.fuzz.engine_shards import mix_of, seed_of, sources
from property_tests.fuzz.generate.setup import Setup, setup
from property_tests.fuzz.order import Order
from property_tests.fuzz.swarm import Driver
from scenarios.user_rules import IMPORTED, is_own
from sim.crashes import CRASH
from sim.findings import Failure
from sim.optrace import Trace
from sim.rulespec import find

CHECK = "exhaustive"
OPS, PLACE = "ops", "place"  # files of a process that is watched
WATCHED_S = 120.0  # that it may take
WIDTH = 200  # bytes that say where it is


def failure_of(crew: Crew, order: Order, number: int) -> Failure | None:
    """Run example ``number`` once more on ``crew``, which runs nothing else, and watch it die.

    ``None`` where no rule of the user's is under test, where it cannot be watched, and where it lived this time.
    """
    text = order.builds[number % len(order.builds)]
    if not (is_own(text) and crew.here and order.machine == "engine" and order.driver != "machine"):
        return None
    with TemporaryDirectory(prefix="kvtwin") as folder:
        future = crew.executor.submit(_watched, order, number, folder)
        if wait([future], WATCHED_S).not_done:
            crew.kill()
        try:
            died = isinstance(future.exception(WATCHED_S), BrokenExecutor)
        except TimeoutError:
            died = True
        if not died:
            return None
        crew.renew()
        records = _records(Path(folder) / OPS)
        place = _text(Path(folder) / PLACE)
    if not records:
        return None
    plan, ops, seed = records[0], _kept(records[1:]), seed_of(order.seed, number)
    config = plan.workers.configs[0] if plan.workers else plan.config
    trace = Trace(order.driver, text, seed, CHECK, config, ops, workers=plan.workers)
    where = f" in {place}" if place else ""
    violation = Violation(CRASH, f"the process died{where}: {crew.fate or 'nobody knows how'}")
    stack = f"In the rule: {place}\n" if place else ""
    return Failure(order.driver, seed, trace, trace, violation, stack, deadly=True)


class _Noting(Driver):
    """A driver that writes each op down before it is applied, and behind it whether it counted."""

    journal: BinaryIO

    def feed(self, op: At | Op) -> Outcome:
        """As any driver does."""
        _note(self.journal, op)
        known = len(self.ops)
        outcome = super().feed(op)
        _note(self.journal, len(self.ops) > known)
        return outcome


def _watched(order: Order, number: int, folder: str) -> None:
    """Play the example, which is to end this process, and keep in ``folder`` how far it came."""
    ((_, choices),) = sources(order.driver, order.seed, number, 1)
    build = find(order.builds[number % len(order.builds)])
    with (Path(folder) / OPS).open("wb", 0) as journal:
        plan: Setup = setup(choices, build, mix_of(order.profile, order.focus))
        _note(journal, plan)
        driver = _Noting(plan.open(build, CHECK), plan, choices)
        driver.journal = journal
        _follow_rules(Path(folder) / PLACE)
        try:
            driver.run()
        finally:
            sys.settrace(None)


def _note(journal: BinaryIO, what: object) -> None:
    journal.write(pickle.dumps(what))


def _follow_rules(path: Path) -> None:
    """Keep in ``path`` where in a rule of the user's this process is, if it is in one."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    inside: list[str] = []

    def step(frame: FrameType, event: str, _: object) -> Any:
        if event == "return":
            inside.pop()
        else:
            module = frame.f_globals["__name__"]
            inside[-1] = f"{frame.f_code.co_qualname} ({module}, line {frame.f_lineno})"
        os.pwrite(file, (inside[-1] if inside else "").encode()[:WIDTH].ljust(WIDTH), 0)
        return step

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_globals.get("__name__") not in IMPORTED:
            return None
        inside.append("")
        return step(frame, event, argument)

    sys.settrace(enter)


def _records(path: Path) -> list[Any]:
    """What was written down, up to where the process died."""
    records: list[Any] = []
    with suppress(OSError, EOFError, pickle.UnpicklingError), path.open("rb") as journal:
        while True:
            records.append(pickle.load(journal))
    return records


def _kept(records: list[Any]) -> tuple[At | Op, ...]:
    """The ops that counted, and the last one, in which the process died."""
    pairs = zip(records[::2], [*records[1::2], True], strict=False)
    return tuple(op for op, counted in pairs if counted)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
