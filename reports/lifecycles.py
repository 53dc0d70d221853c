"""What each lifecycle of a run reused: its hits in tokens and pages, never summed over lifecycles.

A claim of ``c`` tokens gives every lifecycle of the target ``c`` tokens that it need not compute, and the drafter's as
many where the drafter's window was found too. In pages a hit is what the lifecycle keeps of a claim (its window and
sinks), and a miss is a page of the prompt that it had to take anew. Sums over lifecycles compare nothing: a windowed
lifecycle keeps a few pages of a long hit, and a separate pool does not show its misses in the target's rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model.engine import Engine
from model.events import EventLog
from model.geometry import Lifecycle
from model.request import RequestRecord
from scenarios.budget_build import layout_for
from sim.result import RunResult
from sim.rulespec import find


def lifecycle_rows(result: RunResult) -> list[dict[str, Any]]:
    """A row a lifecycle, as the run's build laid them out.

    ``hit_tokens`` of ``prompt_tokens``, ``hit_pages`` beside ``missed_pages``: of first admissions, on all workers
    together. ``page_bytes`` is what one page of this lifecycle takes on a rank, ``pool_page_bytes`` one of its pool,
    which may hold several.
    """
    config = result.config
    rules = find(result.build).rules
    columns = Engine(config, rules, EventLog(False)).twin.columns
    shared = layout_for(config, rules) == "shared"
    page = config.limits.page_size
    told = dict(config.memory.page_bytes) if config.memory is not None else {}
    admitted = [record for record in result.records if record.claims]
    rows = []
    for column in columns:
        life, pool = column.lifecycle, column.pool.name
        lives = [other.lifecycle for other in columns if other.pool is column.pool]
        sizes = [sum(one.bytes_per_token * page for one in lives if one.role == role) for role in ("target", "draft")]
        rows.append(
            {
                "lifecycle": life.name,
                "pool": pool,
                "role": life.role,
                "window": life.window,
                "page_bytes": life.bytes_per_token * page,
                "pool_page_bytes": told.get(pool) or (max(sizes) if shared else sum(sizes)),
                **_reuse(life, column.draft, admitted, page),
            }
        )
    return rows


def _reuse(life: Lifecycle, draft: bool, admitted: Iterable[RequestRecord], page: int) -> dict[str, int]:
    hit_tokens = prompt_tokens = hit_pages = missed_pages = 0
    for record in admitted:
        claimed = record.cached_tokens
        hit = record.draft_cached_tokens if draft else claimed
        hit_tokens += hit
        prompt_tokens += record.prompt_tokens
        hit_pages += _kept(life, hit, page)
        missed_pages += max(0, -(-record.prompt_tokens // page) - -(-claimed // page))
    return {
        "hit_tokens": hit_tokens,
        "prompt_tokens": prompt_tokens,
        "hit_pages": hit_pages,
        "missed_pages": missed_pages,
    }


def _kept(life: Lifecycle, tokens: int, page: int) -> int:
    """Pages that the lifecycle reads of a claim of ``tokens``: its window's and its sinks'."""
    if not tokens:
        return 0
    first = life.read_from(tokens) // page
    return -(-tokens // page) - first + min(first, life.sink_blocks(page))
