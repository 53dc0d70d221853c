"""What fuzzing finds, as plain values: a failure with its shrunk trace, and the sums of one shard of a campaign."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from model.invariants import Violation
from model.ops import At
from sim.optrace import Trace


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that broke a law. ``trace`` is as it was found, ``minimal`` what is left of it once it is shrunk.

    ``driver`` and ``seed`` name the program that found it (the seed of one example), ``violation`` is the first one
    of ``minimal``.
    """

    driver: str
    seed: int
    trace: Trace
    minimal: Trace
    violation: Violation

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
        """What tells failures apart: the law, then the kinds of the ops that are left."""
        return (self.law, *self.kinds)


def kind_of(op: object) -> str:
    """The kind of an op in the words of a trace file."""
    return type(op.op if isinstance(op, At) else op).__name__.lower()


@dataclass(slots=True)
class ShardResult:
    """Sums over the examples of one shard; two shards merge in any order.

    ``steps`` counts ops applied, ``skips`` those that were illegal, ``seconds`` the processor time of the shard.
    """

    examples: int = 0
    steps: int = 0
    skips: int = 0
    seconds: float = 0.0
    evaluations: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: ShardResult) -> None:
        """Take in the sums of another shard."""
        self.examples += other.examples
        self.steps += other.steps
        self.skips += other.skips
        self.seconds += other.seconds
        self.evaluations.update(other.evaluations)
        self.features.update(other.features)
        self.failures.extend(other.failures)
