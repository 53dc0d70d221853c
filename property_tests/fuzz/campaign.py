"""A campaign: shards of examples on an executor until a budget is used up, whatever breaks on the way.

An example is fixed by the order and its number, so shards may be cut anywhere, run anywhere and run again. What a
shard brought is in the ledger before the next is looked at.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, replace

from property_tests.fuzz import deadly, digest
from property_tests.fuzz.crew import Crew, Interrupt, dropped
from property_tests.fuzz.engine_shards import seed_of
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import Order
from property_tests.fuzz.patience import calm
from scenarios.errors import InputError
from sim.crashes import Hang
from sim.findings import Campaigned, Cause, Crash, Failure, ShardResult

RunShard = Callable[[Order, int, int, float | None], ShardResult]
Keep = Callable[[Failure], str]
Drop = Callable[[str], None]
Tell = Callable[[Campaigned], None]
Note = Callable[[str], None]

SHARD_S = 1.5  # seconds that a shard should take: long against what it costs to hand it out
FIRST_SHARD, LARGEST_SHARD = 8, 4096  # examples
BLOCK = 16  # examples of a shard of a machine, whose examples hypothesis numbers: the cut decides what they are
QUEUED = 2  # shards handed out for each lane, so that none waits for the next
LOOK_S = 0.2  # how often budget and Ctrl-C are looked at
CRASHES_BORNE = 3  # of one session
TELL_S, WORKERS_S = 3.0, 60.0  # without any worker, until that is told and until the session ends
ENDING = "the campaign ends after the shards at work; Ctrl-C again ends it at once"
SILENT_S, LATE_S = 600.0, 90.0  # without a shard that ends, and that at the end of a session, until what runs is killed


@dataclass(frozen=True, slots=True)
class Budget:
    """When a session ends: after so many seconds or so many examples more, whichever comes first; one must be set."""

    seconds: float | None = None
    examples: int | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """Examples ``[begin, end)``. ``strikes`` counts how often it crashed the harness."""

    begin: int
    end: int
    strikes: int = 0


class OtherCode(RuntimeError):
    """A worker has other sources, of kvtwin or of the user's rules, than the process that ordered the work."""


def lack(builds: tuple[str, ...], code: str) -> str:
    """What this process lacks to run examples on ``builds`` for a process whose code is ``code``, in a sentence."""
    try:
        found = digest.of_texts(builds)
    except InputError as error:
        return f"expected workers that have the builds of the campaign; {error}"
    return "" if code == found else f"expected workers with the code of the campaign, {code}, found one with {found}"


def work(
    run: RunShard, order: Order, shard: Shard, seconds: float | None, code: str, since: float | None = None
) -> ShardResult:
    """Run one shard where this is called; it ends after about ``seconds`` if that is not ``None``.

    They count from ``since`` on the clock of this machine, or from now.
    """
    if lacks := lack(order.builds, code):
        raise OtherCode(lacks)
    if dropped():
        return ShardResult()
    now = time.monotonic() if since is None else since
    deadline = None if seconds is None else now + seconds
    try:
        return run(order, shard.begin, shard.end - shard.begin, deadline)
    finally:
        calm()


