"""What an engine is told before it starts: drafter, limits, pools. Plain values, checked by the scenario loader."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from model.geometry import Lifecycle
from model.tokens import Segment


class PublishPolicy(enum.StrEnum):
    """When the context of a request becomes reusable by others."""

    ALL_REUSABLE = "all_reusable"  # every full block, after every chunk
    PER_REQUEST = "per_request"  # at the end of the context, pages live there
    PER_CONVERSATION = "per_conversation"  # likewise, the last endpoints of a conversation
    NONE = "none"  # block reuse off: nothing is looked up or published


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Pages of one pool group: on the device and in the host tier."""

    device_pages: int
    host_pages: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank that the pools were split from, for whoever judges the split.

    ``page_bytes`` lists the bytes of a page pool by pool. ``given_share``: the drafter's pages were set by hand.
    """

    device: int
    host: int
    page_bytes: tuple[tuple[str, int], ...]
    given_share: bool = False


@dataclass(frozen=True, slots=True)
class Drafter:
    """The drafter that a scenario runs: its kind (a key of ``model.drafter.KINDS``), depth and window.

    ``drafts`` is K, the drafts verified per generation step; ``chain`` the number of chained modules of an MTP
    drafter (its lookahead); ``window`` the drafter's attention window in tokens, ``None`` for full attention.
    """

    kind: str
    drafts: int
    window: int | None = None
    chain: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one engine, in tokens, pages and requests."""

    page_size: int
    max_batch: int
    max_num_tokens: int
    max_seq_len: int
    chunk_unit: int
    chunked_prefill: bool = True
    extra_tokens: int = 0  # X: KV headroom past the drafts, in both pools
    max_util_for_resume: float = 0.97
    run_ahead: int = 1  # iterations dispatched before the oldest is settled: 1 is the overlap scheduler
    stall_passes: int = 1000  # passes without progress before the deadlock detector speaks
    partial_children: int = 32  # no partial match among this many children or more
    deferral: bool = True
    graph_batches: tuple[int, ...] = ()  # batch sizes of captured graphs, ascending; none: rows are never padded

    def __post_init__(self) -> None:
        if self.run_ahead not in (0, 1):
            raise ValueError(f"run_ahead is 0 or 1, found {self.run_ahead}")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything but the rules. ``target`` lists the target's lifecycles, ``draft`` the drafter's, as configured.

    A layout may change the draft lifecycles' policy and trail; ``pools`` names a size for each lifecycle's pool,
    ``memory`` what they were split from, unless they were given in pages.
    """

    target: tuple[Lifecycle, ...]
    draft: tuple[Lifecycle, ...]
    drafter: Drafter
    limits: Limits
    pools: dict[str, PoolSize]
    policy: PublishPolicy = PublishPolicy.ALL_REUSABLE
    max_num_turns: int = 1
    vocabulary: int = 200_064
    tensor_parallel: int = 1
    memory: Memory | None = None
    asynchronous_copies: bool = False  # changes of tier take time, see model.copies


@dataclass(frozen=True, slots=True)
class Scope:
    """The typed fields beside the tokens that a page's content depends on."""

    adapter: str = ""
    salt: str = ""
    target_weights: int = 0
    draft_weights: int = 0


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request as submitted: ``prompt`` as segments, ids of its output named by ``output_seed``.

    ``drafts`` off: it runs without the drafter, one token a step, beside requests that draft. ``output``: the first ids
    of its output where they are recorded, as natural acceptance leaves them.
    """

    request_id: int
    prompt: tuple[Segment, ...]
    max_new_tokens: int
    output_seed: int
    conversation: int = -1
    scope: Scope = field(default_factory=Scope)
    priority: int = 0
    drafts: bool = True
    output: tuple[int, ...] = ()
