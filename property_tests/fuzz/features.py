"""Which states a program reached, as counters. A campaign that reached none of some kind has not tested it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

from model.cluster import Cluster
from model.linkops import Abort, Arrive, Send
from model.ops import At, Op, Outcome, Submit, Warmup, World
from model.plan import Record, StepPlan
from model.request import Totals

WORK = frozenset(
    ("iterations", "prefilled_tokens", "output_tokens", "context_rows", "decode_rows", "admissions", "finished")
)
WORDS = {
    "cached_tokens": "hits",
    "draft_cached_tokens": "drafter hits",
    "recomputed_tokens": "recomputed tokens",
    "reclaimed_tokens": "claims of one's own pages",
    "received_tokens": "received tokens",
    "spec_steps": "verify rows",
    "accepted_drafts": "accepted drafts",
    "stores": "copies to the host",
    "loads": "copies from the host",
}
_TOTALS = {
    entry.name: WORDS.get(entry.name, entry.name.replace("_", " "))
    for entry in fields(Totals)
    if entry.name not in WORK  # every program does these: they are no states to reach
}
LINK = {Send: "transfers sent", Arrive: "transfers arrived", Abort: "transfers aborted"}
WORKERS = {"Fleet": "attention-DP programs", "RankGroup": "tensor-parallel programs", "Pair": "pair programs"}


def of_outcome(world: World | Cluster, outcome: Outcome, found: Counter[str]) -> None:
    """Add what the plans of one op show: copied partial pages, moves between the tiers, dummies."""
    if outcome.plan is not None:
        _of_plan(world.workers[0], outcome.plan, found)
    for worker, plan in zip(world.workers, outcome.plans, strict=False):
        if plan is not None:
            _of_plan(worker, plan, found)


def _of_plan(worker: World, plan: StepPlan, found: Counter[str]) -> None:
    for record in plan.records:
        if record[0] == Record.COPY:
            found["partial pages copied"] += 1
        elif record[0] == Record.MOVE:
            pools = list(worker.engine.twin.pools.values())
            found["moves to the host" if record[4] >= pools[record[1]].device_pages else "moves from the host"] += 1
    if plan.dummies:
        found["dummies"] += len(plan.dummies)


def of_program(world: World | Cluster, ops: Iterable[At | Op], found: Counter[str]) -> None:
    """Add what counters and ops of a whole program tell; tokens count as tokens, everything else by how often."""
    totals = world.totals()
    for name, word in _TOTALS.items():
        found[word] += getattr(totals, name)
    for use in world.occupancy():
        found[f"evictions from {use.name.partition('@')[0]}"] += use.evicted
        found["recycled pages"] += use.granted > use.device_pages
    for op in ops:
        inner = op.op if isinstance(op, At) else op
        if type(inner) in LINK:
            found[LINK[type(inner)]] += 1
        found["warm-ups"] += isinstance(inner, Warmup)
        found["plain requests"] += isinstance(inner, Submit) and not inner.spec.drafts
    if type(world).__name__ in WORKERS:
        found[WORKERS[type(world).__name__]] += 1
    found["programs from bytes of memory"] += world.config.memory is not None


def refused(op: At | Op, outcome: Outcome) -> bool:
    """Whether ``op`` was a request that the engine turned away."""
    return isinstance(op.op if isinstance(op, At) else op, Submit) and not outcome.applied
