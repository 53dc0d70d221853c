"""Small scenarios on the tiny geometry, and one call that runs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from model.builds import BUILDS
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario
from sim.result import RunResult
from sim.run import run_scenario

MS = 1_000_000  # nanoseconds
BUSY_WORLD: dict[str, Any] = {"pools": {"target": 60, "draft": 40}, "limits": {"max_num_tokens": 24}}
FLAT = {"profile": "flat-50ms"}  # every step takes 50 ms, whatever is in it


def tiny(sessions: list[dict[str, Any]], concurrency: int | None = 4, **fields: Any) -> Scenario:
    """A scenario on the tiny geometry (pages of 4, K = 3, at most 4 running) with these sessions and fields."""
    workload = {"sessions": sessions, "concurrency": concurrency}
    return scenario({"workload": workload, "acceptance": {"forced": 2}, "cost": FLAT, **fields})


def busy(**fields: Any) -> Scenario:
    """Nine two-turn sessions on a shared prefix, five in flight, in pools that are too small for them."""
    turns = [{"prompt": ["shared", 7], "output": 14}, {"append": 9, "output": 10, "think_s": 0.2}]
    sessions = [{"name": "s", "copies": 9, "turns": turns}]
    values = {
        "workload": {"prefixes": {"shared": 30}, "sessions": sessions, "concurrency": 5},
        "acceptance": {"coverage": [0.8, 0.6, 0.5]},
        "cost": "tp4-000",
        "seed": 3,
    }
    return scenario({**BUSY_WORLD, **values, **fields})


def scenario(values: dict[str, Any]) -> Scenario:
    """The scenario with these top-level fields, on the tiny geometry unless they say otherwise."""
    text = yaml.safe_dump({"name": "tiny", "geometry": "tiny", **values})
    return parse_scenario(text, "tiny.yaml", Path())


def served(scenario: Scenario, build: str = "unified", check: str = "exhaustive", **options: Any) -> RunResult:
    """The result of ``scenario`` on a build, checked exhaustively."""
    return run_scenario(scenario, BUILDS[build], check=check, **options)


def submit_ms(result: RunResult) -> list[float]:
    """When each request was sent, in order of request numbers."""
    return [timing.submit_ns / MS for timing in result.timings]
