"""What fuzzing finds, as plain values: a failure with its shrunk trace, the sums of a shard, a whole campaign."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from model.invariants import Violation
from model.ops import At
from sim.cacheops import CacheProgram
from sim.crashes import cause_of
from sim.optrace import Trace

Program = Trace | CacheProgram  # of an engine or of several workers; of the cache layer alone


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that broke a law. ``trace`` is as it was found, ``minimal`` what is left of it once it is shrunk.

    ``driver`` and ``seed`` name the program that found it (the seed of one example), ``violation`` is the first one
    of ``minimal``. ``stack`` tells where it stood, if that is all that is known; a ``deadly`` program ends the process
    that runs it.
    """

    driver: str
    seed: int
    trace: Program
    minimal: Program
    violation: Violation
    stack: str = ""
    deadly: bool = False

    @property
    def law(self) -> str:
        """Code of the broken law."""
        return self.violation.code

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the ops that are left, in order, in the words of a trace file."""
        return tuple(kind_of(op) for op in self.minimal.ops)

    @property
    def cause(self) -> tuple[str, ...]:
        """What tells it apart from others: the law and the kinds of the ops, or the place of a crash or a hang."""
        return cause_of(self.law, self.violation.message, self.kinds)


def kind_of(op: object) -> str:
    """The kind of an op in the words of a trace file."""
    return type(op.op if isinstance(op, At) else op).__name__.lower()


@dataclass(slots=True)
class ShardResult:
    """Sums over the examples of one shard; two shards merge in any order.

    ``steps`` counts ops applied, ``skips`` those that were illegal, ``seconds`` the processor time of the shard.
    ``hung`` tells of the example behind these ones where it did not end and left no program; no other came behind it.
    """

    examples: int = 0
    steps: int = 0
    skips: int = 0
    seconds: float = 0.0
    evaluations: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    hung: str = ""

    def add(self, other: ShardResult) -> None:
        """Take in the sums of another shard."""
        self.examples += other.examples
        self.steps += other.steps
        self.skips += other.skips
        self.seconds += other.seconds
        self.evaluations.update(other.evaluations)
        self.features.update(other.features)
        self.failures.extend(other.failures)


@dataclass(frozen=True, slots=True)
class Cause:
    """Failures that are alike: the law, the kinds of the ops of the smallest program, and how often it was seen.

    ``build``, ``driver``, ``seed`` and ``message`` are those of the failure with the lowest seed; ``folder`` holds it.
    """

    law: str
    kinds: tuple[str, ...]
    build: str
    driver: str
    seed: int
    message: str
    count: int = 1
    folder: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it apart from others: :attr:`Failure.cause`."""
        return cause_of(self.law, self.message, self.kinds)


@dataclass(frozen=True, slots=True)
class Crash:
    """An example that ended the harness itself: its number, the error in one line, its seed, and what repeats it."""

    example: int
    what: str
    seed: int = -1
    again: str = ""


@dataclass(slots=True)
class Campaigned:
    """A campaign so far, earlier sessions in the same folder included. ``seconds`` is wall time, of all sessions.

    ``totals`` has no failures: those are ``causes``, the shortest program first, and in ``further`` by law and build
    how many more there were that nobody shrank. ``resumed`` counts the examples of earlier sessions, ``workers`` the
    processes of this one. ``unwritten`` says which file could not be written and why: what came from then on is told
    here and stands in no ledger, so that the next session runs it again. ``ordered_examples`` or ``ordered_seconds`` is
    the budget of this session, of which ``session_seconds`` went by. ``lost`` says how its workers went for good.
    """

    totals: ShardResult = field(default_factory=ShardResult)
    causes: list[Cause] = field(default_factory=list)
    further: Counter[tuple[str, str]] = field(default_factory=Counter)
    crashes: list[Crash] = field(default_factory=list)
    seconds: float = 0.0
    resumed: int = 0
    workers: int = 1
    interrupted: bool = False
    unwritten: str = ""
    ordered_examples: int | None = None
    ordered_seconds: float | None = None
    session_seconds: float = 0.0
    lost: str = ""

    @property
    def failures(self) -> int:
        """Failures of all causes together, and those that were only counted."""
        return sum(cause.count for cause in self.causes) + self.further.total()

    @property
    def checked(self) -> bool:
        """Whether any law was evaluated and any feature reached: silence means nothing otherwise."""
        return bool(self.totals.evaluations.total() and self.totals.features.total())


@dataclass(frozen=True, slots=True)
class Hunted:
    """How a fault fared that one driver had to find without its scenario, within ``budget`` examples.

    ``examples`` and ``seconds`` (of processor time) are those up to the catch, ``law`` is what caught it (empty if
    nothing did) and ``fires`` the laws that the fault declares, the first of them first. ``requests`` and
    ``disturbances`` are what the shrunk program has, ``crash`` an error of the harness.
    """

    fault: str
    driver: str
    budget: int
    examples: int
    seconds: float
    law: str
    fires: tuple[str, ...]
    requests: int = 0
    disturbances: int = 0
    crash: str = ""

    @property
    def verdict(self) -> str:
        """``first``: by the law that has to fire first; ``follows``: by one that may follow; ``other``; ``missed``."""
        if self.crash:
            return "crashed"
        if not self.law:
            return "missed"
        if self.law == self.fires[0]:
            return "first"
        return "follows" if self.law in self.fires else "other"
