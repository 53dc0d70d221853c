"""The agentic replay of the seeds at the size of a small pair: conversations behind shared system prompts.

A prompt is the one before it, the answer that the model really gave, and the text that goes on there. Answers come from
cold runs, turn by turn, so that every build is asked the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpu_backend.al.conditions import Condition, Hit, pasts
from gpu_backend.al.order import AGENTIC
from gpu_backend.al.pair import LoadedPair
from gpu_backend.al.prompts import Text

STAGES = 3  # turns of a conversation; there are as many requests as texts, if these are a multiple of it


def opening(pair: LoadedPair, texts: Sequence[Text], tokens: int) -> Condition:
    """First turns: a system prompt, which a fourth of the conversations share, and a message of their own."""
    page, span, hits = pair.page, pair.span, []
    for number in range(max(1, len(texts) // STAGES)):
        past = pasts(page)[number % 4]
        system = texts[number % 4 % len(texts)].ids[: pair.whole // 2 + past]
        message = texts[number].tail(number, span // 4 + number // 4 % 7, first=span)
        hits.append(Hit((*system, *message), system, past))
    return Condition(AGENTIC, tuple(hits), tokens)


def continued(
    pair: LoadedPair, condition: Condition, texts: Sequence[Text], answers: Sequence[Sequence[int]]
) -> Condition:
    """One more turn behind the last ones, which gave ``answers``; each message is as long as a page and a bit."""
    last = max(hit.stage for hit in condition.hits)
    turns = [hit for hit in condition.hits if hit.stage == last]
    more = []
    for number, (hit, answer) in enumerate(zip(turns, answers, strict=True)):
        text = texts[-1 - number].more(last * 2 * pair.page, pair.page + 1 + number % 3)
        past = len(hit.prompt) % pair.page or pair.page
        more.append(Hit((*hit.prompt, *answer, *text), hit.prompt, past, last + 1))
    return replace(condition, hits=(*condition.hits, *more))


def last_turns(condition: Condition) -> Condition:
    """The turns of the last stage alone, as if they were first ones."""
    last = max(hit.stage for hit in condition.hits)
    return replace(condition, hits=tuple(replace(hit, stage=0) for hit in condition.hits if hit.stage == last))
