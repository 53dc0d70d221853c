"""The drill on a device: faults that harm tables, lengths, bases, pages or tags, and those of the device alone.

A fault is caught when the device's own checks find it, and by nothing else: the laws of the sim are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpu_backend.replay.device_faults import DEVICE_FAULTS
from gpu_backend.replay.result import FULL, DeviceDrilled, Replayed, ReplayOrder
from gpu_backend.replay.session import replay
from model.faults import FAULTS
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.names import unknown_name
from sim.rulespec import find

# Faults of rules that leave another memory than the sound build's, and the codes one of which comes first here.
# Natural replays see by SHADOW and LOSSLESS what spoils K/V rows that are read: ``kept-provisional`` and ``no-trail``
# do so once drafts are accepted, and the modules of T0 agree on some only where the vocabulary has a handful of words.
SEEN: dict[str, tuple[str, ...]] = {
    "restored-prefix-read": ("INIT",),
    "target-cursor": ("PUB", "INIT"),
    "backoff-after-prune": ("OWN",),
    "last-manager-wins": ("OWN", "INIT"),
    "copy-in-place": ("OWN", "KEY", "INIT"),
    "fallback-cursor": ("INIT",),
    "target-first-no-limit": ("PUB",),
    "optional-partial-claim": ("OWN",),
    "raw-keys": ("KEY",),
    "trim-only": ("KEY",),
    "placeholder-lookahead": ("KEY",),
    "node-coverage": ("KEY", "INIT"),
    "publish-unwritten": ("PUB", "INIT"),
    "publish-tail": ("KEY",),
    "coverage-as-whole-block": ("KEY", "INIT"),
    "always-paired": ("KEY",),
    "untyped-scope": ("KEY",),
    "narrow-keys": ("KEY",),
    "stale-target-weights": ("KEY",),
    "stale-draft-weights": ("KEY",),
    "eviction-zeroes-count": ("OWN",),
    "draft-outside-admission": ("OWN", "INIT"),
    "no-draft-lookahead-pages": ("OWN", "INIT", "PUB"),
    "counted-before-the-hit": ("MAP",),
    "one-page-a-step": ("OWN", "INIT"),
    "padded-rewind": ("OWN", "INIT"),
    "freed-on-hope": ("OWN",),
    "freed-by-highest": ("OWN",),
    "no-history": ("OWN", "INIT"),
    "batch-row-kept": ("MAP", "OWN", "INIT", "PUB", "KEY"),  # on a GPU two rows race for a slot, and any may win
    "shared-table-buffer": ("OWN", "INIT", "PUB", "KEY"),
    "count-not-extent": ("OWN", "INIT"),
    "kept-provisional": ("INIT",),
    "slot-loss-zero": ("PUB", "OWN"),
    "store-at-zero": ("OWN", "PUB"),
    "release-early": ("OWN",),
    "restore-missed": ("OWN", "PUB", "INIT"),
    "standalone-trim": ("MAP", "INIT", "KEY"),
    "adjacent-slot": ("OWN", "INIT"),
    "columns-of-the-length-limit": ("OWN",),
    "base-of-an-ended-request": ("STATE",),
    "rebase-reads-only": ("OWN", "PUB", "INIT"),
    "unrebased-reader": ("OWN",),
    "no-trail": ("OWN",),
    "dummy-slot-shared": ("MAP", "INIT"),
    "padding-last-cell": ("OWN",),
    "gen-init-local": ("MAP", "OWN", "INIT", "KEY"),
    "tail-on-gen-init": ("INIT", "OWN"),
    "received-into-running-step": ("PUB", "INIT"),
    "abort-frees-destination": ("PUB", "INIT", "KEY"),
    "lists-of-another-group": ("KEY",),
    "sent-before-computed": ("PUB", "INIT"),
    "store-before-step": ("INIT",),
    "load-before-step": ("KEY", "OWN", "INIT"),
    "host-page-reused-under-load": ("KEY", "INIT"),
    "step-before-load": ("KEY", "INIT"),
    "freed-under-store": ("INIT", "OWN"),
    "target-only-loads": ("INIT", "KEY"),
    "stale-rows-after-resume": ("INIT", "KEY", "OWN"),
    "page-ids-for-slots": ("MAP",),
    "loads-into-last-pages": ("KEY",),
    "failed-load-read": ("KEY",),
}
NAMES = (*SEEN, *DEVICE_FAULTS)


def drill(
    names: Sequence[str], device: str | None, progress: Callable[[int, int], None] | None = None
) -> tuple[list[DeviceDrilled], bool]:
    """Drill the named faults, or all of :data:`NAMES`; also whether Ctrl-C left some out. Raises InputError."""
    unknown = next((name for name in names if name not in NAMES), None)
    if unknown is not None:
        known = "a fault that leaves its mark on a device" if unknown in FAULTS else "a fault"
        raise InputError("fault", 0, "", unknown_name(known, unknown, NAMES, "kvtwin drill --device cpu"))
    chosen, rows = list(dict.fromkeys(names)) or list(NAMES), list[DeviceDrilled]()
    order = ReplayOrder(device, check=FULL)
    sound: dict[tuple[str, str], tuple[str, ...]] = {}
    try:
        for place, name in enumerate(chosen):
            rows.append(_drill_one(name, order, sound))
            if progress is not None:
                progress(place + 1, len(chosen))
    except KeyboardInterrupt:
        return rows, True
    return rows, False


def _drill_one(name: str, order: ReplayOrder, sound: dict[tuple[str, str], tuple[str, ...]]) -> DeviceDrilled:
    fault = DEVICE_FAULTS.get(name)
    if fault is None:
        rule = FAULTS[name]
        broken = replay(catalog.load(rule.scenario), rule.build, order)
        return _drilled(name, "rule", SEEN[name], broken, (rule.scenario, rule.base), order, sound)
    scenario = catalog.load(fault.scenario)
    broken = replay(scenario, find(scenario.build), order, prepare=fault.put)
    return _drilled(name, "device", fault.codes, broken, (fault.scenario, scenario.build), order, sound)


def _drilled(
    name: str,
    where: str,
    wanted: tuple[str, ...],
    broken: Replayed,
    beside: tuple[str, str],
    order: ReplayOrder,
    sound: dict[tuple[str, str], tuple[str, ...]],
) -> DeviceDrilled:
    if beside not in sound:
        clean = replay(catalog.load(beside[0]), find(beside[1]), order)
        sound[beside] = tuple(_codes(clean)) if clean.equal else ("MAP", *_codes(clean))
    message = broken.findings[0].message if broken.findings else ""
    return DeviceDrilled(name, where, wanted, tuple(_codes(broken)), broken.equal, sound[beside], beside[0], message)


def _codes(replayed: Replayed) -> Iterator[str]:
    return iter(dict.fromkeys(finding.code for finding in replayed.findings))
