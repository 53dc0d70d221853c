"""Memory events of the device beside those of the tagged memory: the first that differs, named as a broken law."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from model.events import FIELDS, Channel, Kind, rows_of
from model.invariants.base import Violation
from model.reader import LOGGED, SENTINELS

Event = tuple[Kind, tuple[int, ...]]

_NAMES = {value & LOGGED: name for value, name in SENTINELS.items()}
_SAYS = {
    "MAP": "the device's {field} is not the memory's",
    "KEY": "the device holds other content than the memory",
    "INIT": "the device holds no final content where the memory has some",
    "OWN": "the device's page belongs to another owner",
}


class TappedChannel(Channel):
    """A channel that also hands out what was added since it was last asked."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.keep)
        self._flushed = array("q")  # of what was not taken yet
        self._taken = 0  # numbers of the buffer that were taken

    def flush(self) -> None:
        self._flushed.extend(self.buffer[self._taken :])
        self._taken = 0
        super().flush()

    def take(self) -> bytes:
        """Records since the last call, however they were added."""
        values, self._flushed = self._flushed + self.buffer[self._taken :], array("q")
        self._taken = len(self.buffer)
        return values.tobytes()


def decoded(stream: bytes) -> list[Event]:
    """The records in the bytes of a channel."""
    values, events, place = array("q", stream), [], 0
    while place < len(values):
        count = values[place + 1]
        events.append((Kind(values[place]), tuple(values[place + 2 : place + 2 + count])))
        place += 2 + count
    return events


def first_difference(
    device: Sequence[Event], memory: Sequence[Event], pools: Sequence[str], requests: dict[int, int]
) -> Violation | None:
    """The first event that differs, ``requests`` by owner; ``None`` where all are equal."""
    for found, wanted in zip(device, memory, strict=False):
        if found != wanted:
            return _named(found, wanted, pools, requests)
    if len(device) == len(memory):
        return None
    more = (device if len(device) > len(memory) else memory)[min(len(device), len(memory))]
    who = "memory" if len(memory) > len(device) else "device"
    return Violation(
        "MAP",
        f"device: only the {who} has a record of kind {more[0].name}",
        step=more[1][0] if more[1] else -1,
        expected=f"{len(memory)} records",
        found=f"{len(device)} records",
    )


def _named(found: Event, wanted: Event, pools: Sequence[str], requests: dict[int, int]) -> Violation:
    kind = wanted[0]
    if found[0] is not kind or len(found[1]) != len(wanted[1]):
        return Violation(
            "MAP",
            "device: another event than the memory's",
            step=wanted[1][0],
            expected=f"{kind.name} with {len(wanted[1])} fields",
            found=f"{found[0].name} with {len(found[1])} fields",
        )
    rows = zip(rows_of(kind, found[1]), rows_of(kind, wanted[1]), strict=True)
    mine, its = next((mine, its) for mine, its in rows if mine != its)
    place = next(place for place, (one, other) in enumerate(zip(mine, its, strict=True)) if one != other)
    names = FIELDS[kind]
    field = names[min(place, len(names) - 1)].removesuffix("..")
    values = dict(zip(names, its, strict=False))
    code = _code(field, mine[place])
    pool = pools[values["pool"]] if "pool" in values else ""
    return Violation(
        code,
        f"device: {kind.name.removeprefix('MEM_').lower()}: {_SAYS[code].format(field=field)}",
        requests.get(values.get("owner", -1), -1),
        pool,
        _page(field, its[place], values),
        values.get("position", values.get("start", -1)),
        values["iteration"],
        expected=f"{field} {_shown(field, its[place])}",
        found=f"{field} {_shown(field, mine[place])}",
    )


def _code(field: str, found: int) -> str:
    if "tag" in field:
        return "INIT" if found in _NAMES or found == 0 else "KEY"
    return "OWN" if field == "owner" else "MAP"


def _page(field: str, value: int, values: dict[str, int]) -> int:
    if field in ("slot", "draft_slot", "slots", "source", "target"):
        return value
    return values.get("draft_slot" if field == "draft_tag" else "slot", -1)


def _shown(field: str, value: int) -> str:
    return _NAMES.get(value, f"{value:016x}") if "tag" in field else str(value)
