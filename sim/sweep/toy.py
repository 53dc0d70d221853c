"""Toy engines and requests that grids are made of: a few pages of a few tokens, and prompts that part where told."""

from __future__ import annotations

from dataclasses import dataclass

from model.config import Drafter, EngineConfig, Limits, PoolSize, PublishPolicy, RequestSpec
from model.drafter import KINDS
from model.geometry import Lifecycle
from model.ops import Submit
from model.tokens import Segment

ROOMY = 96  # device pages of a pool in which nothing is ever short
OURS, THEIRS = 1, 2  # first ids of the runs with which two prompts part, so that they differ there at once


@dataclass(frozen=True, slots=True)
class Toy:
    """One engine in few words; sizes are tokens, pages and requests as in :class:`EngineConfig`.

    ``unit`` and ``sinks`` default to one page and none; ``swa`` gives the target a second, windowed lifecycle.
    """

    page: int = 4
    kind: str = "dspark"
    drafts: int = 2
    chain: int = 1
    window: int | None = 6
    sinks: int = 0
    swa: int | None = None
    unit: int = 0
    budget: int = 64
    batch: int = 4
    extra: int = 0
    run_ahead: int = 1
    chunked: bool = True
    policy: PublishPolicy = PublishPolicy.ALL_REUSABLE
    turns: int = 1
    host: int = 0
    gate: float = 0.97  # use of a pool above which nobody resumes
    vocabulary: int = 4096

    def config(self) -> EngineConfig:
        """The engine's configuration with roomy pools."""
        target = [Lifecycle("full", "target", "target")]
        if self.swa is not None:
            target.append(Lifecycle("swa", "target", "target", self.swa))
        draft = ()
        if KINDS[self.kind].has_pool:
            draft = (Lifecycle("draft", "draft", "draft", self.window, self.sinks if self.window else 0),)
        pools = dict.fromkeys((life.pool for life in (*target, *draft)), PoolSize(ROOMY, self.host))
        return EngineConfig(
            target=tuple(target),
            draft=draft,
            drafter=Drafter(self.kind, self.drafts, self.window, self.chain),
            limits=Limits(
                page_size=self.page,
                max_batch=self.batch,
                max_num_tokens=self.budget,
                max_seq_len=96,
                chunk_unit=self.unit or self.page,
                chunked_prefill=self.chunked,
                extra_tokens=self.extra,
                run_ahead=self.run_ahead,
                max_util_for_resume=self.gate,
                stall_passes=60,
            ),
            pools=pools,
            policy=self.policy,
            max_num_turns=self.turns,
            vocabulary=self.vocabulary,
        )


def ask(request_id: int, *runs: Segment, output: int = 2, conversation: int = -1, drafts: bool = True) -> Submit:
    """A request whose prompt is ``runs``, empty ones left out."""
    prompt = tuple(run for run in runs if run.length)
    return Submit(RequestSpec(request_id, prompt, output, 900 + request_id, conversation, drafts=drafts))


def shared(tokens: int, stream: int = 1) -> Segment:
    """The first ``tokens`` of a stream that several prompts begin with."""
    return Segment(stream, tokens)


def own(request_id: int, tokens: int) -> Segment:
    """Tokens of one request alone; runs of different requests differ from their first token on."""
    return Segment(50 + request_id, tokens, first=OURS + request_id)


def said(publisher: int, tokens: int) -> Segment:
    """The first ``tokens`` of a request's output, as the next turn of its conversation repeats them."""
    return Segment(900 + publisher, tokens)


def literal(*ids: int) -> Segment:
    """Exactly these token ids."""
    return Segment.of(ids)
