"""What a campaign leaves of a failure: a folder with the command that repeats it, its traces, story and picture.

repro.txt              the command that repeats it from the minimal trace, then who found it
<law>_<hash>.yaml      the minimal trace as a scenario: a regression, once it lies in scenarios/regressions
trace.jsonl            the program as it was found
minimal.jsonl          what is left of it
story.txt              the minimal one, a line an op
timeline.svg           and as a picture
crash.txt              the traceback of a crash or a hang, the lines of a rule of the user's first

A law that a replay does not evaluate, the campaign's own command repeats; there is no scenario file of it.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from model.builds import Build
from reports.document import violation_document
from reports.failure_story import story
from reports.folder import Output, stamp
from reports.story import headline
from reports.timeline import timeline, write_timeline
from scenarios.user_rules import SEPARATOR, base_of, is_own
from sim.cacheops import CacheProgram, encode_cache_op, save_program
from sim.crashes import CRASH, HANG
from sim.findings import Failure, Program
from sim.optrace import Trace, save_trace
from sim.regression import trace_yaml
from sim.rulespec import find
from sim.sampling import Sample, samples

REPRO, TRACE, MINIMAL, STORY, TIMELINE = "repro.txt", "trace.jsonl", "minimal.jsonl", "story.txt", "timeline.svg"
TRACEBACK = "crash.txt"
_SUMMARY = 110  # characters that the catalogue has room for


def name_of(failure: Failure) -> str:
    """Name of a failure's folder and of its scenario: the law and a hash of its build and its cause."""
    text = "\0".join((failure.minimal.build, *failure.cause))
    return f"{failure.law}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def write(folder: Path, failure: Failure, command: str, place: Path | None = None) -> Path:
    """Write the failure into a folder of its own below ``folder``, whole or not at all; the path of it.

    ``command`` is the campaign's. ``place`` is the folder in which it will lie in the end, for the command that repeats
    it (``folder`` by default). An older folder of the same failure is replaced.
    """
    name = name_of(failure)
    with Output(folder / name, several=False) as output:
        _fill(output.folder(name), name, failure, command, (place or folder) / name)
    return folder / name


def _fill(folder: Path, name: str, failure: Failure, command: str, place: Path) -> None:
    for file, program in ((TRACE, failure.trace), (MINIMAL, failure.minimal)):
        _save(folder / file, program)
    found = [f"found by: {command}", f"driver {failure.driver}, seed {failure.seed}", _headline(failure)]
    minimal = failure.minimal
    if isinstance(minimal, CacheProgram):  # of the cache layer alone: no engine runs it
        found.append("no scenario file and no picture: no engine runs a program of the cache layer")
        again = f"kvtwin run --ops {shlex.quote(str(place / MINIMAL))}"
        (folder / REPRO).write_text("\n".join([again, *found]) + "\n", encoding="utf-8")
        lines = [json.dumps(encode_cache_op(op)) for op in minimal.ops]
        (folder / STORY).write_text("\n".join([*lines, _headline(failure)]) + "\n", encoding="utf-8")
        stamp(folder, "failure")
        return
    again = f"kvtwin run --ops {shlex.quote(str(place / MINIMAL))} --check exhaustive"
    if failure.law == HANG or failure.deadly:  # watching it would not end, or end this process
        ends = "ends the process that runs it, and kvtwin with it" if failure.deadly else "does not end"
        found.append(f"no scenario file, no story and no picture: the program {ends}")
        if not failure.deadly:
            found.append("the command above has no limit: Ctrl-C ends it")
        if failure.stack:
            (folder / TRACEBACK).write_text(failure.stack, encoding="utf-8")
        (folder / REPRO).write_text("\n".join([again, *found]) + "\n", encoding="utf-8")
        stamp(folder, "failure")
        return
    seen, codes = _watched(minimal, find(minimal.build))
    scenario, why = _scenario(failure, minimal)
    if failure.law not in codes:  # only the fuzzer judges it: its oracle, what a machine expects of a whole scenario
        again, scenario = command, ""
        why = why or f"{failure.law} is not among what a replay of {MINIMAL} breaks; the fuzzer judged it"
    if seen and seen[-1].traceback:
        (folder / TRACEBACK).write_text(seen[-1].traceback, encoding="utf-8")
    if scenario:
        (folder / f"{name}.yaml").write_text(scenario, encoding="utf-8")
    else:
        found.append(f"no scenario file: {why}")
    for module, where in _own(minimal):
        found.append(f"run it in {where} or with that on PYTHONPATH: the rule's module {module}")
    (folder / REPRO).write_text("\n".join([again, *found]) + "\n", encoding="utf-8")
    told = story(seen, failure.violation)
    told += "" if failure.law in codes else f"No row shows it: {why}.\n"
    (folder / STORY).write_text(told, encoding="utf-8")
    figure = timeline(seen, failure.violation, minimal.config.limits.page_size, minimal.build)
    write_timeline(folder / TIMELINE, figure)
    stamp(folder, "failure")


