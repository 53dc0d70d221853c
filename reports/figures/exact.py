"""Figures that follow from geometry and rules alone: X1 to X4, X13, X15, X16."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from model.budget import admissible_sequences, gib, table_columns, trailing_charge
from model.builds import BUILDS
from model.config import Scope
from model.drafter import KINDS
from model.geometry import Lifecycle
from model.rules.keys import ShiftedStream
from model.rules.lookahead import Lookahead, behind_chunk, chunk_inputs
from model.tokens import TokenStream
from reports.capacity import capacity
from reports.figures.base import Figure, Part, Runs, exact, same
from scenarios.presets import GEOMETRIES
from sim.slot_lag import released_reads

PRESET = GEOMETRIES["minimax-m3.1-flash-like"]


def _page_bytes(runs: Runs) -> list[Part]:
    return [
        exact("bytes of a drafter page at TP2", 655_360, runs.scenario("s06_tp2").page_bytes().draft),
        exact("bytes of a drafter page at TP4", 327_680, runs.scenario("s06_tp4").page_bytes().draft),
    ]


def _group_bytes(runs: Runs) -> list[Part]:
    two, four = (runs.scenario(name).page_bytes().draft for name in ("s06_tp2", "s06_tp4"))
    return [
        exact("6,092 pages at TP2, GiB", 3.72, round(gib(6_092 * two), 2)),
        exact("4,505 pages at TP4, GiB", 1.375, round(gib(4_505 * four), 3)),
    ]


def _trailing_page(_: Runs) -> list[Part]:
    page, (group,) = 32, PRESET.draft
    life = Lifecycle("draft", "draft", "draft", window=group.window)
    trail = BUILDS["mirror-21281"].rules.retention.trail(life, KINDS["dspark"], page)
    charge = trailing_charge(group.bytes_per_page(page, 1)) * trail // page
    return [
        exact("bytes of the trailing page of a request, before TP", 320 * 1024, charge),
        exact("of the window, per cent", 0.8, round(100 * trail / (group.window or 1), 1)),
    ]


def _host_tier(runs: Runs) -> list[Part]:
    scenario = runs.scenario("s06_tp2")
    found = capacity(scenario, [BUILDS["paired-22"], BUILDS["unified"]]).pools
    host = {(row.layout, row.pool): row.host_bytes for row in found}
    return [
        exact("host tier of the target, paired, GiB", 64.57, round(gib(host["paired", "target"]), 2)),
        exact("host tier of the drafter, paired, GiB", 18.32, round(gib(host["paired", "draft"]), 2)),
        exact("host tier of the target, unified, GiB", 82.89, round(gib(host["unified", "target"]), 2)),
    ]


def _slot_lag(_: Runs) -> list[Part]:
    varied = (2, 3, 4, 5)

    def reads(lag: int, counts: tuple[int, ...], trail: int) -> str:
        return "reads released entries" if released_reads(lag, counts, trail) else "clean"

    parts = [
        same(f"lag {lag}, no trailing page", "clean" if lag == 2 else "reads released entries", reads(lag, varied, 0))
        for lag in (2, 7, 31, 127)
    ]
    parts += [same(f"lag {lag}, trailing page", "clean", reads(lag, varied, 128)) for lag in (2, 7, 31, 127)]
    parts.append(same("lag 2, 1 token a step, no trailing page", "reads released entries", reads(2, (1,), 0)))
    parts.append(same("lag 7, 8 tokens a step, no trailing page", "clean", reads(7, (8,), 0)))
    return parts


def _chunk_lookahead(runs: Runs) -> list[Part]:
    eight = list(range(10, 18))
    stream = TokenStream(np.array(eight, dtype=np.uint32), _no_more)
    parts = []
    for depth, right, wrong in ((1, "11 12 13 14", "11 12 13 99"), (2, "12 13 14 15", "12 13 99 98")):
        handed = behind_chunk(Lookahead.PROMPT, stream, 4, depth, 4096).tolist()
        for what, inputs, behind in (("", right, handed), (" with placeholders", wrong, [99, 98][:depth])):
            ours = " ".join(map(str, chunk_inputs(eight, 0, 4, depth, behind)))
            parts.append(same(f"D = {depth}: inputs of the first block{what}", inputs, ours))
        items = ShiftedStream().view(stream, len(eight), Scope(), depth, 4).items[1:4]
        parts.append(same(f"D = {depth}: key of the first block", f"H {right[3:]}"[: 2 + 8], f"H {_words(items)}"))
        broken = runs.run(f"x15_d{depth}", "fault:placeholder-lookahead", check="exhaustive")
        parts.append(same(f"D = {depth}: law that placeholders break first", "KEY", broken.violations[0].code))
    return parts


def _words(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))


def _no_more(start: int, count: int) -> NDArray[np.uint32]:
    raise IndexError(f"{count} tokens from {start} on: the prompt is all there is")


def _table(_: Runs) -> list[Part]:
    return [
        exact("rows of the block table for 88 slots", 177, admissible_sequences(88, 1)),
        exact("columns for 1,048,576 tokens", 8_193, table_columns(1 << 20, 128)),
    ]


EXACT = (
    Figure("X1", "page bytes of a drafter of 5 layers, 4 KV heads of 128, bf16", "seed 003", _page_bytes),
    Figure("X2", "bytes of the drafter's group", "seed 003", _group_bytes),
    Figure("X3", "trailing page with pages of 32 tokens", "seed 002", _trailing_page),
    Figure("X4", "host tier", "seed 003", _host_tier, ("host 89 GB", "18.32 GiB of drafter's pages (341 a slot)")),
    Figure("X13", "a slot that trails, 600 steps of 2 to 5 tokens, pages of 128", "seed 002", _slot_lag),
    Figure("X15", "what a chunk of 4 of the prompt 10..17 feeds the drafter", "seed 004", _chunk_lookahead),
    Figure("X16", "block table under the overlap scheduler", "seed 003", _table),
)
