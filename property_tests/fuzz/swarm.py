"""The swarm driver: programs that look at the state of the world and disturb it, each with a taste of its own.

A program draws its surroundings first and then op by op; some kinds of ops are off in it, the others rare or frequent.
It stops at the first broken law. What was applied is a trace that replays by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from model.builds import Build
from model.cluster import Cluster
from model.config import RequestSpec
from model.invariants import Violation
from model.linkops import Abort, Arrive, Send
from model.ops import (
    At,
    Cancel,
    Dispatch,
    Fail,
    Land,
    Lose,
    Op,
    Outcome,
    Settle,
    Shrink,
    Submit,
    Suspend,
    Warmup,
    World,
)
from model.pair import Pair
from model.request import SENDING
from model.topology import CLUSTERS
from property_tests.fuzz import features
from property_tests.fuzz.choices import Choices, Seeded
from property_tests.fuzz.finish import digests, finish, has_work, land_all, serve
from property_tests.fuzz.generate.engine import LONGEST
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.generate.setup import Setup, setup
from property_tests.fuzz.generate.workload import OUTPUT_STREAMS
from property_tests.fuzz.oracle_feed import ORACLE, OracleFeed
from sim.crashes import ENDS, crashed
from sim.optrace import Trace

STIRRING = (Dispatch, Fail, Send, Warmup)  # change something even where they do nothing in the end
ENCORES = 4  # how often one program uses ids again


@dataclass(slots=True)
class Example:
    """One program that was run: its setup, the world as it was left, and the ops that counted."""

    setup: Setup
    world: World | Cluster
    ops: list[At | Op]
    steps: int
    skips: int
    features: Counter[str]
    crash: BaseException | None = None
    oracle: OracleFeed | None = None  # where it was consulted

    @property
    def violation(self) -> Violation | None:
        """The first broken law; a crash counts as one where none broke before it, an objection where nothing did."""
        return first_violation(self.world, self.crash, self.oracle)

    def evaluations(self) -> Counter[str]:
        """How often each law was evaluated, and the oracle asked."""
        asked = self.oracle.claims + self.oracle.pages if self.oracle is not None else 0
        return Counter(self.world.evaluations()) + Counter({ORACLE: asked})

    def trace(self, build: str, seed: int, name: str = "fuzz") -> Trace:
        """The program as a trace on the build that the text ``build`` names."""
        config = self.setup.workers.configs[0] if self.setup.workers else self.setup.config
        return Trace(
            name, build, seed, self.world.check, config, tuple(self.ops), *digests(self.world), self.setup.workers
        )


class Driver:
    """Draws the ops of one program. ``oracle``: it looks at what each op did."""

    def __init__(self, world: World | Cluster, plan: Setup, choices: Choices, oracle: OracleFeed | None = None) -> None:
        self.world, self.plan, self.choices, self.oracle = world, plan, choices, oracle
        self.kind = next((name for name, kind in CLUSTERS.items() if isinstance(world, kind)), "")
        self.todo = list(plan.specs[::-1])
        self.ops: list[At | Op] = []
        self.last: At | Op = Dispatch()  # what was applied last, also where it crashed
        self.seen: Counter[str] = Counter()
        self.steps = self.skips = self.encores = 0
        self._ops: dict[str, Callable[[], bool]] = {
            "go on": self._go_on,
            "submit": self._submit,
            "settle": self._settle,
            "land": lambda: self._copy(Land),
            "send": self._send,
            "arrive": lambda: self._transfer(lambda number: Arrive(number)),
            "skip": lambda: self._pass(Dispatch(skip=True)),
            "fail": lambda: self._pass(Fail()),
            "cancel": lambda: self._live(Cancel),
            "suspend": lambda: self._live(Suspend),
            "shrink": self._shrink,
            "again": self._again,
            "lose": lambda: self._copy(Lose),
            "abort": lambda: self._transfer(lambda number: Abort(number, self.choices.chance(50))),
            "dispatch": lambda: self._pass(Dispatch()),  # these are for drivers that name kinds
            "work": self._work,
            "idle": self._idle,
        }

    def feed(self, op: At | Op) -> Outcome:
        """Apply ``op`` and keep it if it changed anything or broke a law."""
        self.last, known = op, len(self.world.violations)
        outcome = self.world.apply(op)
        if self.oracle is not None:
            self.oracle.look()
        stirred = outcome.applied or len(self.world.violations) > known
        if stirred or isinstance(op.op if isinstance(op, At) else op, STIRRING):
            self.ops.append(op)
            self.steps += 1
        else:
            self.skips += 1
            self.seen["refused requests"] += features.refused(op, outcome)
        features.of_outcome(self.world, outcome, self.seen)
        return outcome

    def run(self) -> None:
        """The whole program: warm-up, drawn ops, drain."""
        world = self.world
        if self.plan.warmup is not None:
            self.feed(self.plan.warmup)
        for _ in range(self.plan.turns):
            if world.violations or (not self.todo and not has_work(world)):
                break
            self.turn()
        while self.todo and not world.violations:
            self._submit()
        finish(world, self.feed)

    def turn(self) -> None:
        """One op of a kind that can come now; where the one drawn finds nothing to do, the server goes on."""
        off = self._off()
        kinds = [(name, weight) for name, weight in self.plan.weights if name not in off]
        kind = kinds[self.choices.weighted([weight for _, weight in kinds])][0]
        if not self._ops[kind]() and kind != "go on":
            self._go_on()

    def act(self, kind: str) -> None:
        """One op of ``kind``, which :meth:`fruitless` does not name; where it is refused, the server goes on."""
        if not self._ops[kind]() and kind != "go on":
            self._go_on()

    def fruitless(self) -> set[str]:
        """Kinds of ops that cannot come now, or that would find nothing to do; "go on" is never among them."""
        off, engines = self._off(), [world.engine for world in self.world.workers]
        if not self._over():
            off.add("again")
        if not self._copies():
            off.update(("land", "lose"))
        if not self._unsent():
            off.add("send")
        if not isinstance(self.world, Pair) or not self.world.transfers:
            off.update(("arrive", "abort"))
        if "skip" in off or all(len(engine.plans) > engine.config.limits.run_ahead for engine in engines):
            off.add("dispatch")
        if self.kind != "attention_dp" or sum(bool(engine.live) for engine in engines) < 2:
            off.add("idle")
        return off

    def _off(self) -> set[str]:
        """Kinds of ops that cannot come now."""
        engines = [world.engine for world in self.world.workers]
        off = set()
        if not self.todo:
            off.add("submit")
        if not any(engine.plans for engine in engines):
            off.add("settle")
        if not any(engine.live for engine in engines):
            off.update(("skip", "fail", "cancel", "suspend"))
        if self.encores >= ENCORES:
            off.add("again")
        if not any(engine.book for engine in engines):
            off.update(("land", "lose"))
        if not isinstance(self.world, Pair):
            off.update(("send", "arrive", "abort"))
        return off

    # -- ops -----------------------------------------------------------------------------------------------------

    def _at(self, place: int, op: Op) -> At | Op:
        """``op`` for one worker, in the language of this world."""
        return op if self.kind in ("", "tensor_parallel") else At(place, op)

    def _place(self) -> int:
        """A worker; requests and steps of tensor-parallel ranks are those of the first one."""
        return 0 if self.kind in ("", "tensor_parallel") else self.choices.below(len(self.world.workers))

    def _go_on(self) -> bool:
        """What a server does next: take a request if it is idle, else serve."""
        if not has_work(self.world):
            return self._submit()
        if self.kind == "":
            assert isinstance(self.world, World)
            engine = self.world.engine
            if engine.book and engine.plans and not engine.book.open.keys().isdisjoint(engine.plans[0].waits):
                land_all(self.world, self.feed)
        serve(self.world, self.feed)
        return True

    def _work(self) -> bool:
        """The server goes on and lets copies take their time: only those land that the oldest step waits for."""
        worker = self.world.workers[0]
        if self.kind or not worker.in_flight + len(worker.engine.live):
            return self._go_on()
        fits = worker.in_flight <= worker.config.limits.run_ahead
        return (fits and self.feed(Dispatch()).applied) or (worker.in_flight > 0 and self._settle()) or self._go_on()

    def _submit(self) -> bool:
        if not self.todo:
            return False
        spec = self.todo.pop()
        place = self._place() if self.kind == "attention_dp" else 0
        return self.feed(self._at(place, Submit(spec))).applied

    def _again(self) -> bool:
        """An id that is free again is used for a new request, with the old one's prompt or another one's."""
        over = self._over()
        if not over:
            return False
        self.encores += 1
        like, name = self.choices.pick(over), self.choices.pick(over)
        seed = OUTPUT_STREAMS * (1 + self.encores) + name.request_id
        spec = replace(like, request_id=name.request_id, output_seed=seed)
        place = self._place() if self.kind == "attention_dp" else 0
        return self.feed(self._at(place, Submit(spec))).applied

    def _over(self) -> list[RequestSpec]:
        """Requests that came and are gone again."""
        known = self.world.records()
        return [spec for spec in self.plan.specs if spec.request_id in known and self._ended(spec.request_id)]

    def _ended(self, request_id: int) -> bool:
        open_transfers = self.world.transfers if isinstance(self.world, Pair) else ()
        live = any(request_id in worker.engine.live for worker in self.world.workers)
        return not live and request_id not in open_transfers

    def _settle(self) -> bool:
        """The oldest step of a worker settles, with counts to the program's taste."""
        flying = [place for place, worker in enumerate(self.world.workers) if worker.in_flight]
        place = flying[0] if self.kind in ("", "tensor_parallel") else self.choices.pick(flying)
        plan = self.world.workers[place].engine.plans[0]
        book = self.world.workers[place].engine.book
        if book is not None and not book.open.keys().isdisjoint(plan.waits):
            land_all(self.world.workers[place], self.feed)
        counts = tuple(self._accepted(row.width) for row in plan.generation)
        return self.feed(self._at(place, Settle(counts))).applied

    def _accepted(self, width: int) -> int:
        greed = self.plan.greed
        return 1 + self.choices.below(width) if greed == 0 else width if greed == 1 else 1

    def _pass(self, op: Op) -> bool:
        """A pass whose step does not run; room is made for it."""
        place = self._place() if self.kind == "disaggregated" else 0
        return self.feed(At(place, op) if self.kind == "disaggregated" else op).applied

    def _live(self, kind: type[Cancel] | type[Suspend]) -> bool:
        places = [(place, number) for place, worker in enumerate(self.world.workers) for number in worker.engine.live]
        if self.kind == "tensor_parallel":
            places = [entry for entry in places if entry[0] == 0]
        place, number = self.choices.pick(places)
        return self.feed(self._at(place, kind(number))).applied

    def _shrink(self) -> bool:
        place = self.choices.below(len(self.world.workers))
        pools = self.world.workers[place].engine.twin.pools
        op = Shrink(self.choices.pick(list(pools)), self.choices.pick((0, 1, 2, 3, 5)))
        alone = self.kind == "" or (self.kind == "tensor_parallel" and self.choices.chance(50))
        return self.feed(op if alone else At(place, op)).applied

    def _idle(self) -> bool:
        """One rank that has requests loses all of them, and has nothing to do while others go on."""
        busy = [place for place, worker in enumerate(self.world.workers) if worker.engine.live]
        place = self.choices.pick(busy)
        numbers = list(self.world.workers[place].engine.live)
        gone = [self.feed(self._at(place, Cancel(number))).applied for number in numbers]
        return any(gone)

    def _copies(self) -> list[int]:
        """Copies between the tiers that may end now."""
        engine = self.world.workers[0].engine
        return [number for number in engine.book.open if not engine.copy_refusal(number)] if engine.book else []

    def _copy(self, kind: type[Land] | type[Lose]) -> bool:
        numbers = self._copies()
        return bool(numbers) and self.feed(kind(self.choices.pick(numbers))).applied

    def _unsent(self) -> list[int]:
        """Requests of a pair whose pages may be sent now."""
        if not isinstance(self.world, Pair):
            return []
        live, sent = self.world.prefill.engine.live, self.world.transfers
        return [number for number, request in live.items() if request.state is SENDING and number not in sent]

    def _send(self) -> bool:
        done = self._unsent()
        return bool(done) and self.feed(Send(self.choices.pick(done))).applied

    def _transfer(self, op: Callable[[int], Op]) -> bool:
        open_ones = list(self.world.transfers) if isinstance(self.world, Pair) else []
        return bool(open_ones) and self.feed(op(self.choices.pick(open_ones))).applied


