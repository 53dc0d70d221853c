"""The stage that fuzzes: a campaign as ``kvtwin fuzz`` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reports import terminal
from reports.document import plural
from reports.nightly.outcome import CRASHED, FAILED, PASSED, UNCHECKED, Found
from reports.nightly.steps import Cut, Kept, Place, Step
from reports.nightly.suite import Suite
from scenarios.errors import InputError
from sim.findings import Campaigned

if TYPE_CHECKING:
    from reports.campaigns import Desk

FOLDER = "fuzz"


def fuzz(suite: Suite, place: Place) -> Iterator[Step]:
    if suite.fuzz is None:
        return
    asked = suite.fuzz.model_dump() | {"workers": place.workers}
    room = place.fuzz()
    try:
        order = room.order(**asked)
    except InputError as error:
        raise suite.located(("fuzz",), error.problem) from error

    def work(found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        from reports import campaigns  # its pictures take a second to import

        with _desk(kept) as desk:
            done = room.run(desk, **asked)
            desk.close(order, done)
        _judge_campaign(found, done)
        found.extras["fuzz"] = campaigns.document(order, done)
        if done.interrupted:
            raise Cut

    yield Step("fuzz", "", "fuzz", work)


def _desk(kept: Kept | None) -> Desk:
    from reports.campaigns import Desk

    return Desk(None) if kept is None else Desk(kept.folder / FOLDER, kept.place / FOLDER)


def _judge_campaign(found: Found, done: Campaigned) -> None:
    """A case for each law that was evaluated, each cause, and each crash of the harness."""
    broken = {cause.law for cause in done.causes}
    for code, count in sorted(done.totals.evaluations.items()):
        if count and code not in broken:
            found.case("fuzz", "campaign", code, PASSED, f"evaluated {plural(count, 'time')}")
    for cause in done.causes:
        seen = f"seed {cause.seed}, {plural(cause.count, 'time')}"
        words = f"law {cause.law} broke on {cause.build}: {cause.message} ({seen})"
        found.case("fuzz", cause.build, cause.law, FAILED, words, " ".join(cause.kinds))
    for crash in done.crashes:
        words = f"crashed at example {crash.example:,}: {crash.what}"
        found.case("fuzz", "campaign", "crash", CRASHED, words, crash.again)
    if done.unwritten or done.lost:
        found.case("fuzz", "campaign", "crash", CRASHED, done.unwritten or done.lost)
    if not done.checked and not done.interrupted:
        found.case("fuzz", "campaign", "laws", UNCHECKED, "the campaign evaluated no law")
