"""The journal of pages beside a kept event log, against the pools that it watched."""

from __future__ import annotations

import numpy as np
import pytest

from model.builds import BUILDS
from model.ops import World
from model.page_journal import CACHED, COUNT_FIELDS, NOTE_FIELDS, ON_HOST, STATE, PageJournal
from model.pages import PagePool
from scenarios import catalog
from sim.run import run_scenario

SCENARIOS = ("smoke/hello", "smoke/pressure", "smoke/host_tier", "smoke/host_link", "smoke/two_windows", "smoke/ops")


class Copies:
    """Codes of all pools at each look, copied page by page: what the journal should come to."""

    def __init__(self, world: World) -> None:
        self.journal = world.log.journal
        assert self.journal is not None
        self.pools = list(world.engine.twin.pools.values())
        self.seen: list[list[list[int]]] = []
        look = self.journal.look

        def both(iteration: int) -> None:
            look(iteration)
            self.seen.append([codes_of(pool) for pool in self.pools])

        self.journal.look = both  # type: ignore[method-assign]


def codes_of(pool: PagePool) -> list[int]:
    return [
        pool.state[page]
        + CACHED * (pool.node[page] is not None)
        + ON_HOST * (pool.state[page] > 0 and pool.slot[page] >= pool.device_pages)
        for page in range(pool.total)
    ]


def journal_of(scenario: str) -> tuple[PageJournal, Copies, World]:
    worlds: list[World] = []
    copies: list[Copies] = []

    def opened(world: object) -> None:
        assert isinstance(world, World)
        worlds.append(world)
        copies.append(Copies(world))

    run_scenario(catalog.load(scenario), BUILDS["unified"], keep_events=True, opened=opened)
    return copies[0].journal, copies[0], worlds[0]  # type: ignore[return-value]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_changes_up_to_each_look_make_up_the_pools_as_they_were(scenario: str) -> None:
    journal, copies, _ = journal_of(scenario)
    assert len(copies.seen) == len(journal.iterations) > 2
    for place, pool in enumerate(journal.pools):
        codes = np.zeros(pool.device_pages + pool.host_pages, dtype=np.uint8)
        begin = 0
        for look, end in enumerate(pool.ends):
            codes[np.array(pool.pages[begin:end], dtype=np.int64)] = np.frombuffer(pool.codes, np.uint8)[begin:end]
            assert codes.tolist() == copies.seen[look][place]
            begin = end


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_last_note_of_a_page_names_its_node_in_the_tree(scenario: str) -> None:
    journal, _, world = journal_of(scenario)
    notes = np.array(journal.notes).reshape(-1, len(NOTE_FIELDS))
    cached = 0
    for place, pool in enumerate(world.engine.twin.pools.values()):
        last = {int(row[1]): row for row in notes if row[0] == place}
        for page, node in enumerate(pool.node):
            if node is not None:
                _, _, _, column, block, coverage = last[page].tolist()
                assert node.pages[column] == page
                assert node.coverage[column] == coverage
                assert node.ordinal == block
                cached += 1
    assert cached


def test_a_note_of_a_grant_has_no_coverage_and_that_of_its_publication_the_same_block() -> None:
    journal, _, _ = journal_of("smoke/hello")
    notes = np.array(journal.notes).reshape(-1, len(NOTE_FIELDS)).tolist()
    granted = {(pool, page): (owner, column, block) for pool, page, owner, column, block, cover in notes if not cover}
    published = [row for row in notes if row[5]]
    assert len(granted) > 10
    assert published
    for pool, page, owner, column, block, _ in published:
        assert granted[pool, page] == (owner, column, block)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_counts_of_a_look_add_up_and_the_last_peak_is_that_of_the_pool(scenario: str) -> None:
    journal, copies, world = journal_of(scenario)
    pools = list(world.engine.twin.pools.values())
    counts = np.array(journal.counts).reshape(-1, len(pools), len(COUNT_FIELDS))
    for place, pool in enumerate(pools):
        used, reusable, free, peak, host_used = counts[:, place].T
        assert (free + reusable + used == pool.device_pages).all()
        assert (used <= peak).all()
        assert (np.diff(peak) >= 0).all()
        assert peak[-1] == pool.peak
        on_host = [sum(code >= ON_HOST for code in look[place]) for look in copies.seen]
        assert host_used.tolist() == on_host
        free_of = [sum(code & STATE == 0 for code in look[place]) for look in copies.seen]
        if not pool.host_pages:
            assert free.tolist() == free_of


def test_without_a_kept_log_there_is_no_journal_and_the_digests_are_the_same() -> None:
    scenario, build = catalog.load("smoke/host_tier"), BUILDS["unified"]
    worlds: list[World] = []
    bare = run_scenario(scenario, build, opened=worlds.append)  # type: ignore[arg-type]
    kept = run_scenario(scenario, build, keep_events=True)
    assert worlds[0].log.journal is None
    assert bare.logs[0].journal is None
    assert (bare.decision_digest, bare.memory_digest) == (kept.decision_digest, kept.memory_digest)


def test_a_journal_that_is_closed_notes_nothing_and_lets_the_pools_go() -> None:
    journal, _, world = journal_of("smoke/hello")
    looks = len(journal.iterations)
    world.drain()
    assert len(journal.iterations) == looks
    assert journal.closed
    assert all(pool._pool is None for pool in journal.pools)