def first_violation(
    world: World | Cluster, crash: BaseException | None, oracle: OracleFeed | None = None
) -> Violation | None:
    """The first broken law of ``world``, what stands for the ``crash`` that ended it, or what the oracle objects to.

    The oracle is heard last: where every law was silent, it must have no objection either.
    """
    if world.violations:
        return world.violations[0]
    if crash is not None:
        return crashed(crash, world.workers[0].engine.iteration)
    return oracle.broken() if oracle is not None else None


def consulted(world: World | Cluster, build: Build) -> OracleFeed | None:
    """The oracle beside the engine of ``world``; it knows nothing of several workers.

    It is brute force over cells and depths: a prompt of thousands of tokens takes it minutes, so that it hears of toy
    engines only.
    """
    if not isinstance(world, World) or world.engine.config.limits.max_seq_len > LONGEST:
        return None
    return OracleFeed(world.engine, build)


def play(choices: Choices, build: Build, mix: Mix, check: str = "exhaustive", *, consult: bool = False) -> Example:
    """Generate one program and run it on ``build``; with ``consult`` the oracle has a say, too."""
    plan = setup(choices, build, mix)
    world = plan.open(build, check)
    oracle = consulted(world, build) if consult else None
    driver = Driver(world, plan, choices, oracle)
    crash = None
    try:
        driver.run()
    except ENDS as error:
        crash = error
        driver.ops.append(driver.last)
    features.of_program(world, driver.ops, driver.seen)
    return Example(plan, world, driver.ops, driver.steps, driver.skips, +driver.seen, crash, oracle)


def play_seed(seed: int, build: Build, mix: Mix, check: str = "exhaustive") -> Example:
    """The program of ``seed``."""
    return play(Seeded(seed), build, mix, check)
