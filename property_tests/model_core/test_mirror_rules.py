"""Unpaired mirrors: what history each kind of drafter tells them, and what one that cannot grow says."""

from __future__ import annotations

import pytest

from model.builds import BUILDS, Build
from model.config import Drafter
from model.drafter import KINDS, View
from model.geometry import Lifecycle
from model.mirror import resize_error
from model.rules.layout import Mirror
from property_tests.model_core.helpers import codes, config, manager, opened, serve, spec, world

MIRROR = BUILDS["mirror-21281"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].has_pool])
@pytest.mark.parametrize(("start", "covered"), [(0, 0), (32, 0), (32, 20), (32, 32), (32, 40)])
def test_a_mirror_is_told_where_a_chunk_starts_by_the_kind_of_its_drafter(kind: str, start: int, covered: int) -> None:
    """Where it covers what lies below; first seen past 0 only a slot hides it; a draft engine tells none."""
    entry = KINDS[kind]
    knows = entry.view is not View.DRAFT and (covered >= start or entry.slot)
    expected = start if knows else 0
    assert Mirror().hint(entry, start, covered) == expected
    assert Mirror(history=False).hint(entry, start, covered) == 0


def windowed(kind: str) -> Build:
    """An unpaired build for this kind: trailing pages are for slots alone."""
    return MIRROR if KINDS[kind].slot else BUILDS["target-21"]


@pytest.mark.parametrize(("kind", "most"), [("dflash", 7), ("pard", 6), ("eagle3", 18), ("mtp-eagle", 18)])
def test_a_mirror_with_history_backs_its_window_and_the_chunk_alone(kind: str, most: int) -> None:
    """Pages of 4 and a window of 8: without history the whole prompt of 64 and its drafts stay backed, 17 pages."""
    serving = world(config(drafter=Drafter(kind, 3, 8), max_num_tokens=12, chunk_unit=8), windowed(kind))
    serve(serving, spec(0, 64, 2))
    peak = serving.engine.twin.pools["draft"].use().peak
    assert peak <= most
    assert (peak >= 17) == (KINDS[kind].view is View.DRAFT)
    assert codes(serving) == set()


def test_a_mirror_that_cannot_grow_names_every_live_mirror() -> None:
    life = Lifecycle("draft", "draft", "draft", 8)
    mirrors = manager(life, Lifecycle("wide", "draft", "draft", None), pages=12)
    one, other = opened(mirrors, 1, range(12)), opened(mirrors, 2, range(8))
    other.settle(6)
    said = resize_error(mirrors, one, 131_015)
    assert "owner 1: could not resize to 131015 tokens" in said
    assert "windows 8, full" in said
    assert "obtainable pages: draft 2 of 12" in said
    assert "owner 1: capacity 12, history 0, 6 blocks" in said
    assert "owner 2: capacity 8, history 6, 4 blocks" in said


def test_the_first_growth_that_fails_in_a_run_is_told_with_all_mirrors() -> None:
    build = BUILDS["mirror-legacy"]
    serving = world(config(drafter=Drafter("dflash", 3, 8), draft_pages=8, max_num_tokens=12, chunk_unit=8), build)
    serve(serving, spec(0, 64, 2))
    said = serving.engine.twin.resize_error
    assert "could not resize to 67 tokens" in said
    assert "live mirrors: owner 1: capacity" in said
    assert "ADMIT" in codes(serving)