def _save(path: Path, program: Program) -> None:
    if isinstance(program, CacheProgram):
        save_program(path, program)
    else:
        save_trace(path, program)


def _headline(failure: Failure) -> str:
    return headline(violation_document(failure.violation))


def _own(trace: Trace) -> list[tuple[str, Path]]:
    """Modules of the user's rules that a trace needs, each with the directory in which it was found."""
    places = [part.partition("=")[2] for part in trace.build.split(SEPARATOR)[1:]]
    found = []
    for name in dict.fromkeys(place.partition(":")[0] for place in places):
        file = Path(sys.modules[name].__file__ or name)
        found.append((name, file.resolve().parents[name.count(".") + (file.name == "__init__.py")]))
    return found


def _watched(trace: Trace, build: Build) -> tuple[list[Sample], set[str]]:
    """The minimal trace up to the op that breaks the first law, and the laws that all of it breaks."""
    seen: list[Sample] = []
    codes: set[str] = set()
    for sample in samples(trace, build):
        if not codes:
            seen.append(sample)
        codes |= {violation.code for violation in sample.violations}
    return seen, codes


# -- the scenario ------------------------------------------------------------------------------------------------------


def _scenario(failure: Failure, minimal: Trace) -> tuple[str, str]:
    """The text of the scenario file, or why there is none."""
    violation = failure.violation
    build = find(minimal.build)
    comments = [
        f"Found by the driver {failure.driver} with seed {failure.seed}: {_headline(failure)}.",
        f"{violation.code} on {minimal.build}: {_moral(build)}",
    ]
    comments += [
        f"It needs the module {name} of the rule, in the current directory or on sys.path." for name, _ in _own(minimal)
    ]
    if is_own(minimal.build):
        comments.append("The suite does not know the rule: as a regression, name the build that took it over instead.")
    summary = shorten(f"{violation.code} on {base_of(minimal.build)}: {violation.message}", _SUMMARY, placeholder="...")
    named = replace(minimal, scenario=summary, seed=0)
    try:
        return trace_yaml(named, comments, expectation(build, minimal)), ""
    except ValueError as error:
        return "", str(error)


def _moral(build: Build) -> str:
    if build.correct or is_own(build.name):
        return "no law may break here, so that this fails as long as the bug is there and passes once it is gone."
    return "this is what the build shows; every correct build is silent on the same ops."


def expectation(build: Build, minimal: Trace) -> dict[str, Any]:
    """What a scenario expects of its build: silence, unless that is a fault or a historical build.

    These go on breaking the laws that they broke here; the first of them is promised, others may follow.
    """
    if build.correct or is_own(build.name):
        return {"violations": []}
    codes = list(dict.fromkeys(one.code for sample in samples(minimal, build) for one in sample.violations))
    if CRASH in codes:  # a run that ends so has no laws to promise
        return {"violations": None}
    return {"violations": codes[:1], "may": codes[1:]} if codes[1:] else {"violations": codes}
