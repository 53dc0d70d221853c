"""The stages that need no device: comparisons, figures of the seeds, the drill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from model.builds import Build
from model.faults import FAULTS
from reports import drill as drills
from reports import seeds, terminal
from reports.catalogue import find_build
from reports.document import plural
from reports.evidence import evidence_of
from reports.figures import FIGURES
from reports.nightly import measure
from reports.nightly.outcome import FAILED, OPEN, PASSED, UNCHECKED, ComparedRun, Found
from reports.nightly.steps import Cut, Kept, Step, add
from reports.nightly.suite import Suite
from reports.options import FOUR_BUILDS
from scenarios.expect import Expect
from scenarios.schema import Scenario
from sim.run import run_scenario


def comparisons(suite: Suite) -> Iterator[Step]:
    seen: set[str] = set()
    for at, group in enumerate(suite.comparisons):
        for number, name in enumerate(group.scenarios):
            location = ("comparisons", at, "scenarios", number)
            scenario = suite.scenario(name, location)
            for build_name in group.builds or scenario.builds or FOUR_BUILDS.split(","):
                build = find_build(build_name)
                subject = measure.subject_of(scenario, build)
                if subject in seen:
                    raise suite.located(location, f"expected each scenario and build once, found {subject} twice")
                seen.add(subject)
                work = _Compared(name, at, scenario, build, group.repeats, group.check)
                yield Step("comparisons", subject, subject, work)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A scenario on a build, with several seeds. Only of its own seed a scenario expects anything."""

    name: str
    group: int
    scenario: Scenario
    build: Build
    repeats: int
    check: str

    def __call__(self, found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        scenario, build, stage = self.scenario, self.build, "comparisons"
        subject = measure.subject_of(scenario, build)
        named = {scenario.build, *scenario.builds, *scenario.expect.by_build}
        expects = scenario.expect != Expect() and build.name in named and measure.declared_by(build) is None
        for repeat in range(self.repeats):
            what = scenario
            if repeat:
                what = scenario.replace(seed=(scenario.seed + repeat) % (1 << 63), expect=Expect())
            result = run_scenario(what, build, check=self.check, progress=tick).whole()
            part = Found()
            again = "" if repeat else f"\nrepeat it: kvtwin run {quote(self.name)} --build {quote(build.name)}"
            measure.judge_run(part, stage, subject, repeat, build, result, expects and not repeat, again)
            measure.measure_run(part, stage, subject, repeat, result)
            if kept is not None:
                evidence = evidence_of(result, repeat)
                part.runs.append(ComparedRun(self.group, evidence, measure.declared_by(build), expects))
            add(found, part)
        found.made[stage, subject] = measure.made_of(scenario, self.check)


def figures(suite: Suite) -> Iterator[Step]:
    if suite.seeds is None:
        return
    asked = suite.seeds

    def work(found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        for row in seeds.run(tuple(asked.figures), asked.fast):
            name = row.figure.id
            parts = "\n".join(f"{part.what}: seed {part.seed}, ours {part.ours} ({part.verdict})" for part in row.parts)
            verdict = FAILED if row.broken else PASSED if row.parts else OPEN
            words = f"{row.figure.what}: {row.verdict}" if row.parts else f"needs {row.figure.needs}"
            found.case("seeds", name, row.figure.what, verdict, words, parts)
            for part in row.parts:
                found.figure("seeds", name, 0, f"figure:{part.what}", part.ours)
            found.made["seeds", name] = ""
        if not found.exact:
            found.case("seeds", "figures", "figures", UNCHECKED, "no figure was measured")

    yield Step("seeds", "", f"figures of the seeds ({len(asked.figures) or len(FIGURES)})", work)


def drill(suite: Suite) -> Iterator[Step]:
    if suite.drill is None:
        return
    names = tuple(suite.drill.faults)

    def work(found: Found, tick: terminal.Tick, kept: Kept | None) -> None:
        rows, interrupted = drills.drill(names, tick)
        for row in rows:
            words = f"{row.verdict}: expected {row.wanted} first, found {row.first or 'no law broken'}"
            if row.base_fired:
                words = f"{row.verdict}: the sound build {row.base} broke {', '.join(row.base_fired)}"
            found.case("drill", row.name, row.scenario, PASSED if row.verdict == drills.CAUGHT else FAILED, words)
            found.figure("drill", row.name, 0, "outcome", f"{row.verdict}: {' '.join(row.fired)}")
            found.made["drill", row.name] = f"{row.scenario} {row.base}"
        if interrupted:
            raise Cut

    yield Step("drill", "", f"drill of {plural(len(names) or len(FAULTS), 'fault')}", work)
