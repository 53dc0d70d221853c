"""The causes of a campaign: which failures are told apart, and which ones only count.

What is kept depends on the examples that ran and not on how they were cut: of each law on each build it is the
failures with the lowest seeds. A shard shrinks as many of its own, so that those are among them however it was cut.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import replace

from property_tests.fuzz.order import SHRUNK
from sim.findings import Cause


class Causes:
    """Failures as they come in, in any order."""

    def __init__(self) -> None:
        self._lowest: dict[tuple[str, str], list[Cause]] = {}  # by law and build, ascending by seed
        self._seen: Counter[tuple[str, str]] = Counter()
        self._folders: dict[tuple[str, ...], str] = {}

    def copy(self) -> Causes:
        """Another one with the same failures."""
        other = Causes()
        other._lowest = {key: list(ones) for key, ones in self._lowest.items()}
        other._seen, other._folders = self._seen.copy(), dict(self._folders)
        return other

    def leads(self, one: Cause) -> bool:
        """Whether ``one`` would stand for its cause: it is among the lowest, and its like with a lower seed is not."""
        lowest = self._lowest.get((one.law, one.build), [])
        if len(lowest) == SHRUNK and one.seed >= lowest[-1].seed:
            return False
        return all(other.seed > one.seed for ones in self._lowest.values() for other in ones if other.key == one.key)

    def take(self, one: Cause) -> None:
        """Count a failure; its folder, if it has one, is that of its cause from now on."""
        place = (one.law, one.build)
        self._seen[place] += one.count
        lowest = self._lowest.setdefault(place, [])
        insort(lowest, one, key=lambda other: other.seed)
        del lowest[SHRUNK:]
        if one.folder:
            self._folders[one.key] = one.folder
        left = {other.key for ones in self._lowest.values() for other in ones}
        self._folders = {key: folder for key, folder in self._folders.items() if key in left}

    def all(self) -> list[Cause]:
        """The causes, the shortest program first; each is told by its failure with the lowest seed."""
        found: dict[tuple[str, ...], Cause] = {}
        for one in sorted((one for ones in self._lowest.values() for one in ones), key=lambda one: one.seed):
            first = found.get(one.key)
            if first is None:
                found[one.key] = replace(one, folder=self._folders.get(one.key, ""))
            else:
                found[one.key] = replace(first, count=first.count + one.count)
        return sorted(found.values(), key=lambda cause: (len(cause.kinds), cause.key))

    def further(self) -> Counter[tuple[str, str]]:
        """By law and build, how many failures are of no cause in :meth:`all`: nobody looked what is left of them."""
        kept = Counter({place: sum(one.count for one in ones) for place, ones in self._lowest.items()})
        return self._seen - kept

    def folders(self) -> set[str]:
        """The folders of the causes."""
        return set(self._folders.values())
