"""A nightly as JUnit XML, in the shape that Jenkins and GitLab read: a suite a subject, a case a question."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import defaultdict

from reports.nightly.night import Night
from reports.nightly.outcome import CRASHED, FAILED, OPEN, PASSED, UNCHECKED, Case
from reports.nightly.sentences import change_text
from sim.nightly.rules import Change

BASELINE = "baseline"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_KINDS = {FAILED: ("failure", "Failed"), CRASHED: ("error", "Crash"), UNCHECKED: ("error", "NothingChecked")}


def document(night: Night) -> str:
    """The XML. What was left out is a skipped case, what only tells (open figures) too."""
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in night.found.cases:
        groups[case.stage, case.subject].append(case)
    for change in night.compared.changes if night.compared is not None else ():
        if change.metric:
            groups[BASELINE, change.subject].append(_case_of(change))
    for stage, subject in sorted(night.left_out):
        if (stage, subject) not in groups:
            groups[stage, subject].append(Case(stage, subject, "left out", OPEN, "it had no turn"))
    if night.compared is not None:
        held = f"{night.compared.exact} exact and {night.compared.noisy} noisy figures were compared"
        groups[BASELINE, "figures"].append(Case(BASELINE, "figures", "compared", PASSED, held))
    root = ET.Element("testsuites", {"name": _text(f"kvtwin nightly {night.suite}")})
    cases = [case for group in groups.values() for case in group]
    _count(root, cases, night.seconds)
    for (stage, subject), group in groups.items():
        name = f"{stage}: {subject}" if subject else stage
        suite = ET.SubElement(root, "testsuite", {"name": _text(name)})
        seconds = night.found.seconds.get((stage, subject), 0.0)
        _count(suite, group, seconds)
        suite.set("skipped", str(sum(case.verdict == OPEN for case in group)))
        for case in group:
            _add(suite, case, seconds / len(group))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case_of(change: Change) -> Case:
    verdict = FAILED if change.fails else PASSED
    return Case(BASELINE, change.subject, f"{change.stage}: {change.metric}", verdict, change_text(change))


def _count(element: ET.Element, cases: list[Case], seconds: float) -> None:
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.verdict == FAILED for case in cases)))
    element.set("errors", str(sum(case.verdict in (CRASHED, UNCHECKED) for case in cases)))
    element.set("time", f"{seconds:.3f}")


def _add(suite: ET.Element, case: Case, seconds: float) -> None:
    place = ".".join(part for part in (case.stage, case.subject) if part)
    element = ET.SubElement(
        suite, "testcase", {"classname": _text(place), "name": _text(case.name), "time": f"{seconds:.3f}"}
    )
    if case.verdict == OPEN:
        ET.SubElement(element, "skipped", {"message": _text(case.message)})
    elif case.verdict in _KINDS:
        tag, kind = _KINDS[case.verdict]
        kind = kind if case.stage != BASELINE else "Regression"
        body = ET.SubElement(element, tag, {"message": _text(case.message), "type": kind})
        body.text = _text(case.detail or case.message)


def _text(words: str) -> str:
    """``words`` without the characters that XML has no place for."""
    return _NOT_XML.sub("�", words)
