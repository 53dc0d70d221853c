"""Requests: lengths at the edges of pages, windows and chunks, prompts that share starts and part right behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.config import EngineConfig, RequestSpec, Scope
from model.request import len_prompt
from model.tokens import Segment
from property_tests.fuzz.choices import Choices
from property_tests.fuzz.generate.mix import REUSE, Mix

SCOPES = (
    Scope(),
    Scope(salt="s"),
    Scope(adapter="a"),
    Scope(target_weights=1),
    Scope(draft_weights=1),
    Scope(salt="a"),
    Scope(adapter="s"),
)
OUTPUT_STREAMS = 1000  # the output of request i is stream 1000 + i
NESTED = 15  # percent of prompts that part from another one and say nothing of their own
OWN_STREAMS = 10  # tokens of request i alone begin stream 10 + i


@dataclass(frozen=True, slots=True)
class Edges:
    """Lengths in tokens at which something changes, and the longest prompt."""

    page: int
    window: int
    chunk: int
    longest: int

    @classmethod
    def of(cls, config: EngineConfig) -> Edges:
        """The edges of an engine; a window of none counts as one of a page."""
        page = config.limits.page_size
        longest = min(6 * page + 6, 44) if page < 64 else 3 * 8192
        chunk = min(config.limits.max_num_tokens, longest)
        return cls(page, config.drafter.window or page, chunk, longest)


def length(choices: Choices, edges: Edges) -> int:
    """A prompt length: at an edge, or a token beside it."""
    kind = choices.weighted((6, 3, 2, 2))
    pages = choices.between(1, 5) * edges.page
    base = (pages, edges.window + pages - edges.page, edges.chunk, choices.between(1, edges.longest))[kind]
    return max(1, min(edges.longest, base + choices.pick((0, 1, -1))))


def cut(prompt: Sequence[Segment], tokens: int) -> tuple[Segment, ...]:
    """The first ``tokens`` tokens of ``prompt``."""
    kept: list[Segment] = []
    for run in prompt:
        if tokens <= 0:
            break
        if run.length > tokens:
            run = Segment.of(run.literal[:tokens]) if run.literal else run._replace(length=tokens)
        kept.append(run)
        tokens -= run.length
    return tuple(kept)


def parting(choices: Choices, mix: Mix, edges: Edges, most: int, seam: int) -> int:
    """Where a prompt leaves another one of ``most`` tokens: at a page end, beside it, in the middle, at its end.

    Or at the ``seam``, where that one's own tokens begin: both part from a third prompt there, if it did so itself.
    """
    page = edges.page
    kind = choices.weighted(mix.parting)
    full = choices.between(1, max(1, most // page)) * page
    base = (full + choices.pick((0, 1, -1)), most - choices.below(2), full - page + choices.below(page), seam)[kind]
    return max(1, min(most, base))


def spec(choices: Choices, mix: Mix, config: EngineConfig, earlier: Sequence[RequestSpec]) -> RequestSpec:
    """The next request behind ``earlier`` ones."""
    edges, number = Edges.of(config), len(earlier) + 1
    relation = REUSE[choices.weighted(mix.reuse)] if earlier else "fresh"
    conversation = number
    own = Segment(OWN_STREAMS + number, max(1, length(choices, edges)), first=number)
    if relation == "fresh":
        prompt: tuple[Segment, ...] = (own,)
    else:
        other = earlier[choices.below(len(earlier))]
        total = len_prompt(other)
        tail = own._replace(
            length=min(own.length, choices.pick((edges.page, 1, edges.window, 2, 2 * edges.page, edges.longest)))
        )
        if relation == "repeat":
            prompt = other.prompt
        elif relation == "part":
            prompt = cut(other.prompt, parting(choices, mix, edges, total, total - other.prompt[-1].length))
            prompt = prompt if choices.chance(NESTED) else (*prompt, tail)
        else:
            said = Segment(other.output_seed, choices.between(1, max(1, other.max_new_tokens)))
            prompt, conversation = (*other.prompt, said, tail), other.conversation
        prompt = cut(prompt, edges.longest + 2 * edges.page)
    output = choices.pick((4, 9, 6, 14, 2, 20) if choices.chance(mix.chatty) else (2, 1, 3, 4, 6))
    scope = SCOPES[choices.below(len(SCOPES))] if choices.chance(mix.scopes) else Scope()
    priority = choices.pick((0, 0, 0, 1, -1))
    drafts = not choices.chance(mix.plain)
    return RequestSpec(number, prompt, output, OUTPUT_STREAMS + number, conversation, scope, priority, drafts)


def workload(choices: Choices, mix: Mix, config: EngineConfig) -> tuple[RequestSpec, ...]:
    """A few requests."""
    specs: list[RequestSpec] = []
    for _ in range(choices.pick(mix.requests)):
        specs.append(spec(choices, mix, config, specs))
    return tuple(specs)
