"""The conditions under which a hit is compared with a cold run, as scenarios that the same requests go through.

Every condition serves requests by literal prompts: the cold run has block reuse off and nothing else that disturbs it,
the run on a hit publishes first and comes back later. All requests of a run come at once and run as one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_backend.al.order import (
    AGENTIC,
    BRANCH,
    CHUNKED,
    HOST_LOAD,
    LONG_TAIL,
    REPEAT,
    SHORT_TAIL,
    SUSPEND,
    TRANSFER,
    TWO_TURN,
    WHOLE,
)
from gpu_backend.al.pair import LoadedPair
from gpu_backend.al.predicted import HIT
from gpu_backend.al.prompts import Text
from model.geometry import cdiv
from model.tokens import Segment
from scenarios.errors import InputError
from scenarios.schema import Scenario
from scenarios.workload import Session, Turn, Workload

LATER_S, SHRINK_S = 2e6, 1e6  # simulated seconds after which nothing of what came before is left running
ALONE_S, MOST_CHUNKED = 1e3, 48  # seconds between publishers that are chunked, and most of them
PUBLISH = "publish"
EVERY_S, TURNS = 0.1, 6  # simulated seconds between two suspensions of a third of the requests, and how many there are


@dataclass(frozen=True, slots=True)
class Hit:
    """A request that is measured. ``publisher`` is the prompt it finds in the cache, ``past`` where its reuse ends:
    so many tokens past a page boundary, a whole page for on it."""

    prompt: tuple[int, ...]
    publisher: tuple[int, ...]
    past: int
    stage: int = 0  # those of a later stage come when all of the one before have ended


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: what it serves. ``hits`` are the same in the cold run."""

    name: str
    hits: tuple[Hit, ...]
    tokens: int  # that each hit generates

    @property
    def cold_name(self) -> str:
        """Conditions of one name here share their cold run."""
        return REPEAT if self.name in WHOLE else SHORT_TAIL if self.name == BRANCH else self.name

    @property
    def publishers(self) -> tuple[tuple[int, ...], ...]:
        """Prompts that are published, each once."""
        if self.name in (TRANSFER, AGENTIC):
            return ()
        return tuple(dict.fromkeys(hit.publisher for hit in self.hits))

    @property
    def batch(self) -> int:
        """Most requests that run at once."""
        stages = Counter(hit.stage for hit in self.hits)
        return max(*stages.values(), len(self.publishers))


def pasts(page: int) -> tuple[int, ...]:
    """Where reuse ends, by request in turn, in tokens past a page boundary; ``page`` itself lies on one."""
    return (1, page - 1, page, page + 1)


def text_length(pair: LoadedPair) -> int:
    """Tokens of text that the conditions need of each piece."""
    return pair.whole


def whole_prompts(pair: LoadedPair, texts: Sequence[Text], tokens: int, name: str = REPEAT) -> Condition:
    """Requests whose prompt is all there was: repeated, suspended, brought back from the host or transferred."""
    page = pair.page
    base = pair.whole - 2 * page
    hits = []
    for number, text in enumerate(texts):
        past = pasts(page)[number % 4]
        prompt = text.prompt(base + past + 1)  # the last token is always prefilled
        hits.append(Hit(prompt, prompt, past))
    return Condition(name, tuple(hits), tokens)


def first_turns(pair: LoadedPair, texts: Sequence[Text]) -> Condition:
    """First turns whose answers the second ones are built on."""
    page = pair.page
    base = pair.whole - pair.span - 2 * page
    prompts = [text.prompt(base + pasts(page)[number % 4]) for number, text in enumerate(texts)]
    hits = tuple(Hit(prompt, prompt, pasts(page)[number % 4]) for number, prompt in enumerate(prompts))
    return Condition(TWO_TURN, hits, page)


