"""What the machines share: packed choices, the words of a broken law, and how a machine is run.

A rule takes one code, a number in a few bytes, which is taken apart into its choices: hypothesis pays for each thing it
draws. What is drawn at the start, the surroundings, is a string of bytes, too. In both, 0 is the simplest choice.

Codes are bytes because whole numbers of hypothesis are small ones more often than not: what is chosen last would be 0.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test

from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.invariants import Violation
from property_tests.fuzz.choices import Choices
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.patience import patience
from property_tests.fuzz.provider import seed_alone
from sim.crashes import HANG, Hang, crashed
from sim.findings import Program

SURROUNDINGS = 160  # bytes that decide engine, pools and requests to come
CODE = 16  # bytes of one rule's choices: a request takes about 70 bits, the last of which say what drafts and depends
CODES = st.binary(min_size=CODE, max_size=CODE)
STARTS = st.binary(min_size=SURROUNDINGS, max_size=SURROUNDINGS)
STEPS = 50  # rules of one example


class Packed(Choices):
    """Choices packed into the number whose bytes are ``code``, the lowest first; zeros once it is used up."""

    def __init__(self, code: bytes) -> None:
        self.code = int.from_bytes(code, "little")

    def below(self, count: int) -> int:
        self.code, chosen = divmod(self.code, count)
        return chosen


class Broken(AssertionError):
    """A law broke in a machine: ``violation`` and the ``program`` that broke it."""

    def __init__(self, violation: Violation, program: Program) -> None:
        super().__init__(told(violation))
        self.violation, self.program = violation, program


def told(violation: Violation) -> str:
    """A violation in one line: law, sentence, where, and what was expected and found."""
    numbers = {"request": violation.request, "page": violation.page, "position": violation.position}
    places = [f"{name} {number}" for name, number in numbers.items() if number >= 0]
    if violation.pool:
        places.insert(min(1, len(places)), f"pool {violation.pool}")
    where = f" ({', '.join(places)})" if places else ""
    line = f"{violation.code}: {violation.message}{where}"
    return f"{line}: expected {violation.expected}, found {violation.found}" if violation.expected else line


@dataclass
class Tally:
    """What the examples of one run of a machine did."""

    examples: int = 0
    steps: int = 0
    skips: int = 0

    def __post_init__(self) -> None:
        self.failed = False  # an example broke a law: what comes behind it are replays of it
        self.evaluations: Counter[str] = Counter()
        self.features: Counter[str] = Counter()


class Stopped(BaseException):
    """An example that does not end, as :class:`Hang`: hypothesis would play an ``Exception`` once more."""

    def __init__(self, broken: Broken) -> None:
        super().__init__(str(broken))
        self.broken = broken


class Machine(RuleBasedStateMachine):
    """A state machine on ``build``. A subclass has rules and sums up in :meth:`ended` what an example did."""

    build: ClassVar[Build] = BUILDS[DEFAULT_BUILD]
    text: ClassVar[str] = DEFAULT_BUILD  # that names the build
    mix: ClassVar[Mix] = Mix()
    number: ClassVar[int] = 0  # seed of the run, for the programs that it leaves: it repeats the run, not one of them
    tally: ClassVar[Tally] = Tally()
    last: ClassVar[Machine | None] = None  # that was made of this class

    def __init__(self) -> None:
        super().__init__()
        self.sums = Tally() if self.tally.failed else self.tally  # hypothesis plays a failing example once more
        self.over = False  # a law broke, or the example took too long: nothing more is done in it
        self.counted = False
        type(self).last = self
        self._limit = ExitStack()  # on the time of one example
        self._limit.enter_context(patience())

    def program(self) -> Program | None:
        """What was applied so far, if it is known what it runs on."""

    def ended(self) -> None:
        """The example is over, whether or not it went well."""

    def count(self) -> None:
        """This is one of the examples."""
        if not self.counted:
            self.counted = True
            self.sums.examples += 1

    def teardown(self) -> None:
        """What hypothesis calls at the end of an example."""
        if isinstance(sys.exception(), Hang):
            self.leave()
        with self._limit:
            self.ended()

    def leave(self) -> None:
        """The example took too long: there is no limit on it any more, and it does nothing more."""
        self.over = True
        self._limit.close()

    def hung(self, hang: Hang) -> Broken:
        """The ``hang`` that came outside the model as the law that the program so far broke; raises it without one."""
        self.leave()
        with patience():
            program = self.program()
        if program is None:
            raise Hang(str(hang))
        self.count()
        return Broken(crashed(hang), program)

    def fail(self, violation: Violation, program: Program) -> None:
        """End the example with the broken law."""
        self.tally.failed = True
        broken = Broken(violation, program)
        raise Stopped(broken) if violation.code == HANG else broken


def machine_on(kind: type[Machine], build: Build, text: str = "", mix: Mix | None = None, number: int = 0) -> Any:
    """``kind`` as a class of its own for one run: on ``build``, with sums that begin at 0."""
    values: Mapping[str, Any] = {
        "build": build,
        "text": text or build.name,
        "mix": mix or Mix(),
        "number": number,
        "tally": Tally(),
    }
    return type(kind.__name__, (kind,), {**values, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def run_machine(
    kind: type[Machine],
    number: int,
    examples: int,
    *,
    steps: int = STEPS,
    shrinks: bool = False,
    database: ExampleDatabase | None = None,
    saved: bool = False,
) -> Broken | None:
    """Run ``examples`` of a machine from the seed ``number``; the broken law, shrunk by hypothesis if ``shrinks``.

    A database keeps what fails. With ``saved`` its examples are played and nothing is generated: played before
    generation they would be varied over and over, at the expense of new ones. Any other exception is raised as it came,
    and so is a :class:`Hang` of an example that has no program yet.
    """
    phases = [Phase.reuse if saved else Phase.generate]
    if shrinks:
        phases.append(Phase.shrink)
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=database,
        deadline=None,
        derandomize=False,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        verbosity=Verbosity.quiet,
    )
    seed(number)(kind)  # of the class: a seed of the test itself would take the database from it
    test = get_state_machine_test(kind, settings=options)
    try:
        with seed_alone():
            test()
    except Broken as broken:
        return broken
    except Stopped as stopped:
        return stopped.broken
    except Hang as hang:
        if kind.last is None:
            raise
        return kind.last.hung(hang)
    except SkipTest:  # the database had nothing to play
        assert saved
    return None
