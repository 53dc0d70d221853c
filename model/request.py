"""A request inside the engine: its cursor, what it has in flight, and the record that outlives it."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from model.config import RequestSpec
from model.rules.claim import Claim
from model.rules.keys import KeyView
from model.table import Table, TableRow
from model.tokens import TokenStream


class State(enum.Enum):
    """Life of a request; a preempted one goes back to WAITING with a longer context."""

    WAITING = "waiting"
    CONTEXT = "context"
    GENERATION = "generation"
    SENDING = "sending"  # prefilled here, to be decoded elsewhere: holds its pages until they were sent
    RECEIVING = "receiving"  # prefilled elsewhere, to be decoded here: its pages are on their way
    FINISHED = "finished"
    CANCELLED = "cancelled"
    SENT = "sent"


# Bound once: a member access costs ten times as much.
WAITING, CONTEXT, GENERATION, SENDING, RECEIVING, FINISHED, CANCELLED, SENT = State


@dataclass(slots=True)
class RequestRecord:
    """What a report needs of one request, in tokens and counts; kept after the request ended."""

    request_id: int
    conversation: int
    prompt_tokens: int
    cached_tokens: int = 0
    draft_cached_tokens: int = 0
    prefilled_tokens: int = 0
    recomputed_tokens: int = 0
    reclaimed_tokens: int = 0  # claimed again at re-admissions after a preemption
    received_tokens: int = 0  # target tokens that came from another worker
    output_tokens: int = 0
    spec_steps: int = 0
    accepted_drafts: int = 0
    drafted_tokens: int = 0
    preemptions: int = 0
    suspensions: int = 0
    claim_kind: str = "none"
    state: str = "waiting"
    claims: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Totals:
    """Counters of one engine, in tokens, rows and events."""

    iterations: int = 0
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    draft_cached_tokens: int = 0
    recomputed_tokens: int = 0
    reclaimed_tokens: int = 0
    received_tokens: int = 0
    output_tokens: int = 0
    context_rows: int = 0
    decode_rows: int = 0
    spec_steps: int = 0
    accepted_drafts: int = 0
    preemptions: int = 0
    suspensions: int = 0
    deferrals: int = 0
    admissions: int = 0
    refused_admissions: int = 0
    branch_windows: int = 0
    fresh_claims: int = 0
    joint_claims: int = 0
    partial_claims: int = 0
    fallbacks: int = 0
    skipped_forwards: int = 0
    failed_forwards: int = 0
    late_outputs: int = 0
    finished: int = 0
    cancelled: int = 0
    stores: int = 0  # copies to the host tier that landed
    loads: int = 0
    lost_copies: int = 0


class Request:
    """Working state of one live request. ``owner`` names this request in this epoch, in pools and memories."""

    __slots__ = (
        "claim",
        "context_length",
        "cursor",
        "draft_keys",
        "drafts_of",
        "first_in_flight",
        "generated",
        "grown",
        "hit_first",
        "hit_lost",
        "hit_used",
        "in_flight",
        "keys",
        "lag",
        "missing",
        "order",
        "owed",
        "owner",
        "pinned",
        "prompt_length",
        "reach",
        "received",
        "record",
        "rows",
        "spec",
        "started",
        "state",
        "stream",
        "tables",
    )

    def __init__(self, spec: RequestSpec, order: int, record: RequestRecord) -> None:
        self.spec = spec
        self.order = order  # arrival; kept over preemptions
        self.owner = -1
        self.record = record
        self.prompt_length = record.prompt_tokens
        self.stream: TokenStream | None = None
        self.keys: KeyView | None = None
        self.draft_keys: KeyView | None = None
        self.state = WAITING
        self.context_length = 0
        self.cursor = 0
        self.claim = Claim(0, fresh=False)
        self.started = False  # past the first chunk
        self.generated = 0  # output tokens settled, all epochs
        self.in_flight = 0  # generation rows dispatched and not settled
        self.reach = -1  # cursor of an admission that the token budget cut short
        self.tables: list[Table] = []  # of its sequences, one per column
        self.rows: tuple[TableRow, ...] = ()  # table rows as last told to a memory
        self.grown: deque[tuple[int, ...]] = deque()  # per generation row in flight, tokens grown per manager
        self.owed: list[int] = [0, 0]  # tokens of capacity to give back per manager, found suspended
        self.first_in_flight = False  # the chunk that samples a token is dispatched and not settled
        self.missing: int | None = None  # key of the first block it has to compute, as last seen
        self.drafts_of = -1  # owner in whose epoch the drafts for the next row were proposed; -1: none were
        self.pinned = False  # a transfer reads or writes its pages: they must stay
        self.lag = 0  # tokens by which its drafter slot trails since it was seeded
        self.received = -1  # base page of the drafter context that came from elsewhere; -1: it was not received
        self.hit_used = False  # a chunk of this epoch settled: what it claimed was there
        self.hit_first = False  # this epoch's claim is the one that counts as reuse
        self.hit_lost = False  # what the first claim found was lost before any chunk read it

    @property
    def request_id(self) -> int:
        """The client's id; may be used again after the request ended."""
        return self.spec.request_id

    def known_tokens(self) -> int:
        """Tokens settled so far, prompt included."""
        return self.prompt_length + self.generated

    def settled_position(self) -> int:
        """Cells that the target holds for settled tokens: all but the last known token's."""
        return self.prompt_length + self.generated - 1 if self.state is GENERATION else self.cursor


def longest_context(spec: RequestSpec) -> int:
    """Tokens that a request may have to prefill: all but the last one, if it is preempted when that is to come."""
    return len_prompt(spec) + spec.max_new_tokens - 1


def len_prompt(spec: RequestSpec) -> int:
    """Prompt length in tokens."""
    return sum(segment.length for segment in spec.prompt)
