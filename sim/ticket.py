"""One request as its client sees it: when it was sent, when its tokens came, how many each step brought."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import pairwise

from simpy import Event


class Ticket:
    """A request in the simulation. Times are integer nanoseconds of the simulated clock; -1: has not happened.

    ``arrivals`` holds the time of each settled step that brought tokens and ``counts`` how many it brought;
    ``accepted`` what each verify step of real drafts committed, the last one whole even where the output limit cut
    it. ``done`` fires when the request ends in any way.
    """

    __slots__ = (
        "accepted",
        "arrivals",
        "block",
        "counts",
        "coverage",
        "coverage_first",
        "coverage_sum",
        "done",
        "finish_ns",
        "key",
        "pending",
        "refused",
        "request_id",
        "session",
        "shared",
        "submit_ns",
        "turn",
    )

    def __init__(self, request_id: int, key: int, session: str, turn: int, submit_ns: int, done: Event) -> None:
        self.request_id = request_id
        self.key = key  # names the request to the acceptance model
        self.session = session
        self.turn = turn
        self.submit_ns = submit_ns
        self.finish_ns = -1
        self.arrivals = array("q")
        self.counts = bytearray()
        self.accepted = bytearray()
        self.shared = 0  # tokens of the prompt that an earlier prompt began with
        self.refused = ""  # why the engine did not take it
        self.pending = 0  # drawn for the step that is being settled
        self.block = b""  # draws of the steps from floor(len(accepted), BLOCK) on
        self.coverage = 1.0  # of the drafter's window, likewise
        self.coverage_first = -1.0
        self.coverage_sum = 0.0
        self.done = done

    def timing(self) -> RequestTiming:
        """The finished record of this request."""
        return RequestTiming(
            self.request_id,
            self.session,
            self.turn,
            self.submit_ns,
            self.finish_ns,
            self.arrivals,
            bytes(self.counts),
            bytes(self.accepted),
            self.coverage_first,
            self.coverage_sum,
            self.shared,
        )


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """Latencies of one request, all from integer nanoseconds.

    ``arrivals`` and ``counts`` have one entry per settled step that brought tokens, ``accepted`` one per verify step
    of real drafts. ``turn`` counts from 0 within ``session``; later turns are continuations. ``coverage_first`` is the
    share of the drafter's window that was valid at the first verify step of real drafts (-1: there was none) and
    ``coverage_sum`` the sum of it over all of them, from a look at every eighth where the acceptance is blind to it.
    ``shared``: tokens at the front of the prompt that one sent before began with.
    """

    request_id: int
    session: str
    turn: int
    submit_ns: int
    finish_ns: int
    arrivals: array[int]
    counts: bytes
    accepted: bytes
    coverage_first: float
    coverage_sum: float
    shared: int = 0

    def uncovered(self) -> RequestTiming:
        """This record where nobody looked at the drafter's window: no coverage is known (both fields are -1)."""
        return replace(self, coverage_first=-1.0, coverage_sum=-1.0)

    @property
    def covered(self) -> bool:
        """Whether the coverage of the drafter's window is known of some verify step."""
        return self.coverage_first >= 0.0

    @property
    def tokens(self) -> int:
        """Output tokens that reached the client."""
        return sum(self.counts)

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token, from submission; None if no token came."""
        return self.arrivals[0] - self.submit_ns if self.arrivals else None

    @property
    def second_token_ns(self) -> int | None:
        """Time from the first token to the second (AIPerf's TTST); 0 if one step brought both; None if none came."""
        if self.tokens < 2:
            return None
        return 0 if self.counts[0] > 1 else self.arrivals[1] - self.arrivals[0]

    @property
    def e2e_ns(self) -> int | None:
        """Time from submission to the last token; None if no token came."""
        return self.arrivals[-1] - self.submit_ns if self.arrivals else None

    @property
    def itl_ns(self) -> float | None:
        """Mean inter-token latency, ``(e2e - ttft) / (tokens - 1)`` (AIPerf; also called TPOT); None below 2 tokens."""
        tokens = self.tokens
        return (self.arrivals[-1] - self.arrivals[0]) / (tokens - 1) if tokens > 1 else None

    @property
    def gaps_ns(self) -> list[int]:
        """Times between steps that brought tokens (AIPerf's inter-chunk latency)."""
        return [after - before for before, after in pairwise(self.arrivals)]
