"""ADMIT at the start of a run: pools fit the memory that they were split from, a drafter's share its sequences.

Everything is counted from the pools as they are and from the geometry of their lifecycles; the arithmetic of
``model.budget``, which made the pools, has no part in it.
"""

from __future__ import annotations

from model.config import Memory
from model.engine import Engine
from model.geometry import Lifecycle, cdiv
from model.invariants.base import Docket, Violation


class SplitLaw:
    """Judges the split of one engine, once. Pools that were given in pages have no split to judge."""

    def __init__(self, engine: Engine, docket: Docket) -> None:
        self.engine, self.docket = engine, docket

    def check(self) -> None:
        """Compare bytes with the memory of the rank, and pages with what the admissible sequences hold."""
        memory = self.engine.config.memory
        if memory is None:
            return
        self.docket.count("ADMIT")
        self._fits(memory)
        if not memory.given_share:
            self._windows_fit()
        self._holds_alike()

    def _fits(self, memory: Memory) -> None:
        """The bytes of all pools, tier by tier, are at most the memory of the rank."""
        page_bytes = dict(memory.page_bytes)
        pools = self.engine.twin.pools.values()
        for tier, budget in (("device", memory.device), ("host", memory.host)):
            sizes = {pool.name: getattr(pool, f"{tier}_pages") * page_bytes[pool.name] for pool in pools}
            if sum(sizes.values()) > budget:
                found = " + ".join(f"{size:,} ({name})" for name, size in sizes.items())
                last = list(sizes)[-1]
                self._report(f"pools take more than the memory of the {tier}", last, f"at most {budget:,} bytes", found)

    def _windows_fit(self) -> None:
        """A pool of windows holds those of every admissible sequence while one prefills, and not many more."""
        for name, pool in self.engine.twin.pools.items():
            lives = [column.lifecycle for column in self.engine.twin.columns if column.pool is pool]
            if any(life.window is None for life in lives) or {life.role for life in lives} != {"draft"}:
                continue
            least, most = self._demand(lives)
            expected = f"{least:,} to {most:,} pages"
            if pool.device_pages < least:
                self._report("an admissible sequence does not fit its share", name, expected, str(pool.device_pages))
            elif pool.device_pages > most:
                self._report("a share no sequence can use up", name, expected, str(pool.device_pages))

    def _demand(self, lives: list[Lifecycle]) -> tuple[int, int]:
        """Pages that the admissible sequences need, and those that no rounding up explains.

        One more page a sequence where a window straddles pages, one more for the chunk, and the resume gate on top.
        """
        config = self.engine.config
        limits, page = config.limits, config.limits.page_size
        step = limits.extra_tokens + config.drafter.drafts + 1
        longest = limits.max_seq_len + step
        sequences = (limits.run_ahead + 1) * limits.max_batch + 1
        least = most = 0
        for life in lives:
            one = life.peak_blocks(longest, step, page)
            least += (sequences - 1) * one + life.peak_blocks(longest, step + limits.max_num_tokens, page)
            most += sequences * (one + 1) + cdiv(limits.max_num_tokens, page) + 1
        return least, int(most / limits.max_util_for_resume) + 1

    def _holds_alike(self) -> None:
        """Where both pools keep every token, neither holds more tokens than the other can follow."""
        twin = self.engine.twin
        if any(column.lifecycle.window is not None for column in twin.columns) or len(twin.pools) != 2:
            return
        (target, most), (draft, least) = ((pool.name, pool.device_pages) for pool in twin.pools.values())
        if abs(most - least) > 1:
            found = f"{most:,} pages ({target}), {least:,} ({draft})"
            self._report("target and drafter hold different numbers of tokens", draft, "equally many pages", found)

    def _report(self, message: str, pool: str, expected: str, found: str) -> None:
        self.docket.report(
            Violation("ADMIT", message, pool=pool, step=self.engine.iteration, expected=expected, found=found)
        )
