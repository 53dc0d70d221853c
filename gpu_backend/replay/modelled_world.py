"""Workers whose rows real modules compute: one records what they agree on, one runs it again and is judged.

LOSSLESS: every committed token is the greedy choice of a cold run behind the tokens before it, or what the rule of
sampling gives from that run's logits and the same draws, ties aside (:mod:`gpu_backend.acceptance.judge`). SHADOW: what
a drafter may read of its context is what a cold run of the request's tokens gives, page by page.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.acceptance.draws import signed
from gpu_backend.acceptance.judge import ColdTokens
from gpu_backend.acceptance.rules import Rule
from gpu_backend.backend import Kernels
from gpu_backend.modules.chain import Chain
from gpu_backend.modules.cold import NEAR_ROWS, ColdRows, cold_run
from gpu_backend.modules.cold_chain import ColdChain, cold_chain_run
from gpu_backend.replay.agreed import Agreed, Ran
from gpu_backend.replay.chained import ChainedRows
from gpu_backend.replay.columns import DeviceColumn
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled import ModelRows, Models, OnePass
from gpu_backend.replay.planes import FIRST_PAGE
from gpu_backend.replay.result import FULL, OFF
from gpu_backend.replay.segments import Segment
from model.config import RequestSpec
from model.follower import Follower
from model.invariants.base import Violation
from model.ops import World
from model.plan import ContextRow, GenerationRow, StepPlan
from model.tokens import TokenStream
from model.wire import Leg


class ModelledWorld(DeviceWorld):
    """Follows a world as :class:`DeviceWorld` does, with a target and a drafter of its own."""

    told = True  # the counts of a step are known, and so are all tokens

    def __init__(
        self, world: World, device: torch.device, kernels: Kernels, models: Models, check: str, *, graphs: bool = False
    ) -> None:
        super().__init__(
            world, device, kernels, models.content, checks=check != OFF, full=check == FULL, graphs=graphs
        )  # fmt: skip
        self.models = models
        chained = isinstance(models.drafter, Chain)
        rows = (self.memory, models, self.steps.verify)
        self.rows = (
            ChainedRows(*rows, evidence=self.told, told=self.told)
            if chained
            else ModelRows(*rows, evidence=self.told)
        )  # fmt: skip
        self.steps.modules, self.steps.heard = self._modelled, self._heard
        if self.steps.graphs is not None:
            self.steps.graphs.modules = OnePass(self.rows, told=self.told)
        for planes in self.memory.planes:  # what nobody wrote must show, whatever is checked
            planes.pool.debug = True
            planes.pool.kv.fill_(float("nan"))

    def _modelled(
        self, context: list[ContextRow], generation: list[GenerationRow], taken: list[int], iteration: int
    ) -> list[int]:
        """Run target and drafter over the rows of a step; returns the tokens that its verify rows commit."""
        chosen = self.rows.run_chunks(context)
        for row in context:
            if row.owner in chosen:
                self._chose(row, chosen[row.owner], iteration)
        ran = self.rows.verify(generation, taken if self.told else None)
        return self._verified(ran, generation, taken, iteration)

    def received(self, legs: Sequence[Leg], source: Follower, owner: int) -> None:
        super().received(legs, source, owner)
        if isinstance(self.rows, ChainedRows) and isinstance(source, ModelledWorld):
            assert isinstance(source.rows, ChainedRows)
            owners = self.engine.owners
            self.rows.received(owner, source.rows, owners[owner].spec, owners)

    def _heard(self, agreed: Agreed, generation: list[GenerationRow], taken: list[int], iteration: int) -> None:
        self._verified(agreed.of(generation), generation, taken, iteration)

    @abstractmethod
    def _chose(self, row: ContextRow, choice: int, iteration: int) -> None:
        """The target chose a token behind the last chunk of a prompt."""

    @abstractmethod
    def _verified(self, ran: list[Ran], generation: list[GenerationRow], taken: list[int], iteration: int) -> list[int]:
        """Verify rows ran, in any order; returns the tokens that each of ``generation`` commits."""


class RecordingWorld(ModelledWorld):
    """Commits what target and drafter agree on, and tells the streams.

    A step runs when its counts are asked for, behind all copies that it waits for; in a ``free`` run when it goes out,
    as its time is asked for then.
    """

    told = False

    def __init__(
        self, world: World, device: torch.device, kernels: Kernels, models: Models, *, free: bool, graphs: bool = False
    ) -> None:
        super().__init__(world, device, kernels, models, OFF, graphs=graphs)
        self.free, self.memory.spells = free, False  # nothing is judged here
        self.took: dict[int, int] = {}  # iteration -> nanoseconds
        self.streams: dict[int, tuple[RequestSpec, TokenStream, int]] = {}  # by identity of the request's spec, as an
        # id may be used again: its tokens, and how many are known
        self.said: dict[int, int] = {}  # seed of an output -> identity of the spec that it is of
        self._accepted: dict[int, tuple[int, ...]] = {}  # iteration -> counts, until somebody asks
        self._committed: dict[int, int] = {}  # owner -> tokens, of the step that runs

    def dispatched(self, plan: StepPlan) -> None:
        self._stream.append(plan)
        if self.free:
            self._record(plan)

    def settled(self, plan: StepPlan, accepted: tuple[int, ...]) -> None:
        assert self._ran, "a step settles with the counts that were asked for"
        super().settled(plan, accepted)

    def counts_of(self, plan: StepPlan) -> tuple[int, ...]:
        """What each generation row of the oldest plan in flight commits."""
        if plan.iteration not in self._accepted:
            self._record(plan)
        return self._accepted.pop(plan.iteration)

    def _record(self, plan: StepPlan) -> None:
        begun = time.perf_counter_ns()
        head = self._stream.popleft()
        assert head is plan, "plans run in the order in which they went out"
        self._committed.clear()
        self._step(plan, (1,) * len(plan.generation))
        counts = tuple(self._committed.get(row.owner, 1) for row in plan.generation)
        self._ran.append(self._closed(plan, counts))
        self._run_up_to_plan()
        if self.memory.device.type == "cuda":
            torch.cuda.synchronize(self.memory.device)
        self._accepted[plan.iteration] = counts
        self.took[plan.iteration] = time.perf_counter_ns() - begun

    def _chose(self, row: ContextRow, choice: int, iteration: int) -> None:
        self._learn(row, row.end, [choice])

    def _verified(self, ran: list[Ran], generation: list[GenerationRow], taken: list[int], iteration: int) -> list[int]:
        for one in ran:
            self._committed[one.row.owner] = one.count
            self._learn(one.row, one.start + 1, one.choice[: one.count])
        return [self._committed[row.owner] for row in generation]

    def _learn(self, row: ContextRow | GenerationRow, begin: int, ids: list[int]) -> None:
        known = self.memory.known[row.owner]
        spec, stream = known.spec, known.stream
        stream.learn(begin, ids)
        before = self.streams.get(id(spec), (spec, stream, 0))[2]
        self.streams[id(spec)] = spec, stream, max(before, begin + len(ids))
        self.said[spec.output_seed] = id(spec)
        if isinstance(row, ContextRow):
            self.rows.slots.stream[row.slot, begin].fill_(ids[0])  # to assign a number would wait for the device

    def written(self, seed: int) -> NDArray[np.int64] | None:
        """Ids of the output with this seed, as far as a step committed them."""
        if seed not in self.said:
            return None
        _, stream, known = self.streams[self.said[seed]]
        return stream.tokens(stream.prompt_length, known).astype(np.int64)

    def outputs(self) -> dict[int, tuple[int, ...]]:
        """Ids behind the prompt of each request, as far as a step committed them, by identity of its spec."""
        return {
            place: tuple(stream.tokens(stream.prompt_length, known).tolist())
            for place, (_, stream, known) in self.streams.items()
        }


class JudgedWorld(ModelledWorld):
    """Runs recorded steps and counts again; tokens and context rows are held to cold runs."""

    def __init__(
        self, world: World, device: torch.device, kernels: Kernels, models: Models, check: str, *, graphs: bool = False
    ) -> None:
        super().__init__(world, device, kernels, models, check, graphs=graphs)
        self.judged: Counter[str] = Counter()
        self._cold: dict[int, tuple[ColdTokens, ColdRows | ColdChain]] = {}  # owner -> what its cold run gave
        self._found: set[tuple[str, int, str, int, int]] = set()

    def _chose(self, row: ContextRow, choice: int, iteration: int) -> None:
        self._again(iteration, row, row.end, [choice], 1)

    def _verified(self, ran: list[Ran], generation: list[GenerationRow], taken: list[int], iteration: int) -> list[int]:
        for one in self._in_order(ran, generation):
            count = taken[generation.index(one.row)]
            if one.count != count:
                self._tell(iteration, one.row, one.start, f"{count} tokens committed", f"{one.count} tokens", _AGAIN)
            self._again(iteration, one.row, one.start + 1, one.choice, count, one)
        return taken

    @staticmethod
    def _in_order(ran: Sequence[Ran], rows: Sequence[GenerationRow]) -> list[Ran]:
        place = {row.owner: number for number, row in enumerate(rows)}
        return sorted(ran, key=lambda one: place[one.row.owner])

    def _again(
        self, iteration: int, row: ContextRow | GenerationRow, begin: int, choice: Sequence[int], count: int,
        ran: Ran | None = None,
    ) -> None:  # fmt: skip
        """Hold ``count`` committed tokens from ``begin`` on to the first run and to a cold one."""
        stream = self.memory.known[row.owner].stream
        known = stream.tokens(begin, begin + count).tolist()
        for position, (token, now) in enumerate(zip(known, choice, strict=False), begin):
            if token != now:
                self._tell(iteration, row, position, f"token {token}", f"token {now}", _AGAIN)
                break
        self.judged["LOSSLESS"] += count
        for position, differs in self._cold_of(row)[0].wrong(begin, count, ran):
            if differs.tied:
                self.judged["tied"] += 1
                continue
            greedy = self.models.sampling.rule is Rule.GREEDY
            found = f"token {differs.found}" + (f", whose logit is {differs.behind:.3g} smaller" if greedy else "")
            self._tell(
                iteration, row, position, f"token {differs.wanted}", found, _LOSSLESS if greedy else _BY_RULE
            )  # fmt: skip

    def _cold_of(self, row: ContextRow | GenerationRow) -> tuple[ColdTokens, ColdRows | ColdChain]:
        """The recorded tokens of a row's request beside a cold run of them, and its context rows."""
        if row.owner not in self._cold:
            models, known = self.models, self.memory.known[row.owner]
            stream, output, prompt = known.stream, known.spec.output, known.stream.prompt_length
            tokens = stream.tokens(0, prompt + len(output)).tolist()
            if isinstance(models.drafter, Chain):
                logits, rows = cold_chain_run(models.target, models.drafter, prompt, tokens, self.memory.page_size)
            else:
                told = tokens[: max(prompt, len(tokens) - 1)]
                logits, rows = cold_run(models.target, models.drafter, prompt, told, self.memory.page_size)
            key, dtype = signed(known.spec.output_seed), models.content.dtype
            judge = ColdTokens(logits, prompt, output, key, models.sampling, dtype, exact=models.exact)
            self._cold = {owner: cold for owner, cold in self._cold.items() if owner in self.memory.known}
            self._cold[row.owner] = judge, rows
        return self._cold[row.owner]

    # -- the drafter's context -----------------------------------------------------------------------------------

    def _closed(self, plan: StepPlan | None, accepted: tuple[int, ...]) -> Segment:
        if plan is not None and self.checks:
            rows = [row for row in (*plan.context, *plan.generation) if row.drafts and row.owner in self.memory.known]
            state = self.memory.rows
            numbers = torch.stack([state.length, state.drafter.length, state.drafter.base]).tolist()
            finals = state.final.tolist() if isinstance(self.models.drafter, Chain) else None
            for row in rows:
                length, drafted, base = (line[row.slot] for line in numbers)
                lag = length - drafted
                if finals is not None:
                    drafted = min(drafted, finals[state.place_of[row.owner]] - lag)
                for column in self.memory.draft_columns:
                    self._shadow(plan, row, column, (base, drafted, lag))
        return super()._closed(plan, accepted)

    def _shadow(
        self, plan: StepPlan, row: ContextRow | GenerationRow, column: DeviceColumn, span: tuple[int, int, int]
    ) -> None:
        """Hold what a row's drafter may read, from ``(base, length)`` and how far it trails, to the cold run."""
        base, end, lag = span
        begin = max(base * self.memory.page_size, column.life.read_from(end))
        first, last = self.models.first(column)
        kv, table = column.planes.pool.kv[first:last], column.table[row.slot]
        self.judged["SHADOW"] += max(0, end - begin)
        wrong = self._cold_of(row)[1].at(base).wrong(kv, table, begin, end, lag=lag, exact=self.models.exact)
        for one in wrong:
            page = one.page - FIRST_PAGE if one.page >= 0 else -1
            allowed = "the bits" if self.models.exact else f"within {NEAR_ROWS[kv.dtype]:.2g}"
            text = f"device: {column.life.name}: a row of the drafter's context is not the one of a cold run"
            found = f"layer {one.layer} errs by {one.error:.2g}"
            self._add(
                Violation("SHADOW", text, row.request_id, column.planes.name, page, one.position, plan.iteration,
                          f"{allowed} of the cold row", found)
            )  # fmt: skip

    # -- findings ------------------------------------------------------------------------------------------------

    def _tell(
        self, iteration: int, row: ContextRow | GenerationRow, position: int, expected: str, found: str, text: str
    ) -> None:
        """A token at ``position`` is wrong; the page is the target's cell whose logits chose it."""
        column = self.memory.target_columns[0]
        at = torch.tensor([row.slot], device=self.memory.device)
        page = int(column.page_at(column.table, at, torch.full_like(at, position - 1)))
        page = page - FIRST_PAGE if page >= 0 else -1
        self._add(
            Violation("LOSSLESS", text, row.request_id, column.planes.name, page, position, iteration, expected,
                      found)
        )  # fmt: skip

    def _add(self, violation: Violation) -> None:
        """Add a finding once for each request, pool and page."""
        key = (violation.code, violation.request, violation.pool, violation.page, violation.position)
        if key not in self._found:
            self._found.add(key)
            self.counts.findings.append(violation)


_AGAIN = "device: a second run of the same steps does not commit what the first one did"
_LOSSLESS = "device: a committed token is not the greedy choice of a cold run"
_BY_RULE = "device: a committed token is not what the rule gives from a cold run's logits and the same draws"
