"""Figures of what a request claims: X5 to X12, X14, X17, each from its scenario."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from model.builds import BUILDS, Build
from model.drafter import SlotState
from model.geometry import Lifecycle
from model.rules.claim import Claim, ClaimView
from model.rules.promise import Holdings, Promise
from model.rules.slots import Slots
from reports.figures.base import Figure, Part, Runs, exact, same, within
from scenarios.engine_schema import PolicySpec
from sim.result import RunResult

LAYOUTS = ("paired-22", "unified-page", "unified")


def _cached(result: RunResult, requests: Iterable[int]) -> list[int]:
    return [result.records[request].cached_tokens for request in requests]


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _repeat(runs: Runs) -> list[Part]:
    parts = []
    for build, how, repeat, turn in (("unified", "partial", 8268, 20220), ("unified-page", "page", 8192, 20096)):
        cached = {name: _cached(runs.run(name, build), [1])[0] for name in ("x05_repeat", "x05_two_turn")}
        parts.append(exact(f"repeat of 8,269, {how} endpoint: cached", repeat, cached["x05_repeat"]))
        parts.append(exact(f"turn after 20,220, {how} endpoint: cached", turn, cached["x05_two_turn"]))
    return parts


def _repeated_prefill(runs: Runs) -> list[Part]:
    found = {build: runs.run("x06", build).records[1].prefilled_tokens for build in ("unified", "unified-page")}
    return [
        exact("prefilled with a partial endpoint", 1, found["unified"]),
        exact("prefilled at a page boundary, worst case", 128, found["unified-page"]),
    ]


def _short_tails(runs: Runs) -> list[Part]:
    hits = {build: _cached(runs.run("x07", build), range(1, 7)) for build in LAYOUTS}
    return [exact(f"{build}: mean of 6 hits", 12_416, _mean(hits[build])) for build in LAYOUTS]


def _short_tails_reusable(runs: Runs) -> list[Part]:
    hits = {build: _cached(runs.run("x08", build), range(1, 7)) for build in LAYOUTS}
    return [
        exact("unified at a page boundary", 16_512, _mean(hits["unified-page"])),
        exact("unified with the partial endpoint", 16_570, _mean(hits["unified"])),
        exact("paired: the first hit", 12_416, hits["paired-22"][0]),
        exact("paired: the other five", 16_570, _mean(hits["paired-22"][1:])),
        exact("paired: mean of six", 15_877.67, round(_mean(hits["paired-22"]), 2)),
    ]


def _long_tails(runs: Runs) -> list[Part]:
    return [exact(build, 16_570, _mean(_cached(runs.run("x09", build), range(1, 4)))) for build in LAYOUTS]


def _branch_point(runs: Runs) -> list[Part]:
    records = runs.run("x10", "paired-22").records
    return [
        exact("first branch: claimed", 26_496, records[1].cached_tokens),
        exact("first branch: prefilled", 4_397, records[1].prefilled_tokens),
        exact("later: claimed in the target's pool", 30_600, _mean([record.cached_tokens for record in records[2:]])),
        exact("later: in the drafter's", 30_600, _mean([record.draft_cached_tokens for record in records[2:]])),
        exact("requests that recompute a window", 1, sum(record.cached_tokens == 26_496 for record in records)),
    ]


def _long_prompts(runs: Runs) -> list[Part]:
    legacy, history = (runs.run("x11", build) for build in ("mirror-legacy", "mirror-21281"))
    said = next((one.message for one in legacy.violations if "131015" in one.message), "nothing of 131015 tokens")
    words = "could not resize to 131015 tokens"
    return [
        same("the legacy view says", words, words if words in said else said),
        exact("with history: prompts of 131,000, 262k and 524k served", 3, history.totals.finished),
        same("with history: laws broken", "none", ", ".join(history.codes) or "none"),
    ]


def _transferred(runs: Runs) -> list[Part]:
    history, legacy = (runs.run("x12", build) for build in ("mirror-21281", "mirror-legacy"))
    (peak,) = (pool.peak for pool in history.occupancy if pool.name == "draft@1")
    return [
        exact("with history: output tokens of the request", 256, history.totals.output_tokens),
        same("with history: laws broken", "none", ", ".join(history.codes) or "none"),
        within("with history: drafter pages at most, of 64", "a window", peak, 32, 35),
        same("without: first law broken", "ADMIT", legacy.violations[0].code if legacy.violations else "none"),
    ]


def _lookahead(runs: Runs) -> list[Part]:
    parts = []
    for depth in range(4):
        branch, repeat = _cached(runs.run(f"x14_d{depth}", "unified"), (1, 2))
        parts.append(exact(f"D = {depth}: common prefix of 13", 13 - depth, branch))
        parts.append(exact(f"D = {depth}: repeat of 21", 21 - max(depth, 1), repeat))
    return parts


@dataclass(frozen=True, slots=True)
class _Unfloored:
    """The fresh claim as a bare limit, ``extra`` tokens further: the memory shows from where on it is unsafe."""

    extra: int
    name: str = "unfloored"

    def decide(self, view: ClaimView) -> Claim:
        return Claim(min(view.target, view.length + 1 - (view.window or 0) + self.extra), fresh=True)

    def promise(self, held: Holdings) -> Promise:
        return Promise(0, held.limit)  # an experiment promises no depth

    def window_valid(self, paired: bool, window: int | None) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _OwnPage(Slots):
    """A slot whose base is the page that the claim ends in."""

    name: str = "base-of-the-open-page"

    def first(self, claim: int, reused: int, page_size: int) -> SlotState:
        return SlotState(claim // page_size, claim)


def _fresh_limit(runs: Runs) -> list[Part]:
    life = Lifecycle("draft", "draft", "draft", window=8)
    parts = [exact("W = 8, L = 20: the drafter reads from", 20 + 2 - 8, life.read_from(20 + 1))]
    claims = _cached(runs.run("x17", "unified"), range(1, 5))
    for length, seed, ours in zip((22, 26, 27, 28), (12, 16, 20, 20), claims, strict=True):
        parts.append(exact(f"L = {length}: a fresh mirror claims", seed, ours))
    base = BUILDS["paired-22"]
    for extra, seed in ((0, "safe"), (1, "safe"), (2, "INIT")):
        rules = replace(base.rules, claim=_Unfloored(extra), slots=_OwnPage())
        build = Build(f"unfloored+{extra}", rules, "", "")
        result = runs.run("x17_limit", build, check="exhaustive", policy=PolicySpec(kind="per_conversation"))
        parts.append(same(f"unfloored limit + {extra}", seed, ", ".join(result.codes) or "safe"))
    return parts


CLAIMS = (
    Figure("X5", "repeated prompts and second turns", "seed 003", _repeat),
    Figure("X6", "one repeated request", "seed 003", _repeated_prefill),
    Figure("X7", "prefix of 16,570, short tails, per_conversation: cached", "seed 003", _short_tails),
    Figure("X8", "the same, all_reusable: cached", "seed 003", _short_tails_reusable, ("six hits (our inference)",)),
    Figure("X9", "prefix of 16,570, tails longer than a window: cached", "seed 003", _long_tails),
    Figure("X10", "system prompt of 30,600, first branch of 30,893", "seed 000", _branch_point),
    Figure("X11", "long prompts on a windowed pool, block reuse off", "seed 002", _long_prompts, ("X = 8",)),
    Figure("X12", "64k transferred prompt on a drafter pool of 8k tokens", "seed 002", _transferred),
    Figure("X14", "claims at lookahead D", "seed 004", _lookahead),
    Figure("X17", "limit of a fresh mirror", "seed 000", _fresh_limit),
)
