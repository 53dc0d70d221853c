"""The blind drill: each fault is given to the drivers without its scenario, and they look for what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass, replace

from model.faults import FAULTS
from property_tests.fuzz import shards
from property_tests.fuzz.crew import Crew
from property_tests.fuzz.order import DRIVERS
from property_tests.fuzz.patience import calm
from property_tests.fuzz.shrink import disturbances_of, requests_of
from scenarios.errors import InputError, quote
from scenarios.names import unknown_name
from sim.crashes import Hang
from sim.findings import Hunted
from sim.optrace import Trace

USUAL = ("swarm", "bytes")
BUDGET = 2000  # examples within which a fault is to be found
LOOK_S = 0.5
LOST = "it did not end within {:g} s and was killed"
SILENT_S, SLOW_S = 600.0, 0.5  # without a hunt that ends until what runs is killed: at least, and for each example


@dataclass(frozen=True, slots=True)
class Task:
    """One fault for one driver. ``strikes`` counts processes that died while it ran."""

    fault: str
    driver: str
    budget: int
    seed: int
    strikes: int = 0


def tasks(names: Sequence[str], drivers: Sequence[str], budget: int, seed: int) -> list[Task]:
    """Every named fault (or all) for every driver; :class:`InputError` for a name that nobody knows."""
    for name in names:
        if name not in FAULTS:
            raise InputError("fault", 0, "", unknown_name("a fault", name, FAULTS, "kvtwin faults"))
    chosen = tuple(dict.fromkeys(drivers)) or USUAL
    for driver in chosen:
        if driver not in DRIVERS:
            raise InputError("--driver", 0, "", f"expected one of {', '.join(DRIVERS)}, found {quote(driver)}")
    return [Task(name, driver, budget, seed) for name in dict.fromkeys(names or FAULTS) for driver in chosen]


def hunt(task: Task) -> Hunted:
    """Give one fault to one driver."""
    fault = FAULTS[task.fault]
    try:
        found = shards.hunt(fault.build, task.driver, task.budget, task.seed)
    finally:
        calm()
    row = Hunted(task.fault, task.driver, task.budget, found.examples, found.seconds, found.law, fault.fires)
    minimal = found.failure.minimal if found.failure is not None else None
    if not isinstance(minimal, Trace):
        return row
    return replace(row, requests=requests_of(minimal), disturbances=disturbances_of(minimal))


class Drill:
    """All tasks on a crew, each by ``run``; ``tell`` hears how many are done, and of how many."""

    def __init__(
        self,
        wanted: Sequence[Task],
        crew: Crew,
        tell: Callable[[int, int], None] | None = None,
        run: Callable[[Task], Hunted] = hunt,
    ) -> None:
        self._wanted, self._crew, self._hunt = list(wanted), crew, run
        self._tell = tell or (lambda done, total: None)
        self._rows: dict[tuple[str, str], Hunted] = {}
        self._most = max([SILENT_S, *(SLOW_S * task.budget for task in self._wanted)])
        self._heard = time.monotonic()  # when a hunt ended last
        self._lost: Task | None = None  # it ran alone and did not come back

    def run(self) -> tuple[list[Hunted], bool]:
        """The rows of the tasks that came to their end, in order, and whether Ctrl-C left some out."""
        interrupted = True
        try:
            waiting = list(self._wanted)
            while waiting:
                waiting = self._round(waiting)
            interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            self._crew.leave(interrupted)
        keys = [(task.fault, task.driver) for task in self._wanted]
        return [self._rows[key] for key in keys if key in self._rows], interrupted

    def _round(self, waiting: list[Task]) -> list[Task]:
        """Run tasks; those come back in whose company a process died, with a strike, and not a third time.

        Struck ones run first and one at a time, so that the others are not struck with them.
        """
        running: dict[Future[Hunted], Task] = {}
        again: list[Task] = []
        struck = [task for task in waiting if task.strikes]
        later = [task for task in waiting if not task.strikes] if struck else []
        waiting, most = (struck, 1) if struck else (list(waiting), 2 * self._crew.lanes)
        while waiting or running:
            while waiting and len(running) < most and not again:
                try:
                    running[self._crew.executor.submit(self._hunt, waiting[0])] = waiting[0]
                except BrokenExecutor:  # a process died while no row was looked at: what runs will tell
                    if not running:
                        self._crew.renew()
                    break
                waiting.pop(0)
            done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            self._listen(bool(done), running)
            for future in [one for one in running if one in done]:
                self._gather(future, running.pop(future), again)
            if again and not running:
                self._crew.renew()
                return [*again, *waiting, *later]
        return [*again, *later]

    def _listen(self, heard: bool, running: dict[Future[Hunted], Task]) -> None:
        """Kill what runs once nobody was heard of for long: what no limit reaches inside must end from outside."""
        if heard or not running:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > self._most:
            self._heard = time.monotonic()
            self._lost = next(iter(running.values())) if len(running) == 1 else None
            self._crew.kill()

    def _gather(self, future: Future[Hunted], task: Task, again: list[Task]) -> None:
        try:
            row = future.result()
        except BrokenExecutor:
            if task is not self._lost and task.strikes < 2:
                again.append(replace(task, strikes=task.strikes + 1))
                return
            row = _crashed(task, LOST.format(self._most) if task is self._lost else "the process that ran it died")
        except (Exception, Hang) as error:
            row = _crashed(task, " ".join(f"{type(error).__name__}: {error}".split()))
        self._rows[task.fault, task.driver] = row
        self._tell(len(self._rows), len(self._wanted))


def _crashed(task: Task, what: str) -> Hunted:
    return Hunted(task.fault, task.driver, task.budget, 0, 0.0, "", FAULTS[task.fault].fires, crash=what)
