"""ADMIT of refusals: whoever is refused really lacks a page, a chunk as well as a verify row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.builds import BUILDS, Build
from model.faults import FAULTS
from model.ops import CHECKS, World
from property_tests.laws.healthy import finish
from property_tests.model_core.helpers import codes, config, serve, spec, submit, world


def served(build: Build, check: str) -> World:
    """One request leaves four of eight pages cached; the next one decodes until it needs a fifth."""
    serving = World(config(pages=8), build, check=check)
    serve(serving, spec(0, 16, 1))
    submit(serving, spec(1, list(range(200, 208)), 12))
    finish(serving)  # it may never end: cached pages are not taken
    return serving


@pytest.mark.parametrize("check", CHECKS[1:])
def test_a_verify_row_that_is_refused_though_a_cached_page_could_go_is_found(check: str) -> None:
    serving = served(FAULTS["cached-not-counted"].build, check)
    found = [violation for violation in serving.violations if violation.code == "ADMIT"]
    assert [(violation.request, violation.pool) for violation in found[:1]] == [(1, "target")]
    assert "1 pages of target" in found[0].expected
    assert codes(served(BUILDS["unified"], check)) == set()


def test_a_refusal_is_judged_only_where_pages_alone_decide() -> None:
    """A host tier may have room or not; above the resume gate pages are not the point."""
    tight = replace(config(pages=8).limits, max_util_for_resume=0.3)
    build = FAULTS["cached-not-counted"].build
    for judged in (config(pages=8, host=4), replace(config(pages=8), limits=tight)):
        serving = World(judged, build)
        serve(serving, spec(0, 16, 1))
        assert "ADMIT" not in codes(serving)
    assert "ADMIT" not in codes(world(config(), BUILDS["unified"]))