def two_turns(pair: LoadedPair, texts: Sequence[Text], answers: Sequence[Sequence[int]], tokens: int) -> Condition:
    """Second turns: the first prompt, the answer to it, and the text that goes on there; the first prompt is reused."""
    first, page, hits = first_turns(pair, texts), pair.page, []
    for text, turn, answer in zip(texts, first.hits, answers, strict=True):
        more = text.more(len(turn.prompt), page + 1)
        hits.append(Hit((*turn.prompt, *answer[:page], *more), turn.prompt, turn.past))
    return Condition(TWO_TURN, tuple(hits), tokens)


def shared_prefix(pair: LoadedPair, texts: Sequence[Text], tokens: int, name: str) -> Condition:
    """Requests in groups that share a prefix; their tails are other texts, shorter or longer than the span."""
    page, span, count = pair.page, pair.span, len(texts)
    groups = min(count, 4 * max(1, cdiv(count, 4 * 24)))  # fewer members than siblings that a partial match may have
    length = span + span // 4 if name == LONG_TAIL else span // 4
    others = span + span // 2 if name == BRANCH else span // 4  # of the publisher's own
    hits = []
    for group in range(groups):
        past = pasts(page)[group % 4]
        prefix, members = texts[group].ids[: pair.whole // 2 + past], range(group, count, groups)
        tails = [texts[number].tail(number, length + number // groups % 7) for number in members]
        publisher = (*prefix, *_unlike(texts[group - 1].ids, others, {tail[0] for tail in tails}))
        hits += [(number, Hit((*prefix, *tail), publisher, past)) for number, tail in zip(members, tails, strict=True)]
    return Condition(name, tuple(hit for _, hit in sorted(hits, key=lambda one: one[0])), tokens)


def chunk_size(pair: LoadedPair) -> int:
    """Tokens of a pass of :func:`chunked`, and so of a chunk: as few as let a prompt end, if the drafter looks ahead.

    What stands at one chunk's end is one cell among many; chunks are as short where most of a pass is other requests'.
    """
    return pair.drafts + pair.lookahead + 1 if pair.lookahead else chunk_end(pair)


def chunk_end(pair: LoadedPair) -> int:
    """Where the last chunk but one of every publisher of :func:`chunked` ends, near a span's end."""
    if not pair.lookahead:
        return pair.whole - 2 * pair.page
    size = pair.drafts + pair.lookahead + 1
    return (pair.span - 2 * pair.page) // size * size


def chunked(pair: LoadedPair, texts: Sequence[Text], tokens: int) -> Condition:
    """Prompts of which all but the last token was published, by a request that goes on with another token.

    Its last chunk but one ends a lookahead below that token. So the newest cells that a hit reuses are those that a
    chunk's end wrote, and the publisher's cells behind them know of its own last token, which is not the hit's.
    """
    end = chunk_end(pair) + pair.lookahead
    hits = []
    for text in texts[: MOST_CHUNKED if pair.lookahead else None]:
        prompt = text.prompt(end + 1)
        other = next(token for token in text.ids if token != prompt[-1])
        hits.append(Hit(prompt, (*prompt[:-1], other), end % pair.page or pair.page))
    return Condition(CHUNKED, tuple(hits), tokens)


def _unlike(ids: tuple[int, ...], length: int, firsts: set[int]) -> tuple[int, ...]:
    """The publisher's own tail: it parts from the others' at its first token, so that reuse ends there. It is as long
    as the text has tokens for."""
    length = min(length, len(ids) - 1)
    places = range(len(ids) - length, 0, -1)
    first = next((place for place in places if ids[place] not in firsts), places[0])
    return ids[first : first + length]


# -- as scenarios ------------------------------------------------------------------------------------------------


def cold(pair: LoadedPair, condition: Condition, *, seed: int = 0) -> Scenario:
    """The hits of ``condition`` with block reuse off, on one worker, undisturbed."""
    return _scenario(pair, condition, f"{condition.cold_name} cold", (), seed, {"policy": "none"})


def warm(pair: LoadedPair, condition: Condition, *, seed: int = 0) -> Scenario:
    """The hits of ``condition`` as it says, behind what they find in the cache."""
    more: dict[str, Any] = {}
    if condition.name == SUSPEND:
        first, count = len(condition.publishers), len(condition.hits)
        more["disturbances"] = [
            {"at_s": LATER_S + (turn + 1) * EVERY_S, "action": "suspend", "request": first + place}
            for turn in range(TURNS)
            for place in range(turn % 3, count, 3)
        ]
    elif condition.name == HOST_LOAD:
        more["disturbances"] = [{"at_s": SHRINK_S, "action": "shrink", "pool": pool, "pages": 0} for pool in POOLS]
    elif condition.name == BRANCH:
        more["policy"] = "per_conversation"
    elif condition.name == TRANSFER:
        more["workers"] = {"kind": "disaggregated"}
    return _scenario(pair, condition, condition.name, condition.publishers, seed, more)


POOLS = ("target", "draft")


def _scenario(
    pair: LoadedPair,
    condition: Condition,
    name: str,
    publishers: Sequence[tuple[int, ...]],
    seed: int,
    more: dict[str, Any],
) -> Scenario:
    drafts, page, hits = pair.drafts, pair.page, condition.hits
    ahead = condition.tokens + 3 * (drafts + 1)
    longest = max(len(hit.prompt) for hit in hits) + ahead
    longest = max(longest, *(len(prompt) + ahead for prompt in publishers)) if publishers else longest
    chunks = condition.name == CHUNKED and bool(publishers)
    budget = chunk_size(pair) if chunks else _budget(pair, condition, longest, more)
    batch = min(condition.batch, budget // (1 + drafts)) if chunks else condition.batch
    if longest > pair.target.config.positions:
        problem = f"expected at most {pair.target.config.positions} positions, which the weights have, found {longest}"
        raise InputError("al", 0, "tokens", f"{problem} under {condition.name}")
    pages = 2 * (len(hits) + len(publishers)) * (cdiv(longest, page) + 2)  # a build may have one pool for both
    kept = 2 * len(publishers) * (cdiv(longest, page) + 2)
    host = {"host_pages": kept} if condition.name == HOST_LOAD and publishers else {}
    values = {
        "name": name,
        "seed": seed,
        **pair.engine(),
        "limits": {
            "page_size": page,
            "max_batch": batch,
            "max_num_tokens": budget,
            "max_seq_len": longest,
            "extra_tokens": drafts + 1,  # a block is one token longer than its drafts
            "graph_batches": sorted({cdiv(batch, 4), batch}),  # requests end one after the other
            "partial_children": 64,
            # All hits start before the first steps fill a pass; a chunk ends on any token.
            **({"chunk_unit": 1} if chunks or condition.name == SUSPEND else {}),
        },
        "pools": {pool: {"device_pages": pages, **host} for pool in POOLS},
        "workload": {"sessions": [{"prompt": 1, "output": 1}]},
        **more,
    }
    alone_s = ALONE_S if chunks else 0.0  # then each has every pass to itself, and so the chunks that are meant
    sessions = [
        Session(f"{PUBLISH} {place}", (_turn(prompt, 1, place * alone_s),), arrival_s=place * alone_s)
        for place, prompt in enumerate(publishers)
    ]
    later = LATER_S if publishers else 0.0
    for place, hit in enumerate(hits):
        at_s = later + hit.stage * LATER_S
        sessions.append(Session(f"{HIT} {place}", (_turn(hit.prompt, condition.tokens, at_s),), arrival_s=at_s))
    return Scenario.model_validate(values).serving(Workload(tuple(sessions)))


def _budget(pair: LoadedPair, condition: Condition, longest: int, more: dict[str, Any]) -> int:
    """Tokens of one pass. Suspended requests are absent for a while, since others fill it: half of the rows fit."""
    if condition.name == SUSPEND and "disturbances" in more:
        return (1 + pair.drafts) * max(1, len(condition.hits) // 2)
    return max(4 * longest, 1 << 15) if pair.device.type == "cuda" else 4 * longest


def _turn(prompt: tuple[int, ...], tokens: int, at_s: float) -> Turn:
    return Turn((Segment.of(prompt),), tokens, at_s=at_s)
