"""REF: pages are conserved, every reference has a holder, and the evictor looks where the droppable pages are.

Recomputed from the sequences' tables and the tree's nodes, never from the pools' own counters. Small pools are
checked with plain loops, large ones with numpy; both must agree.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container

import numpy as np
from numpy.typing import NDArray

from model.eviction import DROPPABLE, FREE, HELD, LOCKED, PageState
from model.invariants.base import Docket, Violation
from model.joint import Twin
from model.pages import PagePool
from model.sequence import ACTIVE

LOOP_UP_TO = 96  # pages up to which plain loops beat numpy
EVERYTHING = 256  # checks between two that look at every cached node


def _nobody(pool: PagePool, page: int) -> int:
    return -1


class _Picture:
    """What a sound pool was made of, as it was read: ``facts``, its ``droppable`` pages, the eviction ``order``."""

    __slots__ = ("droppable", "facts", "order")

    def __init__(self, facts: tuple, droppable: list[int]) -> None:
        self.facts, self.droppable = facts, droppable
        self.order: tuple = ()


class ReferenceLaw:
    """Conservation of one engine's pages."""

    def __init__(
        self,
        twin: Twin,
        docket: Docket,
        request_of: Callable[[int], int],
        exhaustive: bool = True,
        tenant: Callable[[PagePool, int], int] = _nobody,
    ) -> None:
        self.twin, self.docket, self.exhaustive = twin, docket, exhaustive
        self.request_of = request_of  # owner -> request id
        self.tenant = tenant  # pool, page -> request that was granted it last
        self._seen: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}
        self._checks = 0
        self._reports = 0
        self._pictures: dict[str, _Picture] = {}
        self._columns = {
            pool.name: [
                (manager, column)
                for manager in twin.managers
                for column, other in enumerate(manager.pools)
                if other is pool
            ]
            for pool in twin.pools.values()
        }

    def check(self, step: int, drained: bool = False, bulk: bool | None = None) -> None:
        """Check every pool; ``drained`` also wants nothing held. ``bulk`` forces one of the two implementations."""
        self.docket.count("REF")
        self._checks += 1
        for pool in self.twin.pools.values():
            use_bulk = pool.total > LOOP_UP_TO if bulk is None else bulk
            if use_bulk:
                self._look(pool, step, drained)
            elif not self._sound(pool):
                self._check_loop(pool, step)
                self._check_cache(pool, step, True)
            held = [page for page in range(pool.total) if pool.state[page] > DROPPABLE] if drained else []
            if held:
                self._report(pool, held[0], step, "nothing held after the drain", f"{len(held)} pages held")

    def check_pairs(self, step: int) -> None:
        """The sequences of one request are active in every manager or in none: a suspended request locks nothing."""
        if self.twin.draft is None:
            return
        self.docket.count("REF")
        for owner, sequence in self.twin.target.sequences.items():
            other = self.twin.draft.sequences.get(owner)
            if other is None or other.status is sequence.status:
                continue
            states = f"target {sequence.status.name}, draft {other.status.name}".lower()
            pool = self.twin.draft.pools[0].name
            self.docket.report(
                Violation(
                    "REF",
                    "one pool of a request is locked, the other is not",
                    self.request_of(owner),
                    pool,
                    step=step,
                    expected="both pools suspended or both active",
                    found=states,
                )
            )

    def check_owners(self, live: Container[int], step: int) -> None:
        """Every sequence belongs to a request in its current epoch or to a dummy of a step in flight, by the owners
        that are ``live``."""
        for manager in self.twin.managers:
            for owner, sequence in manager.sequences.items():
                if owner in live:
                    continue
                request = self.request_of(owner)
                self.docket.report(
                    Violation(
                        "REF",
                        "pages of a request that ended" if request >= 0 else "pages of a dummy whose step is over",
                        request,
                        manager.pools[0].name,
                        step=step,
                        expected="no sequence without a request or a step",
                        found=f"{manager.role} sequence, {sum(table.count() for table in sequence.tables)} pages",
                    )
                )

    def _references(self, pool: PagePool) -> tuple[array[int], array[int]]:
        """Pages of ``pool`` as often as tables of active sequences name them, and as often as others hold them."""
        locked, held = array("i"), array("i")
        for manager, column in self._columns[pool.name]:
            for sequence in manager.sequences.values():
                pages, table = locked if sequence.status is ACTIVE else held, sequence.tables[column]
                if table.sinks:
                    pages.extend(table.sinks)
                pages.extend(table.pages)
                if sequence.stale[column]:
                    held.extend([page for _, page in sequence.stale[column]])
        return locked, held

    def _look(self, pool: PagePool, step: int, everything: bool) -> None:
        """Check a large pool, unless all that the checks read is as it was when they last found nothing wrong."""
        locked, held = self._references(pool)
        if not self.exhaustive or everything or not self._checks % EVERYTHING:
            self._check_bulk(pool, step, locked, held)
            self._check_cache(pool, step, everything)
            return
        facts = (*self._facts(pool, locked, held), pool.tenancy.tobytes(), bytes(pool.column))
        order, known = (pool.rings.picture(), pool.priority.tobytes()), self._pictures.get(pool.name)
        if known is not None and known.facts == facts and known.order == order:
            return
        reports = self._reports
        self._check_bulk(pool, step, locked, held)
        self._check_cache(pool, step, everything)
        self._pictures.pop(pool.name, None)
        if reports == self._reports:
            known = self._pictures[pool.name] = _Picture((pool.node.copy(), *facts[1:]), [])
            known.order = order

    @staticmethod
    def _facts(pool: PagePool, locked: array[int], held: array[int]) -> tuple:
        """What a pool is made of, by value: its nodes, references, states, counters, free lists and slots."""
        used = (locked.tobytes(), held.tobytes(), pool.locks.tobytes(), pool.holds.tobytes(), bytes(pool.state))
        counted = (pool.droppable, pool.demotable, pool.host_droppable)
        free = (pool.free_ids.tobytes(), pool.free_slots.tobytes(), pool.free_host.tobytes(), pool.slot.tobytes())
        return (pool.node, used, counted, free)

    def _sound(self, pool: PagePool) -> bool:
        """Whether a small pool obeys the whole law, in plain loops; what is wrong with it is for the slower checks.

        Everything that the verdict depends on is read anew and compared, byte by byte, with what the last sound pool
        was made of; only what differs is counted again.
        """
        locked, held = self._references(pool)
        facts = self._facts(pool, locked, held)
        known = self._pictures.get(pool.name)
        if known is None or known.facts != facts:
            droppable = self._counted(pool, locked, held)
            if droppable is None:
                return False
            known = self._pictures[pool.name] = _Picture((pool.node.copy(), *facts[1:]), droppable)
        nodes, columns = pool.node, pool.column
        for page in known.droppable:
            node = nodes[page]
            if node is None or not node.alive or node.pages[columns[page]] != page:
                return False
        order = (pool.rings.picture(), pool.priority.tobytes())
        if known.order != order:
            if not pool.rings.hold_all(known.droppable):
                return False
            known.order = order
        return True

    @staticmethod
    def _counted(pool: PagePool, locked: array[int], held: array[int]) -> list[int] | None:
        """Count the references to every page, given those of active sequences and of others; the droppable pages, or
        ``None`` if states, counters or free lists are not what they should be."""
        locks, holds = [0] * pool.total, [0] * pool.total
        for page in locked:
            locks[page] += 1
        for page in held:
            holds[page] += 1
        if pool.locks.tolist() != locks or pool.holds.tolist() != holds:
            return None
        wanted = bytearray(pool.total)
        free, droppable = list[int](), list[int]()
        for page, node in enumerate(pool.node):
            if locks[page]:
                wanted[page] = LOCKED
            elif holds[page]:
                wanted[page] = HELD
            elif node is None:
                free.append(page)
            else:
                wanted[page] = DROPPABLE
                droppable.append(page)
        if pool.state != wanted or sorted(pool.free_ids) != free:
            return None
        counted = (len(droppable), wanted.count(HELD), 0)
        if pool.host_pages:
            slots, last = pool.slot, pool.device_pages
            if any(slots[page] >= last for page in locked):
                return None
            below = len([page for page in droppable if slots[page] >= last])
            aside = len({page for page in held if wanted[page] == HELD and slots[page] >= last})
            counted = (counted[0] - below, counted[1] - aside, below)
            taken = [slot for slot, state in zip(slots, wanted, strict=True) if state != FREE]
            if sorted([*taken, *pool.free_slots, *pool.free_host]) != list(range(pool.total)):
                return None
        return droppable if counted == (pool.droppable, pool.demotable, pool.host_droppable) else None

    def _check_loop(self, pool: PagePool, step: int) -> None:
        locks, holds = [0] * pool.total, [0] * pool.total
        for pages, counts in zip(self._references(pool), (locks, holds), strict=True):
            for page in pages:
                counts[page] += 1
        free = set(pool.free_ids)
        for page in range(pool.total):
            self._check_page(pool, page, step, locks[page], holds[page], page in free)
        if len(free) != len(pool.free_ids):
            self._report(pool, -1, step, "each free page once", "a page is free twice")

    def _check_page(self, pool: PagePool, page: int, step: int, locks: int, holds: int, free: bool) -> None:
        if pool.locks[page] != locks or pool.holds[page] != holds:
            expected = f"{locks} locks, {holds} holds by the tables"
            self._report(pool, page, step, expected, f"{pool.locks[page]} locks, {pool.holds[page]} holds")
        state = pool.state[page]
        wanted = LOCKED if locks else HELD if holds else None
        if wanted is None:
            wanted = DROPPABLE if pool.node[page] is not None else FREE
        if state != wanted:
            self._report(pool, page, step, PageState(wanted).name, PageState(state).name)
        if free != (wanted == FREE):
            self._report(pool, page, step, "free list = free pages", "on the free list" if free else "not on it")

    def _check_bulk(self, pool: PagePool, step: int, locked: array[int], held: array[int]) -> None:
        size = pool.total
        locks = np.bincount(locked, minlength=size) if locked else np.zeros(size, np.int64)
        holds = np.bincount(held, minlength=size) if held else np.zeros(size, np.int64)
        free = np.zeros(size, np.bool_)
        ids = np.frombuffer(pool.free_ids, np.int32) if len(pool.free_ids) else np.zeros(0, np.int32)
        free[ids] = True
        state = np.frombuffer(pool.state, np.uint8)
        idle = (locks == 0) & (holds == 0)
        wrong: NDArray[np.bool_] = (np.frombuffer(pool.locks, np.int32) != locks) | (
            np.frombuffer(pool.holds, np.int32) != holds
        )
        wrong |= (state == LOCKED) != (locks > 0)
        wrong |= (state == HELD) != ((locks == 0) & (holds > 0))
        wrong |= free != (state == FREE)
        wrong |= idle & (state > DROPPABLE)
        for page in np.flatnonzero(wrong).tolist():
            self._check_page(pool, page, step, int(locks[page]), int(holds[page]), bool(free[page]))
        if int(free.sum()) != len(pool.free_ids):
            self._report(pool, -1, step, "each free page once", "a page is free twice")

    def _check_cache(self, pool: PagePool, step: int, everything: bool) -> None:
        """Droppable pages are cached by a live node, free ones by none, the evictor would find all, and counters agree.

        Nodes are looked up where a page's state or tenancy moved since the last check; all of them with
        ``everything`` and every so often. Incremental runs look at nodes when they drain.
        """
        state = np.frombuffer(pool.state, np.uint8)
        droppable = state == DROPPABLE
        tenancy = np.frombuffer(pool.tenancy, np.int64)
        before = self._seen.get(pool.name)
        suspects = state <= DROPPABLE
        if not everything and before is not None and self._checks % EVERYTHING:
            suspects &= (before[0] != state) | (before[1] != tenancy)
        visits = self.exhaustive or everything
        if visits:
            self._seen[pool.name] = (state.copy(), tenancy.copy())
        for page in np.flatnonzero(suspects).tolist() if visits else ():
            node = pool.node[page]
            if state[page] == FREE:
                if node is not None:
                    self._report(pool, page, step, "no node caches a free page", "a node does")
            elif node is None or not node.alive or node.pages[pool.column[page]] != page:
                self._report(pool, page, step, "a live node caches the page", "no live node does")
        self._check_tiers(pool, state, step)
        for page in pool.rings.missed(np.flatnonzero(droppable)):
            self._report(pool, page, step, "the evictor would find it", "it is in no ring")

    def _check_tiers(self, pool: PagePool, state: NDArray[np.uint8], step: int) -> None:
        """Counters by tier agree with the pages' states, and no slot holds two pages or is free and held."""
        slots = np.frombuffer(pool.slot, np.int32)
        host = slots >= pool.device_pages
        counted = {
            "droppable": (int(((state == DROPPABLE) & ~host).sum()), pool.droppable),
            "held": (int(((state == HELD) & ~host).sum()), pool.demotable),
            "droppable in the host tier": (int(((state == DROPPABLE) & host).sum()), pool.host_droppable),
        }
        if pool.host_pages:
            taken = slots[state != FREE]
            free = np.concatenate((np.array(pool.free_slots, np.int32), np.array(pool.free_host, np.int32)))
            counted["locked in the host tier"] = (0, int(((state == LOCKED) & host).sum()))
            counted["slots in use or free"] = (pool.total, len(np.union1d(taken, free)))
            counted["pages and free slots"] = (pool.total, len(taken) + len(free))
        for what, (count, counter) in counted.items():
            if count != counter:
                self._report(pool, -1, step, f"{count} {what}", f"{counter}")

    def _report(self, pool: PagePool, page: int, step: int, expected: str, found: str) -> None:
        self._reports += 1
        tenant, message = self.tenant(pool, page), "page accounting is off"
        self.docket.report(Violation("REF", message, tenant, pool.name, page, -1, step, expected, found))
