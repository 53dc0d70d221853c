"""``story.txt`` of a failure: a line an op in fixed columns, an arrow at the op that broke the law, the law last.

Many laws are judged later than what breaks them came about: the op that sent out the step has an arrow then, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from model.invariants import Violation
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Land, Lose, Op, Settle, Shrink, Submit, Suspend, Warmup
from model.request import len_prompt
from reports.document import violation_document
from reports.sentences import granted, published, sentence
from reports.story import headline
from sim.crashes import CRASH
from sim.sampling import Happening, Sample, Standing

_SILENT = ("iteration", "unbind")  # what the columns say already


def story(samples: Sequence[Sample], violation: Violation) -> str:
    """The text: a heading, the ops, the law."""
    pools = list(samples[0].free) if samples else []
    several = any("@" in pool for pool in pools)
    heading = ["op", "iter", *(["worker"] if several else []), "what came in", "request", "target", "draft"]
    rows = [[*heading, *(f"free {pool}" for pool in pools), "what happened (target and draft: history/pages)"]]
    made = made_at(samples, violation)
    for sample in samples:
        rows += _rows(sample, pools, several, violation_document(violation), made)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]
    return "\n".join([*lines, headline(violation_document(violation)) + noticed(samples, violation)]) + "\n"


def noticed(samples: Sequence[Sample], violation: Violation) -> str:
    """Where the law was seen to be broken, by the op's number in the story; nothing where no op shows it.

    Before it, where the broken step was made, if that was an earlier op.
    """
    found = next((sample for sample in samples if _shows(sample, violation)), None)
    if found is None:
        return ""
    made = made_at(samples, violation)
    where = "" if made is None else f"made at op {made}, "
    return f"; {where}noticed at " + ("the end of the run" if found.op is None else f"op {found.number}")


def made_at(samples: Sequence[Sample], violation: Violation) -> int | None:
    """Number of the op that sent out the step of ``violation`` with its request; ``None`` where no earlier op did.

    Steps count from 0, and a worker's iteration is the number of those that it sent out.
    """
    steps: dict[int, int] = {}
    made = None
    for sample in samples:
        if _shows(sample, violation):
            return made
        worker = sample.op.worker if isinstance(sample.op, At) else 0
        sent = range(steps.get(worker, 0), sample.iteration)
        steps[worker] = sample.iteration
        of_worker = not isinstance(sample.op, At) or violation.worker in (-1, worker)
        of_request = violation.request < 0 or any(one.request == violation.request for one in sample.happenings)
        if violation.step in sent and of_worker and of_request:
            made = sample.number
    return None


def _shows(sample: Sample, violation: Violation) -> bool:
    return any(one.code == violation.code for one in sample.violations)


def _rows(
    sample: Sample, pools: list[str], several: bool, violation: dict[str, Any], made: int | None
) -> Iterator[list[str]]:
    """The line of an op, and one below it for each further request that it moved."""
    if sample.op is None and not (sample.violations or sample.happenings):
        return
    told = _told(sample, violation)
    broken = any(one.code == violation["code"] for one in sample.violations)
    arrow = f"  <-- {violation['code']}" if broken else "  <-- made here" if sample.number == made else ""
    for place, ((worker, request), words) in enumerate(told):
        standing = _standing(sample, worker, request)
        first = place == 0
        shown = str(worker) if worker is not None and worker >= 0 else ""
        yield [
            str(sample.number) if first and sample.op is not None else "",
            str(sample.iteration) if first else "",
            *([shown] if several else []),
            op_words(sample.op) if first else "",
            "" if request is None else str(request),
            _lengths(standing, draft=False),
            _lengths(standing, draft=True),
            *(str(sample.free[pool]) if first else "" for pool in pools),
            f"{words}{arrow}".lstrip() if first else words,
        ]


def _told(sample: Sample, violation: dict[str, Any]) -> list[tuple[tuple[int | None, int | None], str]]:
    """What an op did by (worker, request), in the order in which it began."""
    about: dict[tuple[int | None, int | None], list[Happening]] = {}
    for happening in sample.happenings:
        about.setdefault((happening.worker, happening.request), []).append(happening)
    lines = [(key, text) for key, found in about.items() if (text := "; ".join(_sentences(found, sample, violation)))]
    whose = _request_of(sample.op)
    worker = sample.op.worker if isinstance(sample.op, At) else None
    if not sample.outcome.applied:
        how = "crashed" if any(one.code == CRASH for one in sample.violations) else "not applied"
        return [((worker, whose), f"{how}: {sample.outcome.why}"), *lines]
    if whose is not None:
        lines.sort(key=lambda line: line[0][1] != whose)
    return lines or [((worker, whose), "the end of the run" if sample.op is None else "")]


def _sentences(happenings: list[Happening], sample: Sample, violation: dict[str, Any]) -> Iterator[str]:
    for kind, group in groupby(happenings, lambda happening: happening.kind):
        events = [{**happening.fields, "iteration": sample.iteration} for happening in group]
        if kind == "grant":
            yield granted(events, violation)
        elif kind == "publish":
            yield published(events, violation)
        elif kind not in _SILENT:
            yield from filter(None, (sentence(event, violation) for event in events))


def _standing(sample: Sample, worker: int | None, request: int | None) -> Standing | None:
    for standing in sample.standings:
        if standing.request == request and worker in (None, standing.worker):
            return standing
    return None


def _lengths(standing: Standing | None, draft: bool) -> str:
    """``history/pages`` of the first lifecycle of one side, pages of all of them."""
    lanes = [lane for lane in standing.lanes if lane.draft == draft] if standing else []
    return f"{lanes[0].frontier}/{sum(len(lane.blocks) for lane in lanes)}" if lanes else ""


def op_words(op: At | Op | None) -> str:
    """An op as few words: ``submit 1 (12+4)``, ``settle 3,1``, ``end``."""
    if op is None:
        return "end"
    if isinstance(op, At):
        return f"{op_words(op.op)} @{op.worker}"
    name = type(op).__name__.lower()
    if isinstance(op, Submit):
        return f"{name} {op.spec.request_id} ({len_prompt(op.spec)}+{op.spec.max_new_tokens})"
    if isinstance(op, Settle):
        return f"{name} {','.join(map(str, op.accepted)) or '-'}"
    if isinstance(op, Dispatch):
        return f"{name}, skipped" if op.skip else name
    if isinstance(op, Cancel | Suspend | Send | Arrive):
        return f"{name} {op.request_id}"
    if isinstance(op, Abort):
        return f"{name} {op.request_id}{', recompute' if op.recompute else ''}"
    if isinstance(op, Land | Lose):
        return f"{name} {op.copy}"
    if isinstance(op, Shrink):
        return f"{name} {op.pool} {op.pages}"
    if isinstance(op, Warmup):
        return f"{name} {op.batch}x{op.tokens}"
    return name


def _request_of(op: At | Op | None) -> int | None:
    """The request that an op names."""
    plain = op.op if isinstance(op, At) else op
    if isinstance(plain, Submit):
        return plain.spec.request_id
    return plain.request_id if isinstance(plain, Cancel | Suspend | Send | Arrive | Abort) else None
