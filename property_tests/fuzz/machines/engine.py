"""The engine, alone or as one of several workers, as a state machine: every invariant in full after every rule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from hypothesis.stateful import initialize, precondition, rule

from property_tests.fuzz import features
from property_tests.fuzz.choices import Bytes
from property_tests.fuzz.finish import finish
from property_tests.fuzz.generate.setup import Setup, setup
from property_tests.fuzz.machines.base import CODES, STARTS, Machine, Packed
from property_tests.fuzz.oracle_feed import ORACLE, OracleFeed
from property_tests.fuzz.swarm import Driver, Example, consulted, first_violation
from sim.crashes import ENDS
from sim.optrace import Trace

ROUNDS = 4  # of a server that goes on, at most, in one rule
# Times that a kind comes in one example at most, so that requests live to see the rest.
MOST = {"cancel": 2, "idle": 1, "abort": 3, "fail": 4, "skip": 4, "shrink": 4}
HOST = (50, 75)  # percent at least of engines with a host tier, and of those whose copies take time


def can(kind: str) -> Callable[[Any], bool]:
    """Precondition of the rule for ops of ``kind``: there is something for it to do."""
    return lambda machine: kind not in machine.off


class EngineMachine(Machine):
    """Rules are the kinds of ops of the swarm driver, which names those for whom an op is legal.

    A kind that would find nothing to do is no rule then. On ranks and pairs an op is for one of the workers.
    """

    driver: Driver
    plan: Setup | None = None
    off: Collection[str] = ()  # kinds of ops that would find nothing to do now
    oracle: OracleFeed | None = None

    @initialize(start=STARTS)
    def open(self, start: bytes) -> None:
        """One engine or several workers, pools that fit, and requests to come."""
        choices = Bytes(start)
        host, copies = max(HOST[0], self.mix.host), max(HOST[1], self.mix.copies)
        self.plan = plan = setup(choices, self.build, replace(self.mix, host=host, copies=copies))
        self.left = dict(MOST)
        self.driver = Driver(plan.open(self.build), plan, choices)
        self.oracle = self.driver.oracle = consulted(self.driver.world, self.build)
        warmup = plan.warmup
        self.carry_out(lambda: warmup is not None and self.driver.feed(warmup))

    def carry_out(self, act: Callable[[], object]) -> None:
        """Do something; a law that breaks, or a crash of the model, ends the example."""
        driver, crash = self.driver, None
        try:
            act()
        except ENDS as error:
            crash = error
            driver.ops.append(driver.last)
        violation = first_violation(driver.world, crash)
        if violation is not None:
            self.over = True
            self.fail(violation, self._applied(driver))
        self.off = driver.fruitless() | {kind for kind, left in self.left.items() if left <= 0}

    def program(self) -> Trace | None:
        """What was applied so far, as a trace."""
        driver: Driver | None = getattr(self, "driver", None)
        if driver is not None:
            return self._applied(driver)
        plan = self.plan
        if plan is None:
            return None
        config = plan.workers.configs[0] if plan.workers else plan.config
        return Trace("machine", self.text, self.number, "exhaustive", config, (), workers=plan.workers)

    def _applied(self, driver: Driver) -> Trace:
        example = Example(driver.plan, driver.world, driver.ops, driver.steps, driver.skips, driver.seen)
        return example.trace(self.text, self.number, "machine")

    def draw(self, kind: str, code: bytes) -> None:
        """An op of ``kind`` by the choices in ``code``."""
        self.driver.choices = Packed(code)
        if kind in self.left:
            self.left[kind] -= 1
        self.carry_out(lambda: self.driver.act(kind))

    @precondition(can("submit"))
    @rule(code=CODES)
    def submit(self, code: bytes) -> None:
        self.draw("submit", code)

    @precondition(can("dispatch"))
    @rule(code=CODES)
    def dispatch(self, code: bytes) -> None:
        self.draw("dispatch", code)

    @rule(code=CODES)
    def serve(self, code: bytes) -> None:
        for _ in range(1 + code[-1] % ROUNDS):
            self.draw("work" if code[-2] % 2 else "go on", code)

    @precondition(can("settle"))
    @rule(code=CODES)
    def settle(self, code: bytes) -> None:
        self.draw("settle", code)

    @precondition(can("skip"))
    @rule(code=CODES)
    def skip(self, code: bytes) -> None:
        self.draw("skip", code)

    @precondition(can("fail"))
    @rule(code=CODES)
    def forward_fails(self, code: bytes) -> None:
        self.draw("fail", code)

    @precondition(can("cancel"))
    @rule(code=CODES)
    def cancel(self, code: bytes) -> None:
        self.draw("cancel", code)

    @precondition(can("suspend"))
    @rule(code=CODES)
    def suspend(self, code: bytes) -> None:
        self.draw("suspend", code)

    @precondition(can("shrink"))
    @rule(code=CODES)
    def shrink(self, code: bytes) -> None:
        self.draw("shrink", code)

    @precondition(can("again"))
    @rule(code=CODES)
    def again(self, code: bytes) -> None:
        self.draw("again", code)

    @precondition(can("land"))
    @rule(code=CODES)
    def land(self, code: bytes) -> None:
        self.draw("land", code)

    @precondition(can("lose"))
    @rule(code=CODES)
    def lose(self, code: bytes) -> None:
        self.draw("lose", code)

    @precondition(can("send"))
    @rule(code=CODES)
    def send(self, code: bytes) -> None:
        self.draw("send", code)

    @precondition(can("arrive"))
    @rule(code=CODES)
    def arrive(self, code: bytes) -> None:
        self.draw("arrive", code)

    @precondition(can("abort"))
    @rule(code=CODES)
    def abort(self, code: bytes) -> None:
        self.draw("abort", code)

    @precondition(can("idle"))
    @rule(code=CODES)
    def idle_rank(self, code: bytes) -> None:
        self.draw("idle", code)

    def ended(self) -> None:
        """Disturbances stop: everything comes to its end, and nothing stays held."""
        driver = getattr(self, "driver", None)
        if driver is None:
            return
        try:
            if not self.over:
                self.carry_out(lambda: finish(driver.world, driver.feed))
                self._compare()
        finally:
            tally = self.sums
            self.count()
            tally.steps += driver.steps
            tally.skips += driver.skips
            tally.evaluations.update(driver.world.evaluations())
            features.of_program(driver.world, driver.ops, driver.seen)
            tally.features.update(+driver.seen)

    def _compare(self) -> None:
        """Every law was silent: the oracle, which knows no code of the model, must have no objection either."""
        oracle = self.oracle
        if oracle is None:
            return
        self.sums.evaluations[ORACLE] += oracle.claims + oracle.pages
        objection = oracle.broken()
        if objection is not None:
            self.fail(objection, self._applied(self.driver))
