"""From a suite to the steps of a nightly; whatever is wrong in it speaks up here, before anything runs."""

from __future__ import annotations

from reports.nightly import campaign, in_sim, on_device
from reports.nightly.steps import Place, Step
from reports.nightly.suite import Suite


def plan(suite: Suite, place: Place) -> tuple[list[Step], list[str]]:
    """The steps of a suite, and a line for each stage that needs another place; ``InputError`` before anything runs."""
    steps = [*in_sim.comparisons(suite), *in_sim.figures(suite), *in_sim.drill(suite)]
    skipped = []
    if place.devices is not None:
        steps += [*on_device.replays(suite, place), *on_device.drill(suite, place)]
    elif suite.replays or suite.device_drill is not None:
        skipped.append("replays need a device: --on cpu or --on gpu runs them")
    return [*steps, *campaign.fuzz(suite, place)], skipped