class Campaign:
    """One session of a campaign. ``run`` runs a shard, ``keep`` writes a failure and returns its folder's name.

    ``drop`` removes such a folder, of a cause that is no longer told or that another failure stands for. ``tell`` is
    called with the state after each shard, ``note`` with a line for whoever waits. ``command`` is the command line
    without a budget.
    """

    def __init__(
        self,
        order: Order,
        budget: Budget,
        crew: Crew,
        ledger: Ledger,
        run: RunShard,
        *,
        keep: Keep | None = None,
        drop: Drop | None = None,
        tell: Tell | None = None,
        note: Note | None = None,
        command: str = "",
    ) -> None:
        self.order, self.budget, self.crew, self.ledger = order, budget, crew, ledger
        self._run_shard = run
        self._keep = keep or (lambda failure: "")
        self._drop = drop or (lambda folder: None)
        self._tell = tell or (lambda so_far: None)
        self._note = note or (lambda line: None)
        self._command = command
        self._running: dict[Future[ShardResult], Shard] = {}
        self._again: deque[Shard] = deque()  # shards that crashed, or were cut short
        self._suspects: deque[Shard] = deque()  # shards in whose company a process died: they run one at a time
        self._numbers = _Numbers(ledger.done)
        self._left = budget.examples
        self._size = FIRST_SHARD
        self._crashes = 0
        self._dropping = False
        self._began = self._heard = time.monotonic()  # when a shard ended last
        self._deserted_since: float | None = None  # when the workers were found gone

    def run(self) -> Campaigned:
        """Run until the budget is used up or Ctrl-C; the state of the campaign, earlier sessions included."""
        so_far = self.ledger.so_far
        so_far.workers = self.crew.lanes
        so_far.ordered_examples, so_far.ordered_seconds = self.budget.examples, self.budget.seconds
        at_once = True
        try:
            with Interrupt(lambda: self._note(ENDING)) as interrupt:
                while self._go_on(interrupt):
                    self._gather()
                so_far.interrupted = interrupt.seen
            at_once = False
        except KeyboardInterrupt:
            so_far.interrupted = True  # pressed again: what runs is given up
        finally:
            so_far.session_seconds = time.monotonic() - self._began
            self.crew.leave(at_once)
        return so_far

    # -- handing out -------------------------------------------------------------------------------------------------

    def _go_on(self, interrupt: Interrupt) -> bool:
        """Hand shards out while there is budget; whether any is running."""
        if interrupt.seen or self._time_left() == 0.0 or self._over:
            self._dropping = True
            self.crew.drop(self._running)
        elif self._suspects:
            if not self._running:
                self._submit(self._suspects.popleft())
        else:
            while len(self._running) < QUEUED * self.crew.lanes and not interrupt.seen and self._time_left() != 0.0:
                shard = self._next()
                if shard is None:
                    break
                self._submit(shard)
        return bool(self._running)

    @property
    def _over(self) -> bool:
        """Whether going on is of no use: shards crash, what they bring cannot be written, or nobody runs them."""
        so_far = self.ledger.so_far
        return self._crashes >= CRASHES_BORNE or bool(so_far.unwritten or so_far.lost)

    def _next(self) -> Shard | None:
        if self._again:
            return self._again.popleft()
        block = BLOCK if self.order.driver == "machine" else 0
        size = block or self._size
        if self._left is not None:
            size = min(size, self._left)
        if size <= 0:
            return None
        begin, end = self._numbers.take(size, block)
        if self._left is not None:
            self._left -= end - begin
        return Shard(begin, end)

    def _submit(self, shard: Shard) -> None:
        since = time.monotonic() if self.crew.here else None
        arguments = (self._run_shard, self.order, shard, self._time_left(), digest.of_texts(self.order.builds), since)
        try:
            future = self.crew.executor.submit(work, *arguments)
        except BrokenExecutor:  # a process died while none of its shards was waited for
            if not self._renewed():
                return
            future = self.crew.executor.submit(work, *arguments)
        self._running[future] = shard

    def _time_left(self) -> float | None:
        """Seconds of the budget that are left, from 0; ``None`` if it is not counted in seconds."""
        if self.budget.seconds is None:
            return None
        return max(0.0, self.budget.seconds - (time.monotonic() - self._began))

    # -- taking in ---------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Take in the shards that have ended; a broken executor is replaced, and its shards go again."""
        done, _ = wait(self._running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        if done:
            self._heard = time.monotonic()
        elif self._deserted():
            pass
        elif self._unreachable():
            self._replace_executor([])
        elif time.monotonic() - self._heard > (LATE_S if self._dropping else SILENT_S):
            self._heard = time.monotonic()
            self.crew.kill()
        broken: list[Shard] = []
        for future in sorted(done, key=lambda one: self._running[one].begin):
            shard = self._running.pop(future)
            try:
                result = future.result(timeout=0)
            except CancelledError:
                if not self._dropping:
                    broken.append(shard)  # the cluster gave it up
            except BrokenExecutor:
                broken.append(shard)
            except (Exception, Hang) as error:
                self._struck(shard, error)
            else:
                self._take(shard, result)
        if broken:
            self._replace_executor(broken)
        self._tell(self.ledger.so_far)

    def _deserted(self) -> bool:
        """Whether nobody is there to run what was handed out: told once it lasts, and not borne for ever."""
        now = time.monotonic()
        if now - self._heard < TELL_S or self._dropping or not self.crew.deserted:
            self._deserted_since = None
            return False
        if self._deserted_since is None:
            self._deserted_since = now
            self._note(f"all workers are gone; waiting {WORKERS_S:g} s for one")
        elif now - self._deserted_since > WORKERS_S:
            self.ledger.so_far.lost = f"no worker was there for {WORKERS_S:g} s"
        return True

    def _unreachable(self) -> bool:
        """Whether nothing ends any more because nobody can be asked: futures of a lost scheduler may stay open."""
        return time.monotonic() - self._heard >= TELL_S and self.crew.unreachable

    def _replace_executor(self, broken: list[Shard]) -> None:
        """A process died, and which shard did it nobody knows, unless it was alone: that one is struck."""
        while self._running:  # their futures end too, some of them well, unless nobody is there to end them
            done, _ = wait(self._running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if done:
                self._heard = time.monotonic()
            elif self._unreachable():
                self._suspects.extend(self._running.values())  # lost with the rest: no crash of theirs
                self._running.clear()
            for future in done:
                shard = self._running.pop(future)
                if not future.cancelled() and future.exception() is None:
                    self._take(shard, future.result())
                else:
                    broken.append(shard)
        if not self._renewed() or self._dropping:
            return
        if len(broken) == 1:
            self._struck(broken[0], RuntimeError("the process that ran it died"), alone=True)
        else:
            self._suspects.extend(sorted(broken, key=lambda shard: shard.begin))

    def _renewed(self) -> bool:
        """Whether there is an executor again; the session ends where there is none to be had."""
        try:
            self.crew.renew()
        except OSError as error:
            self.ledger.so_far.lost = str(error)
        return not self.ledger.so_far.lost

    def _take(self, shard: Shard, result: ShardResult) -> None:
        count = shard.end - shard.begin
        ran = min(count, result.examples)
        if ran:
            before = self.ledger.causes.folders()
            causes = self._causes(result.failures)
            self.ledger.add(shard.begin, shard.begin + ran, result, causes, time.monotonic() - self._began)
            self._tidy(before - self.ledger.causes.folders())
        if result.hung and ran < count:  # it would take as long again
            self._crash(Crash(shard.begin + ran, result.hung), 1)
            ran += 1
        if ran == count and result.seconds > 0.0:
            rate = count / result.seconds
            self._size = max(1, min(LARGEST_SHARD, round(rate * SHARD_S), 2 * max(count, self._size)))
        elif ran < count and self._time_left() != 0.0 and not self._dropping:
            self._again.append(replace(shard, begin=shard.begin + ran))

    def _causes(self, failures: list[Failure]) -> list[Cause]:
        """The failures of a shard as the ledger has them; one that stands for its cause is written before that."""
        known, causes = self.ledger.causes.copy(), list[Cause]()
        for failure in sorted(failures, key=lambda failure: failure.seed):
            named = (failure.minimal.build, failure.driver, failure.seed, failure.violation.message)
            cause = Cause(failure.law, failure.kinds, *named)
            if known.leads(cause):
                cause = replace(cause, folder=self._kept(failure))
            known.take(cause)
            causes.append(cause)
        return causes

    def _kept(self, failure: Failure) -> str:
        """Name of the failure's folder; nothing where it cannot be written, as on a full disk."""
        if self.ledger.so_far.unwritten:
            return ""
        try:
            return self._keep(failure)
        except (OSError, InputError) as error:
            self.ledger.stuck(error)
            return ""

    def _tidy(self, folders: set[str]) -> None:
        try:
            for folder in sorted(folders):
                self._drop(folder)
        except OSError as error:
            self.ledger.stuck(error)

    def _struck(self, shard: Shard, error: BaseException, *, alone: bool = False) -> None:
        """A shard crashed the harness: once may be an accident, twice is looked into, down to one example."""
        if isinstance(error, OtherCode):
            self._crash(Crash(shard.begin, str(error)), CRASHES_BORNE)
            return
        if self._crashes >= CRASHES_BORNE:
            return
        again = self._suspects if alone else self._again
        shard = replace(shard, strikes=shard.strikes + 1)
        middle = (shard.begin + shard.end) // 2
        if shard.strikes < 2:
            again.append(shard)
        elif middle > shard.begin:
            again.append(Shard(shard.begin, middle, 1))
            again.append(Shard(middle, shard.end, 1))
        else:
            self._blame(shard.begin, error, alone)

    def _blame(self, number: int, error: BaseException, died: bool) -> None:
        """Example ``number`` crashed the harness again, all alone; one that kills its process may be a rule's fault."""
        failure = deadly.failure_of(self.crew, self.order, number) if died else None
        if failure is not None:
            self._crashes += 1
            causes = self._causes([failure])
            wall = time.monotonic() - self._began
            self.ledger.add(number, number + 1, ShardResult(1, failures=[failure]), causes, wall)
            return
        line = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        again = f"{self._command} --examples {number + 1}" if self._command else ""
        self._crash(Crash(number, line, seed_of(self.order.seed, number), again), 1)

    def _crash(self, crash: Crash, weight: int) -> None:
        self._crashes += weight
        if weight == 1:
            self.ledger.crash(crash)
        else:  # not the example's fault, which can run another time
            self.ledger.so_far.crashes.append(crash)


class _Numbers:
    """Examples that have not run, in ascending order: first the gaps that earlier sessions left."""

    def __init__(self, done: list[tuple[int, int]]) -> None:
        self._gaps = deque(_gaps(done))
        self._next = done[-1][1] if done else 0

    def take(self, count: int, block: int = 0) -> tuple[int, int]:
        """The next range, of ``count`` examples at most and, where ``block`` is given, across no multiple of it."""
        if block:
            begin = self._gaps[0][0] if self._gaps else self._next
            count = min(count, block - begin % block)
        if not self._gaps:
            self._next += count
            return (self._next - count, self._next)
        begin, end = self._gaps.popleft()
        if end - begin > count:
            self._gaps.appendleft((begin + count, end))
        return (begin, min(end, begin + count))


def _gaps(done: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    position = 0
    for begin, end in done:
        if begin > position:
            yield (position, begin)
        position = end
