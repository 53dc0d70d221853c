"""A prefill and a decode worker: contexts are computed on one, their pages are sent, tokens are generated on the other.

Life of a request, by the worker that holds its pages:

    prefill   context, first token, SENDING: nothing more is computed, the pages stay
    both      a transfer is open: the decode worker granted what it lacks and writes arrive in it at any time
    decode    generation, as on any worker; a preempted request prefills here

A transfer has a start (:class:`Send`) and an end: it arrives (:class:`Arrive`) or it is lost (:class:`Abort`). Bytes
move between the two, outside the stream of steps, so the pages of both sides stay until the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from model.builds import Build
from model.cluster import Cluster
from model.config import EngineConfig, RequestSpec
from model.events import Kind
from model.geninit import Need, Receiver
from model.invariants.flights import FlightLaws
from model.linkops import Abort, Arrive, LinkOp, Send
from model.ops import At, Cancel, Op, Outcome, Submit, Suspend, World
from model.request import CANCELLED, SENDING, SENT, Request, RequestRecord, Totals
from model.wire import Leg, carry, legs

PREFILL, DECODE = 0, 1


@dataclass(slots=True)
class Transfer:
    """One open transfer. ``steps``: how many each worker had dispatched when its pages were locked or granted."""

    source: Request
    target: Request
    needs: list[Need]
    legs: list[Leg]
    steps: tuple[int, int]
    cancelled: bool = False


class Pair(Cluster):
    """Worker 0 prefills, worker 1 decodes; ``drafts`` says whether the link carries the drafter's pages."""

    def __init__(
        self,
        configs: Sequence[EngineConfig],
        build: Build,
        *,
        drafts: bool = True,
        check: str = "incremental",
        keep_events: bool = False,
        record_ops: bool = False,
    ) -> None:
        if len(configs) != 2 or configs[0].limits.page_size != configs[1].limits.page_size:
            raise ValueError("a pair has two workers with pages of one size")
        super().__init__(configs, build, check=check, keep_events=keep_events, record_ops=record_ops)
        self.prefill, self.decode = self.workers
        self.prefill.engine.after_context = SENDING
        self.receiver = Receiver(self.decode.engine, drafts)
        self.rule = build.rules.transfer
        self.transfers: dict[int, Transfer] = {}  # open ones, by request
        self.laws = FlightLaws(self.prefill, self.decode) if check != "off" else None

    def carry_out(self, op: At | Op) -> Outcome:
        """Ops of the link, and those of a client, concern both workers; the rest names one."""
        if isinstance(op, At) and isinstance(op.op, Submit | Cancel) and op.worker in (PREFILL, DECODE):
            if isinstance(op.op, Submit) and op.worker == DECODE:
                return Outcome(False, "requests enter at the prefill worker")
            op = op.op
        if isinstance(op, Send):
            outcome = self._send(op.request_id)
        elif isinstance(op, Arrive):
            outcome = self._arrive(op.request_id)
        elif isinstance(op, Abort):
            outcome = self._abort(op.request_id, op.recompute)
        elif isinstance(op, Submit):
            outcome = self._submit(op)
        elif isinstance(op, Cancel):
            outcome = self._cancel(op)
        elif isinstance(op, Suspend):
            outcome = self._holder(op.request_id).apply(op)
        else:
            outcome = super().carry_out(op)
        if self.laws is not None:
            self.laws.open(self.transfers.values())
            self.laws.drafted()
            if isinstance(op, LinkOp) and outcome.applied:
                self._disturbed()
        return outcome

    def _disturbed(self) -> None:
        """A link moved pages on both workers."""
        for world in self.workers:
            if world.watch is not None:
                world.watch.disturbed()

    def has_work(self) -> bool:
        """Whether any request has not ended, a step is in flight, or a transfer is open."""
        return bool(self.transfers) or super().has_work()

    def ready(self) -> list[int]:
        """Requests that wait to be sent, in the order in which they arrived."""
        return [
            request.request_id
            for request in self.prefill.engine.scheduler.active
            if request.state is SENDING and not request.pinned and not request.first_in_flight
        ]

    def drain(self) -> None:
        """Judge the end of a run, transfers that never ended included."""
        if self.laws is not None:
            for request_id in self.transfers:
                self.laws.never_ended(request_id)
        super().drain()

    # -- clients -------------------------------------------------------------------------------------------------

    def refusal(self, spec: RequestSpec) -> str | None:
        """Why some worker can never serve a request, in one sentence; ``None`` if both can."""
        if spec.request_id in self.transfers:
            return f"request {spec.request_id} is still being sent"
        return next((why for world in self.workers if (why := world.engine.refusal(spec)) is not None), None)

    def _submit(self, op: Submit) -> Outcome:
        why = self.refusal(op.spec)
        return self.prefill.apply(op) if why is None else Outcome(False, why)

    def _cancel(self, op: Cancel) -> Outcome:
        transfer = self.transfers.get(op.request_id)
        if transfer is None:
            return self._holder(op.request_id).apply(op)
        if transfer.cancelled:
            return Outcome(False, f"request {op.request_id} is not live")
        transfer.cancelled = True
        self.decode.engine.totals.cancelled += 1
        for world, request in ((self.decode, transfer.target), (self.prefill, transfer.source)):
            world.engine.log.note(Kind.CANCEL, op.request_id)
            keep = self.rule.drains or request is transfer.source
            world.engine.end(request, CANCELLED, keep_pages=keep)
            if world.watch is not None:
                world.watch.cancelled(op.request_id)
        return Outcome(True)

    def _holder(self, request_id: int) -> World:
        """The worker that a request is on."""
        return self.decode if request_id in self.decode.engine.live else self.prefill

    # -- views ---------------------------------------------------------------------------------------------------

    def records(self) -> dict[int, RequestRecord]:
        """One record for each request: reuse as its prefill counted it, work and output of both workers."""
        records = dict(self.prefill.records())
        for request_id, there in self.decode.records().items():
            here = records.get(request_id)
            records[request_id] = there if here is None else _joined(here, there)
        return records

    def totals(self) -> Totals:
        """Counters of both workers; what the decode worker did not need to receive is no reuse of its own."""
        here = self.prefill.totals()
        return replace(super().totals(), cached_tokens=here.cached_tokens, draft_cached_tokens=here.draft_cached_tokens)

    def bytes_of(self, request_id: int) -> int:
        """Bytes that the open transfer of a request moves, whole pages."""
        page = self.config.limits.page_size
        return sum(
            len(leg.need.blocks) * page * leg.need.column.lifecycle.bytes_per_token
            for leg in self.transfers[request_id].legs
        )

    # -- the link ------------------------------------------------------------------------------------------------

    def _send(self, request_id: int) -> Outcome:
        prefill, decode = self.prefill.engine, self.decode.engine
        source = prefill.live.get(request_id)
        if source is None or source.state is not SENDING or request_id in self.transfers:
            return Outcome(False, f"request {request_id} does not wait to be sent")
        if source.first_in_flight and self.rule.waits_for_source:
            return Outcome(False, f"the last step of request {request_id}'s context has not settled")
        if not prefill.twin.resume(source):
            return Outcome(False, f"the pages of request {request_id} cannot be locked now")
        assert source.stream is not None
        target, why = self.receiver.admit(source.spec, source.generated + source.first_in_flight, source.stream)
        if target is None:
            return Outcome(False, why)
        source.pinned = True
        tables = [column.manager.sequences[source.owner].tables[column.column] for column in prefill.twin.columns]
        needs = self.receiver.needs(target, prefill.binder.base_of(source.owner), tables)
        lists = legs(self.rule, needs, prefill.twin, source.owner, target.owner)
        steps = (prefill.iteration, decode.iteration)
        transfer = self.transfers[request_id] = Transfer(source, target, needs, lists, steps)
        for world in self.workers:
            world.interleave()
        decode.log.note(Kind.SEND, request_id, target.owner, target.cursor, target.claim.tokens)
        if self.laws is not None and self.decode.watch is not None:
            self.decode.watch.granted_to(target.owner, request_id)
            self.laws.sent(transfer)
        return Outcome(True)

    def _arrive(self, request_id: int) -> Outcome:
        transfer = self.transfers.get(request_id)
        if transfer is None:
            return Outcome(False, f"no transfer of request {request_id} is open")
        if self.rule.waits_for_source and self._in_flight(PREFILL, transfer):
            return Outcome(False, "a step that was dispatched before the transfer may still move the pages it reads")
        if self.rule.waits_for_target and self._in_flight(DECODE, transfer):
            return Outcome(False, "a step that was dispatched before the transfer may still touch the pages it writes")
        if self.laws is not None and self.prefill.watch is not None and self.decode.watch is not None:
            self.laws.written(transfer)
            carry(transfer.legs, self.prefill.watch.shadow, self.decode.watch.shadow, transfer.target.owner)
        if self.prefill.follower is not None and self.decode.follower is not None:
            self.decode.follower.received(transfer.legs, self.prefill.follower, transfer.target.owner)
        self.decode.engine.log.note(Kind.ARRIVE, request_id, transfer.target.owner)
        del self.transfers[request_id]
        if transfer.cancelled:
            self._drop(transfer, arrived=True)
            return Outcome(True)
        target = transfer.target
        if self.decode.watch is not None and self.laws is not None:
            known, claim = target.generated, target.claim.tokens
            self.decode.watch.ledger.received(request_id, claim, target.cursor - claim, known)
            self.laws.arrived(transfer, self.receiver.promised)
        self.receiver.begin(target, transfer.needs)
        self._sent(transfer.source)
        return Outcome(True)

    def _in_flight(self, worker: int, transfer: Transfer) -> bool:
        """Whether a step that was dispatched before the transfer has not settled yet."""
        plans = self.workers[worker].engine.plans
        return bool(plans) and plans[0].iteration < transfer.steps[worker]

    def _abort(self, request_id: int, recompute: bool) -> Outcome:
        transfer = self.transfers.pop(request_id, None)
        if transfer is None:
            return Outcome(False, f"no transfer of request {request_id} is open")
        self.decode.engine.log.note(Kind.ABORT, request_id, transfer.target.owner)
        if transfer.cancelled:
            self._drop(transfer, arrived=False)
            return Outcome(True)
        self.receiver.withdraw(transfer.target, recompute)
        if not recompute:
            transfer.source.pinned = False
            return Outcome(True)
        if self.decode.watch is not None:
            self.decode.watch.ledger.received(request_id, None, 0, transfer.target.generated)
        self._sent(transfer.source)
        return Outcome(True)

    def _sent(self, source: Request) -> None:
        """The prefill worker is done with a request."""
        self.prefill.engine.end(source, SENT)
        if self.prefill.watch is not None:
            self.prefill.watch.cancelled(source.request_id)

    def _drop(self, transfer: Transfer, arrived: bool) -> None:
        """The transfer of a cancelled request has stopped: both sides drop its pages."""
        if arrived:
            self.receiver.drop(transfer.target, transfer.needs)
        else:
            self.decode.engine.twin.free(transfer.target, ended=True)
        self.prefill.engine.twin.free(transfer.source, ended=True)
        for world, request in ((self.decode, transfer.target), (self.prefill, transfer.source)):
            world.engine.lent.discard(request.owner)
            world.engine.log.note(Kind.RELEASE, request.owner)


def _joined(here: RequestRecord, there: RequestRecord) -> RequestRecord:
    """The record of a request that was prefilled ``here`` and generated ``there``."""
    own = ("request_id", "conversation", "prompt_tokens", "cached_tokens", "draft_cached_tokens")
    counts = {
        entry.name: getattr(here, entry.name) + getattr(there, entry.name)
        for entry in fields(RequestRecord)
        if isinstance(getattr(here, entry.name), int) and entry.name not in own
    }
    return replace(here, **counts, state=there.state, claims=[*here.claims, *there.claims])
