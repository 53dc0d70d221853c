"""The engine, alone or as one of several workers, as a state machine: every invariant in full after every rule."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.stateful import initialize, rule

from model.invariants import Violation
from model.ops import World
from property_tests.fuzz import features
from property_tests.fuzz.choices import Bytes
from property_tests.fuzz.finish import finish
from property_tests.fuzz.generate.setup import setup
from property_tests.fuzz.machines.base import CODES, STARTS, Machine, Packed
from property_tests.fuzz.oracle_feed import OracleFeed
from property_tests.fuzz.swarm import Driver, Example, first_violation
from sim.optrace import Trace

ORACLE = "ORACLE"  # the law that an objection of the naive oracle breaks: it is none of the model's own


class EngineMachine(Machine):
    """Rules are the kinds of ops of the swarm driver, which names those for whom an op is legal.

    Where a kind finds nothing to do, the server goes on. On ranks and pairs an op is for one of the workers.
    """

    driver: Driver
    oracle: OracleFeed | None = None
    over = False  # a law broke, or the model crashed

    @initialize(start=STARTS)
    def open(self, start: bytes) -> None:
        """One engine or several workers, pools that fit, and requests to come."""
        choices = Bytes(start)
        plan = setup(choices, self.build, self.mix)
        self.driver = Driver(plan.open(self.build), plan, choices)
        alone = self.driver.world
        self.oracle = OracleFeed(alone.engine, self.build) if isinstance(alone, World) else None
        if plan.warmup is not None:
            warmup = plan.warmup
            self.carry_out(lambda: self.driver.feed(warmup))

    def carry_out(self, act: Callable[[], object]) -> None:
        """Do something; a law that breaks, or a crash of the model, ends the example."""
        driver, crash = self.driver, None
        try:
            act()
        except (Exception, SystemExit) as error:
            crash = error
            driver.ops.append(driver.last)
        if self.oracle is not None and crash is None:
            self.oracle.look()
        violation = first_violation(driver.world, crash)
        if violation is not None:
            self.over = True
            self.fail(violation, self.program())

    def program(self) -> Trace:
        """What was applied so far, as a trace."""
        driver = self.driver
        example = Example(driver.plan, driver.world, driver.ops, driver.steps, driver.skips, driver.seen)
        return example.trace(self.text, self.number, "machine")

    def draw(self, kind: str, code: int) -> None:
        """An op of ``kind`` by the choices in ``code``."""
        self.driver.choices = Packed(code)
        self.carry_out(lambda: self.driver.act(kind))

    @rule(code=CODES)
    def submit(self, code: int) -> None:
        self.draw("submit", code)

    @rule(code=CODES)
    def dispatch(self, code: int) -> None:
        self.draw("go on", code)

    @rule(code=CODES)
    def serve(self, code: int) -> None:
        self.draw("go on", code)

    @rule(code=CODES)
    def settle(self, code: int) -> None:
        self.draw("settle", code)

    @rule(code=CODES)
    def skip(self, code: int) -> None:
        self.draw("skip", code)

    @rule(code=CODES)
    def forward_fails(self, code: int) -> None:
        self.draw("fail", code)

    @rule(code=CODES)
    def cancel(self, code: int) -> None:
        self.draw("cancel", code)

    @rule(code=CODES)
    def suspend(self, code: int) -> None:
        self.draw("suspend", code)

    @rule(code=CODES)
    def shrink(self, code: int) -> None:
        self.draw("shrink", code)

    @rule(code=CODES)
    def again(self, code: int) -> None:
        self.draw("again", code)

    @rule(code=CODES)
    def copy(self, code: int) -> None:
        self.draw("lose" if code % 4 == 3 else "land", code // 4)

    @rule(code=CODES)
    def link(self, code: int) -> None:
        self.draw(("send", "arrive", "arrive", "abort")[code % 4], code // 4)

    def teardown(self) -> None:
        """Disturbances stop: everything comes to its end, and nothing stays held."""
        driver = getattr(self, "driver", None)
        if driver is None:
            return
        try:
            if not self.over:
                self.carry_out(lambda: finish(driver.world, driver.feed))
                self._compare()
        finally:
            tally = self.tally
            tally.examples += 1
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
        self.tally.evaluations[ORACLE] += oracle.claims + oracle.pages
        if oracle.objections:
            self.fail(Violation(ORACLE, oracle.objections[0]), self.program())
