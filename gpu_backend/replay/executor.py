"""Carries out one world's stream on a device and compares, after every step, what it finds there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.backend import Kernels
from gpu_backend.replay.believed import as_believed
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.compare import TappedChannel, decoded, first_difference
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.findings import Place, violations
from gpu_backend.replay.full import AttentionProbe, differing_cells, unspelled, wrong_outputs
from gpu_backend.replay.memory import DeviceMemory
from gpu_backend.replay.page_batch import PageBatch
from gpu_backend.replay.records import RecordRunner
from gpu_backend.replay.segments import Left, Segment, close
from gpu_backend.replay.stepper import Stepper
from gpu_backend.replay.supported import require_replayable
from gpu_backend.replay.transfer import carry
from model.copies import Copy
from model.events import Channel, Kind
from model.follower import Follower
from model.invariants.base import Violation
from model.ops import World
from model.plan import ContextRow, GenerationRow, Record, StepPlan
from model.request import GENERATION
from model.wire import Leg


@dataclass(slots=True)
class Counts:
    """What a replay did: steps, rows and records carried out; events, slots and cells compared; ``seconds`` of it."""

    steps: int = 0
    rows: int = 0
    records: int = 0
    events: int = 0
    slots: int = 0
    cells: int = 0
    failed: int = 0
    ahead: int = 0  # most steps that had run and not settled
    seconds: float = 0.0
    dispatch_seconds: float = 0.0
    findings: list[Violation] = field(default_factory=list)


class DeviceWorld(Follower):
    """Follows ``world``: its plans run on the device in the order in which they went out.

    A plan runs when it settles, with the counts that come then, or when it goes out, where a ``schedule`` gives them.
    """

    def __init__(
        self, world: World, device: torch.device, kernels: Kernels, content: Synthetic, *, checks: bool = True,
        full: bool = False, graphs: bool = False,
    ) -> None:  # fmt: skip
        require_replayable(world.build)
        self.world, self.engine, self.checks = world, world.engine, checks
        self.memory = DeviceMemory(world.engine, device, kernels, content, checks=checks, debug=full)
        self.records = RecordRunner(self.memory)
        self.probe = AttentionProbe(self.memory) if full else None
        self.steps = Stepper(self.memory, self.records, self.probe, graphs=graphs and not full)
        self._told = False  # whether the journal has the state behind the step that ran last
        self.channel = Channel(keep=False)
        self.counts = Counts()
        self.tap = TappedChannel(world.log.memory) if world.watch is not None else None
        if self.tap is not None:
            world.log.memory = self.tap
        self.pools = [planes.name for planes in self.memory.planes]
        self.requests: dict[int, int] = {}  # owner -> request
        self._reported: set[tuple[str, int, str, str]] = set()
        # Accepted counts of the steps to come, where they are known: then a step runs as soon as it goes out.
        self.schedule: Iterator[tuple[int, ...]] | None = None
        self._ran: deque[Segment] = deque()  # what ran and is not compared yet
        self._stream: deque[StepPlan | list[tuple]] = deque()  # what went out and has not run
        self._bindings: set[int] = set()  # places in the stream of lists that hold bindings of a failed forward
        self._head: list[tuple] | None = None  # records that ran in part, and how many of them did
        self._done = 0
        world.follower = self

    # -- what the world tells ------------------------------------------------------------------------------------

    def dispatched(self, plan: StepPlan) -> None:
        self._stream.append(plan)
        if self.schedule is None:
            return
        begun = time.perf_counter()
        counts = next((counts for counts in self.schedule if len(counts) == len(plan.generation)), None)
        if counts is None:  # nothing will settle it
            self.schedule = None
            return
        self._stream.pop()
        accepted = plan.committed(counts)
        self._step(plan, accepted)
        self._ran.append(self._closed(plan, accepted))
        self.counts.ahead = max(self.counts.ahead, sum(segment.plan is not None for segment in self._ran))
        self.counts.dispatch_seconds += time.perf_counter() - begun

    def failed(self, bindings: list[tuple]) -> None:
        self._bindings.add(id(bindings))
        self._stream.append(bindings)
        self._run_up_to_plan()

    def interleaved(self, records: list[tuple]) -> None:
        self._stream.append(records)
        self._run_up_to_plan()
        self._judge(self._due())

    def settled(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        begun = time.perf_counter()
        if not self._ran:
            head = self._stream.popleft()
            assert head is plan, "plans settle in the order in which they went out"
            self._step(plan, accepted)
            self._ran.append(self._closed(plan, accepted))
            self._run_up_to_plan()
        first = self._ran.popleft()
        assert first.plan is plan, "plans settle in the order in which they went out"
        if first.accepted != accepted:
            found = f"accepted counts {accepted}"
            self._report(Violation("MAP", "device: a step ran with other counts", step=plan.iteration, found=found))
        self._judge([first, *self._due()])
        self.counts.seconds += time.perf_counter() - begun

    def warmed(self, plan: StepPlan) -> None:
        self._step(plan, ())
        self._compare()

    def landed(self, copy: Copy, queued: list[tuple]) -> None:
        self._catch_up(copy, queued)
        self.records.landed(copy)
        self._compare()

    def lost(self, copy: Copy, void: Sequence[int], queued: list[tuple]) -> None:
        self._catch_up(copy, queued)
        self.records.lost(copy, void)
        self._compare()

    def received(self, legs: Sequence[Leg], source: Follower, owner: int) -> None:
        assert isinstance(source, DeviceWorld)
        for pool, fields in carry(legs, source.memory, self.memory):
            self.memory.journal.add(Kind.MEM_RECEIVE, (self.records.iteration, pool, owner), fields)
        self._compare()

    def drained(self, records: list[tuple]) -> None:
        for item in self._stream:
            if isinstance(item, list):
                self._between(item)
        self._run(records, len(records))
        self._compare()
        if self.checks and self.world.watch is not None and not self._ran:
            self.counts.cells, differing = differing_cells(self.memory, self.world.watch.shadow)
            self.counts.findings += differing
        if self.probe is not None:
            self.counts.findings += unspelled(self.memory, self.records.iteration)

    @property
    def digest(self) -> str:
        """SHA-256 over the device's memory events, or a word that they were not gathered."""
        return self.channel.digest() if self.checks else "not computed"

    # -- the stream ----------------------------------------------------------------------------------------------

    def _run_up_to_plan(self) -> None:
        """Carry out what stands before the oldest plan that has not settled."""
        while self._stream and isinstance(self._stream[0], list):
            self._between(self._stream.popleft())  # pyright: ignore[reportArgumentType]

    def _between(self, item: list[tuple]) -> None:
        if id(item) in self._bindings:
            self._bindings.discard(id(item))
            self._fail(item)
        else:
            self._run(item, len(item))
            self._ran.append(self._closed(None, ()))

    def _fail(self, bindings: list[tuple]) -> None:
        """A forward fails: the slots are saved, bound for it, and restored."""
        memory, journal = self.memory, self.memory.journal
        notes, bound, events = memory.rows.snapshot(), dict(memory.bound), memory.journal
        memory.journal = type(journal)()  # what never ran leaves no event
        self.records.run(bindings)
        memory.rows.roll_back(notes)
        memory.bound, memory.journal = bound, events
        self.counts.failed += 1

    def _catch_up(self, copy: Copy, queued: list[tuple]) -> None:
        """Run the oldest queued records up to the one with which ``copy`` began, if it is among them."""
        for place, record in enumerate(queued):
            if record[0] == Record.START and record[1] == copy.number:
                self._run(queued, place + 1)
                return

    def _run(self, records: list[tuple], end: int) -> None:
        """Run ``records[.. end]`` as far as they have not run yet."""
        self.records.flush(self._run_up_to_batch(records, end))

    def _run_up_to_batch(self, records: list[tuple], end: int) -> PageBatch:
        """The same, but for grants and publications at the end, which come back."""
        done = self._done if records is self._head else 0
        for record in records[done:end]:
            if record[0] == Record.BEGIN:
                self.requests[record[1]] = record[2].request_id
        batch = self.records.run_up_to_batch(records[done:end])
        self.counts.records += max(0, end - done)
        self._head, self._done = records, max(done, end)
        return batch

    def _step(self, plan: StepPlan, accepted: Sequence[int]) -> None:
        """One iteration: its records, what its rows read, what they write."""
        memory = self.memory
        memory.rules = plan.device
        self.records.iteration = plan.iteration
        batch = self._run_up_to_batch(plan.records, len(plan.records))
        self._head, self._done = None, 0
        self._told = self.steps.run(plan, accepted, batch)
        for column in memory.columns:
            for slot, page in column.beyond:
                self._beyond(plan, column, slot, page)
            column.beyond.clear()
        self.counts.steps += 1
        self.counts.rows = self.steps.rows

    # -- comparison ----------------------------------------------------------------------------------------------

    def _closed(self, plan: StepPlan | None, accepted: tuple[int, ...]) -> Segment:
        told, self._told = self._told, False
        return close(self.memory, self.records, self.steps.reads, self.probe, plan, accepted, told=told)

    def _due(self) -> list[Segment]:
        """What ran before the oldest step that has not settled."""
        due = []
        while self._ran and self._ran[0].plan is None:
            due.append(self._ran.popleft())
        return due

    def _compare(self) -> None:
        """Compare what happened just now, outside of any step."""
        self._judge([*self._due(), self._closed(None, ())])

    def _judge(self, segments: Sequence[Segment]) -> None:
        """Read the device's events, findings and slots, and compare them with the memory and the engine."""
        if not self.checks:
            return
        read = [segment.read() for segment in segments]
        stream, events = b"".join([left.stream for left in read]), sum([left.events for left in read])
        self.channel.add_bytes(stream, events)
        self.counts.events += events
        if self.tap is not None:
            wanted = self.tap.take()
            if stream != wanted:
                difference = first_difference(decoded(stream), decoded(wanted), self.pools, self.requests)
                assert difference is not None, "other bytes are other records"
                self._report(difference)
        for segment, left in zip(segments, read, strict=True):
            step = -1 if segment.plan is None else segment.plan.iteration
            if left.unfinished:
                self._report(Violation("PUB", "device: a cell without final content is published", step=step))
            if segment.plan is not None:
                self._judge_step(segment, segment.plan, left)

    def _judge_step(self, segment: Segment, plan: StepPlan, left: Left) -> None:
        memory, rows = self.memory, self.memory.rows
        if segment.wrong or any(any(numbers[:4]) or any(numbers[5:8]) for numbers in left.found):
            at = Place(plan.iteration, {row.slot: row.request_id for row in (*plan.context, *plan.generation)})
            for findings, numbers in zip(memory.findings, left.found, strict=True):
                for violation in violations(findings, numbers, at, rows.drafter.base):
                    self._report(violation)
            for violation in wrong_outputs(segment.wrong, plan.iteration, at.requests):
                self._report(violation)
        if not plan.context and as_believed(self.engine, memory, segment, plan, left.state):
            self.counts.slots += len(plan.generation)
        else:
            self._slots(segment, plan, left.state)

    def _slots(self, segment: Segment, plan: StepPlan, state: NDArray[np.int64]) -> None:
        """The device's lengths and bases are what the engine believes of its rows."""
        engine, memory = self.engine, self.memory
        length, drafted, base, strange = state.tolist()
        flying = {record[2] for later in engine.plans for record in later.records if record[0] == Record.BIND}
        slotted, page = memory.twin.kind.slot, memory.page_size
        for row in (*plan.context, *plan.generation):
            request = engine.owners.get(row.owner)
            if request is None or request.owner != row.owner or segment.bound.get(row.slot) != row.owner:
                continue
            wanted = row.end if isinstance(row, ContextRow) else request.prompt_length + request.generated - 1
            if not isinstance(row, ContextRow) and request.state is not GENERATION:
                continue
            self.counts.slots += 1
            if strange[row.slot]:
                text = f"device: the base of row slot {row.slot} lies behind its context"
                self._report(Violation("STATE", text, row.request_id, step=plan.iteration))
            if length[row.slot] != wanted:
                self._differs(row, plan, "length", wanted, length[row.slot])
            follows = memory.draft_columns and row.drafts and not isinstance(row, ContextRow)
            behind = wanted - segment.lag[row.slot] if slotted else wanted
            if follows and drafted[row.slot] != behind:
                self._differs(row, plan, "drafter's length", behind, drafted[row.slot])
            if row.owner not in flying and base[row.slot] != engine.binder.base_of(row.owner):
                wanted = engine.binder.base_of(row.owner) * page
                self._differs(row, plan, "drafter's base", wanted, base[row.slot] * page)

    def _differs(self, row: ContextRow | GenerationRow, plan: StepPlan, what: str, wanted: int, found: int) -> None:
        self._report(
            Violation(
                "MAP",
                f"device: the {what} of row slot {row.slot} is not the engine's",
                row.request_id,
                position=found,
                step=plan.iteration,
                expected=f"{wanted} tokens",
                found=f"{found} tokens",
            )
        )

    def _beyond(self, plan: StepPlan, column: DeviceColumn, slot: int, page: int) -> None:
        request = next((row.request_id for row in (*plan.context, *plan.generation) if row.slot == slot), -1)
        self._report(
            Violation(
                "MAP",
                f"device: {column.life.name}: the table of row slot {slot} names a page outside the pool",
                request,
                column.planes.name,
                page,
                step=plan.iteration,
                expected=f"pages below {column.planes.device_pages}",
                found=f"page {page}",
            )
        )

    def _report(self, violation: Violation) -> None:
        """Add a finding unless the same was said of the same request and pool."""
        key = (violation.code, violation.request, violation.pool, violation.message)
        if key not in self._reported:
            self._reported.add(key)
            self.counts.findings.append(violation)
