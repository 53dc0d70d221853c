"""The stages on a device: replays, and the drill of its own checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpu_backend.replay.result import Replayed, ReplayOrder
from model.builds import Build
from model.invariants import Violation
from reports import terminal
from reports.catalogue import find_build, unknown_name
from reports.drill import CAUGHT
from reports.nightly import measure
from reports.nightly.outcome import FAILED, PASSED, UNCHECKED, Found
from reports.nightly.steps import GPU, Cut, Kept, Place, Step
from reports.nightly.suite import Suite
from reports.replays import verdict as words_for
from scenarios.schema import Scenario


def _device(place: Place) -> str:
    return "cuda" if place.on == GPU else "cpu"


def replays(suite: Suite, place: Place) -> Iterator[Step]:
    seen: set[str] = set()
    for at, group in enumerate(suite.replays):
        weights = None if group.weights is None else str(suite.weights(group.weights, ("replays", at, "weights")))
        order = ReplayOrder(
            _device(place), group.acceptance, group.mode, group.check, launch=group.launch, weights=weights
        )  # fmt: skip
        words = [group.acceptance, group.mode, group.launch, group.check, f"weights {group.weights}"]
        usual = ["forced", "equality", "settle", "tags", "weights None"]
        how = ", ".join(word for word, plain in zip(words, usual, strict=True) if word != plain)
        for number, name in enumerate(group.scenarios):
            location = ("replays", at, "scenarios", number)
            scenario = suite.scenario(name, location)
            build = find_build(group.build or scenario.build)
            subject = measure.subject_of(scenario, build, how)
            if subject in seen:
                raise suite.located(location, f"expected each replay once, found {subject} twice")
            seen.add(subject)
            work = _Replayed(scenario, build, order, subject, place, group.repeats, group.weights)
            yield Step("replays", subject, f"replay of {subject}", work)


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A replay, several times. With natural acceptance a device decides how far a step gets: nothing is exact then."""

    scenario: Scenario
    build: Build
    order: ReplayOrder
    subject: str
    place: Place
    repeats: int
    weights: str | None = None  # as the suite names them: where a folder lies is no part of a run

    def __call__(self, found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        assert self.place.devices is not None
        natural = self.order.acceptance == "natural"
        for repeat in range(self.repeats):
            replayed = self.place.devices.replay(self.scenario, self.build, self.order, tick)
            replayed.result.whole()
            self._judge(found, repeat, replayed)
            measure.measure_run(found, "replays", self.subject, repeat, replayed.result, exact=not natural)
            self._times(found, repeat, replayed)
        found.made["replays", self.subject] = measure.made_of(
            self.scenario, self.build.name, replace(self.order, weights=self.weights)
        )  # fmt: skip

    def _judge(self, found: Found, repeat: int, replayed: Replayed) -> None:
        result, tail = replayed.result, f", repeat {repeat}" if repeat else ""
        measure.judge_run(found, "replays", self.subject, repeat, self.build, result, bool(result.missed))
        by_law: dict[str, list[Violation]] = {}
        for finding in replayed.findings:
            by_law.setdefault(finding.code, []).append(finding)
        for code, findings in by_law.items():
            message, detail = measure.told(findings)
            found.case("replays", self.subject, f"{code} on the device{tail}", FAILED, message, detail)
        verdict, words = PASSED, "the device's memory is the model's"
        if not replayed.equal:
            verdict, words = FAILED, "the device's memory is not the model's"
        elif replayed.exit_code == 3:
            verdict, words = UNCHECKED, words_for(replayed)
        found.case("replays", self.subject, f"memories{tail}", verdict, words)

    def _times(self, found: Found, repeat: int, replayed: Replayed) -> None:
        """The mean time of a step; the first of several repeats compiles kernels, and a CPU's times are nobody's."""
        steps = sum(worker.steps for worker in replayed.workers)
        if self.place.on != GPU or not steps or repeat < min(1, self.repeats - 1):
            return
        seconds = sum(worker.seconds + worker.dispatch_seconds for worker in replayed.workers)
        found.sample("replays", self.subject, "step_ms", repeat, "repeat", 0, 1e3 * seconds / steps)


def drill(suite: Suite, place: Place) -> Iterator[Step]:
    if suite.device_drill is None:
        return
    names, room = tuple(suite.device_drill.faults), place.devices
    assert room is not None
    for at, name in enumerate(names):
        if name not in room.drillable():
            problem = unknown_name("a fault", name, room.drillable(), "kvtwin drill --device cpu")
            raise suite.located(("device_drill", "faults", at), problem)

    def work(found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        rows, interrupted = room.drill(names, _device(place), tick)
        for row in rows:
            first = row.found[0] if row.found else "nothing"
            words = f"{row.verdict}: expected {' or '.join(row.wanted)} first, found {first}"
            verdict = PASSED if row.verdict == CAUGHT else FAILED
            found.case("device drill", row.name, row.scenario, verdict, words, row.message)
            found.figure("device drill", row.name, 0, "outcome", row.verdict)
            found.made["device drill", row.name] = row.scenario
        if interrupted:
            raise Cut

    yield Step("device drill", "", "drill on the device", work)
