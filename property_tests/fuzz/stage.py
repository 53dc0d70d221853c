"""A campaign as a stage of a nightly, which asks for it by plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from property_tests.fuzz import session
from sim.findings import Campaigned


def _asked(
    builds: Sequence[str],
    driver: str,
    machine: str | None,
    profile: str,
    seed: int,
    minutes: float | None,
    examples: int | None,
    workers: int | None,
) -> session.Asked:
    return session.Asked(
        minutes=minutes,
        examples=examples,
        workers=workers,
        build=",".join(builds) if builds else None,
        driver=driver,
        machine=machine,
        profile=profile,
        seed=str(seed),
    )


def order(**asked: Any) -> dict[str, Any]:
    """What is ordered, as plain values; raises :class:`InputError` for what cannot be."""
    return asdict(session.order_of(_asked(**asked)))


def run(desk: session.Desk, **asked: Any) -> Campaigned:
    """Run the campaign. Ctrl-C ends it early; what was found until then is in the result."""
    return session.run(_asked(**asked), desk)
