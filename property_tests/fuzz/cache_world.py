"""The cache layer as a world of its own: one engine's managers, driven op by op, in any legal order.

``apply`` accepts any op at any time: what is illegal now is a skip that says why, so every part of a program is a
program. A growth or a resume that finds no pages is no skip: it was tried, and both pools must be as before.

    create -> claim -> chunk -> commit -> ... -> last commit -> row -> (row ->) commit -> ... -> close
                     resume, suspend, load between any two of them; revert undoes a chunk or the newest row
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from model.builds import Build
from model.config import EngineConfig
from model.engine import Engine
from model.events import EventLog
from model.invariants.base import Docket, Violation
from model.request import CONTEXT, GENERATION, Request, RequestRecord, len_prompt
from model.sequence import ACTIVE
from property_tests.fuzz.cache_entry import Entry, stream_of
from property_tests.fuzz.cache_laws import CacheLaws, Disagreement, Shape, shape_of
from sim.cacheops import (
    CacheOp,
    Chunk,
    Claim,
    Close,
    Commit,
    Create,
    Evict,
    Load,
    Offload,
    Resume,
    Revert,
    Row,
    Suspend,
)
from sim.crashes import ENDS, Hang, crashed


class CacheWorld:
    """Managers, memory and judges of one engine. ``check`` is one of :data:`property_tests.fuzz.cache_laws.CHECKS`.

    Changes of tier are done at once: copies that take time are the engine's.
    """

    def __init__(self, config: EngineConfig, build: Build, check: str = "touched") -> None:
        self.config = replace(config, asynchronous_copies=False)
        self.build = build
        self.engine = Engine(self.config, build.rules, EventLog())
        self.twin = self.engine.twin
        self.docket = Docket()
        self.laws = CacheLaws(self.engine, self.docket, check, build.correct)
        drafter = self.config.drafter  # tokens behind the last one asked for that rows may write or depend on
        self.reach = 4 * (1 + drafter.drafts) + self.twin.kind.tag_span(drafter.chain) + 1
        self.entries: dict[int, Entry] = {}
        self.ops: list[CacheOp] = []
        self.steps = 0  # ops that were applied
        self.skips = 0
        self.crashed = False
        self.features: Counter[str] = Counter()

    @property
    def violations(self) -> list[Violation]:
        """Broken laws, in order of discovery."""
        return self.docket.violations

    def apply(self, op: CacheOp) -> str:
        """Carry out one op and judge it; a sentence why it was skipped, or nothing.

        A crash of the model is told as a broken law of its own, behind which nothing more is carried out.
        """
        if self.crashed:
            return "the model crashed"
        self.ops.append(op)
        try:
            why = _APPLY[type(op)](self, op)
        except Disagreement:
            raise
        except ENDS as error:
            self.end(error)
            why = ""
        if why:
            self.skips += 1
        else:
            self.steps += 1
        return why

    def end(self, error: BaseException) -> None:
        """Tell of ``error`` as a broken law; nothing more is carried out."""
        self.crashed = True
        self.docket.report(crashed(error, len(self.ops)))

    def run(self, ops: Iterable[CacheOp]) -> Violation | None:
        """Apply ``ops`` until a law breaks, then drain; the first violation, if there is one."""
        try:
            for op in ops:
                self.apply(op)
                if self.docket.violations:
                    break
            else:
                self.drain()
        except Hang as hang:  # between two ops
            self.end(hang)
        return self.docket.violations[0] if self.docket.violations else None

    def drain(self) -> None:
        """Everybody leaves; nothing may stay held."""
        if self.crashed:
            return
        try:
            for entry in list(self.entries.values()):
                self._leave(entry)
            self.laws.drained()
        except Disagreement:
            raise
        except ENDS as error:
            self.end(error)

    # -- requests ------------------------------------------------------------------------------------------------

    def _create(self, op: Create) -> str:
        spec = op.spec
        if spec.request_id in self.entries:
            return f"request {spec.request_id} is still here"
        prompt, most = len_prompt(spec), self.config.limits.max_seq_len
        if prompt < 1 or spec.max_new_tokens < 1:
            return f"request {spec.request_id} needs a prompt and at least one output token"
        if prompt + spec.max_new_tokens > most:
            return f"request {spec.request_id} needs {prompt + spec.max_new_tokens} tokens, max_seq_len is {most}"
        request = Request(spec, self.engine.take_place(), RequestRecord(spec.request_id, spec.conversation, prompt))
        request.stream = stream_of(spec, self.config.vocabulary, self.reach)
        self.engine.prepare(request)
        self.laws.requests[request.owner] = spec.request_id
        self.docket.submitted(spec.request_id)
        self.entries[spec.request_id] = Entry(request, self.twin)
        return ""

    def _claim(self, op: Claim) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None:
            return _unknown(op.request_id)
        if entry.claimed:
            return f"request {op.request_id} has claimed"
        if not self.twin.has_room():
            return "every sequence slot is taken"
        request = entry.request
        request.claim = self.twin.claim(request, self.engine.totals)
        request.cursor = request.claim.tokens
        entry.claimed = True
        request.state = CONTEXT
        self.features[f"claim {request.claim.kind}"] += 1
        if request.claim.tokens % self.config.limits.page_size:
            self.features["partial claim"] += 1
        self.laws.claimed(request)
        self.laws.after(request.owner)
        self.laws.judged(request)
        return ""

    def _resume(self, op: Resume) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None or not entry.claimed:
            return _unknown(op.request_id) if entry is None else _unclaimed(op.request_id)
        request = entry.request
        if all(sequence.status is ACTIVE for sequence in self.twin.sequences(request)):
            return f"request {op.request_id} holds its locks"
        return self._try(request, "resume", lambda: self.twin.resume(request))

    def _load(self, op: Load) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None or not entry.claimed:
            return _unknown(op.request_id) if entry is None else _unclaimed(op.request_id)
        request = entry.request
        away = sum(
            pool.host_resident(table.pages) + pool.host_resident(table.sinks)
            for sequence in self.twin.sequences(request)
            for table, pool in zip(sequence.tables, sequence.manager.pools, strict=True)
        )
        if not away:
            return f"nothing of request {op.request_id} lies in the host tier"
        self.features["host load"] += 1
        return self._try(request, "load", lambda: self.twin.resume(request))

    # -- size ----------------------------------------------------------------------------------------------------

    def _try(self, request: Request, what: str, grow: Callable[[], bool]) -> str:
        """Grow or resume: where it fails, both pools are as before."""
        before = self._shapes(request)
        if not grow():
            self.features[f"{what} refused"] += 1
            self.laws.undone(request, before, what)
        self.laws.after(request.owner)
        return ""

    def _shapes(self, request: Request) -> list[Shape]:
        return [shape_of(sequence) for sequence in self.twin.sequences(request)]

    def _chunk(self, op: Chunk) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None or not entry.claimed:
            return _unknown(op.request_id) if entry is None else _unclaimed(op.request_id)
        request = entry.request
        if request.state is not CONTEXT:
            return f"the context of request {op.request_id} is complete"
        if entry.end >= 0:
            return f"the chunk of request {op.request_id} up to {entry.end} is to be computed first"
        end = min(request.cursor + max(1, op.tokens), request.context_length)
        last = end == request.context_length
        before = self._shapes(request)
        if self.twin.grow_context(request, end, last):
            entry.end, entry.last = end, last
            entry.before = [shape[0] for shape in before]
            self.laws.grown(request, before, end, last)
        else:
            self.features["chunk refused"] += 1
            self.laws.undone(request, before, "chunk")
        self.laws.after(request.owner)
        return ""

    def _row(self, op: Row) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None:
            return _unknown(op.request_id)
        request = entry.request
        if request.state is not GENERATION:
            return f"request {op.request_id} has no complete context"
        rows = len(request.grown)
        if rows > self.config.limits.run_ahead:
            return f"{rows} rows of request {op.request_id} are in flight"
        if request.generated + rows >= request.spec.max_new_tokens:
            return f"what request {op.request_id} has in flight completes it"
        before = self._shapes(request)
        if self.twin.grow_generation(request):
            self.laws.widened(request, before)
        else:
            self.features["row refused"] += 1
            self.laws.undone(request, before, "row")
        self.laws.after(request.owner)
        return ""

    def _revert(self, op: Revert) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None:
            return _unknown(op.request_id)
        request, twin = entry.request, self.twin
        if entry.end >= 0:
            entry.end = -1
            if request.started:
                twin.revert_context(request, entry.before)
            elif self.build.rules.admission.frees_failed_first:
                twin.free(request)
                request.cursor = 0
                self._unclaim(entry)
            else:
                twin.suspend_all(request)
        elif request.grown:
            twin.revert_generation(request)
        else:
            return f"request {op.request_id} has nothing that could be undone"
        self.laws.after(request.owner)
        return ""

    # -- commit --------------------------------------------------------------------------------------------------

    def _commit(self, op: Commit) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None:
            return _unknown(op.request_id)
        if entry.end >= 0:
            return self._advance(entry)
        if entry.request.grown:
            return self._settle(entry, op.tokens)
        return f"request {op.request_id} has nothing to compute"

    def _advance(self, entry: Entry) -> str:
        """A chunk was computed: what the policy lets is published, and the first token is sampled behind the last."""
        request, end, last = entry.request, entry.end, entry.last
        entry.end = -1
        self.laws.memory.compute(request, request.cursor, end, end)
        self.twin.advance(request, end, last)
        request.cursor, request.started = end, True
        if last:
            request.state, request.generated = GENERATION, 1
            if request.spec.max_new_tokens == 1:
                self._leave(entry)
                return ""
        self.laws.after(request.owner)
        self.laws.released(request)
        return ""

    def _settle(self, entry: Entry, tokens: int) -> str:
        """The oldest row was verified: ``tokens`` of it stay, the rest shrinks back."""
        request = entry.request
        width = 1 + self.config.drafter.drafts if request.spec.drafts else 1
        count = min(max(1, tokens), width, request.spec.max_new_tokens - request.generated)
        position = request.settled_position()
        self.laws.memory.compute(request, position, position + count, position + width)
        request.generated += count
        if request.generated >= request.spec.max_new_tokens:
            self.features["finished"] += 1
            self._leave(entry)
            return ""
        self.twin.settle_generation(request, count)
        self.laws.after(request.owner)
        return ""

    # -- leaving -------------------------------------------------------------------------------------------------

    def _suspend(self, op: Suspend) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None or not entry.claimed:
            return _unknown(op.request_id) if entry is None else _unclaimed(op.request_id)
        request = entry.request
        if entry.end >= 0:
            return f"the chunk of request {op.request_id} is to be computed first"
        if not any(sequence.status is ACTIVE for sequence in self.twin.sequences(request)):
            return f"request {op.request_id} holds no locks"
        self.twin.suspend_all(request)
        self.features["suspension"] += 1
        self.laws.after(request.owner)
        return ""

    def _close(self, op: Close) -> str:
        entry = self.entries.get(op.request_id)
        if entry is None:
            return _unknown(op.request_id)
        self._leave(entry)
        return ""

    def _leave(self, entry: Entry) -> None:
        request = entry.request
        del self.entries[request.request_id]
        self.twin.free(request, ended=True)
        self.engine.owners.pop(request.owner, None)
        self.laws.after(request.owner)
        self.laws.memory.end(request.owner)

    def _unclaim(self, entry: Entry) -> None:
        entry.claimed = False
        self.laws.memory.end(entry.request.owner)

    # -- pools ---------------------------------------------------------------------------------------------------

    def _evict(self, op: Evict) -> str:
        pool = self.twin.pools.get(op.pool)
        if pool is None:
            return f"there is no pool {op.pool!r}"
        if not pool.evict_down_to(op.pages):
            return "nothing to evict"
        self.features["eviction"] += 1
        self.laws.after(-1)
        return ""

    def _offload(self, op: Offload) -> str:
        pool = self.twin.pools.get(op.pool)
        if pool is None or not pool.host_pages:
            return f"there is no pool {op.pool!r} with a host tier"
        pages = max(1, op.pages)
        if pages > pool.obtainable():
            return f"pool {op.pool!r} cannot give {pages} pages"
        granted = pool.grant(pages)
        self.engine.recorder.granted(pool, granted, -1, -1, -1)
        pool.release_locked(granted)
        self.features["offload"] += 1
        self.laws.after(-1)
        return ""


def _unknown(request_id: int) -> str:
    return f"there is no request {request_id}"


def _unclaimed(request_id: int) -> str:
    return f"request {request_id} has not claimed"


_APPLY = {
    Create: CacheWorld._create,
    Claim: CacheWorld._claim,
    Resume: CacheWorld._resume,
    Load: CacheWorld._load,
    Chunk: CacheWorld._chunk,
    Row: CacheWorld._row,
    Revert: CacheWorld._revert,
    Commit: CacheWorld._commit,
    Suspend: CacheWorld._suspend,
    Close: CacheWorld._close,
    Evict: CacheWorld._evict,
    Offload: CacheWorld._offload,
}
