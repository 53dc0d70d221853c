"""The shape of JUnit XML that Jenkins' and GitLab's readers share, as far as a nightly writes it.

After the schema of Jenkins' xUnit plugin (junit-10.xsd) and GitLab's list of the attributes that it reads.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

_COUNT, _TIME, _TEXT = r"\d+", r"\d+\.\d+", r"(?s).+"
# element -> attributes (needed ones first), allowed children, whether it may hold text
_SHAPE: dict[str, tuple[dict[str, str], dict[str, str], set[str], bool]] = {
    "testsuites": (
        {"name": _TEXT, "tests": _COUNT, "failures": _COUNT, "errors": _COUNT, "time": _TIME}, {}, {"testsuite"}, False,
    ),
    "testsuite": (
        {"name": _TEXT, "tests": _COUNT, "failures": _COUNT, "errors": _COUNT, "time": _TIME},
        {"skipped": _COUNT}, {"testcase"}, False,
    ),
    "testcase": ({"name": _TEXT, "classname": _TEXT, "time": _TIME}, {}, {"failure", "error", "skipped"}, False),
    "failure": ({"message": _TEXT, "type": _TEXT}, {}, set(), True),
    "error": ({"message": _TEXT, "type": _TEXT}, {}, set(), True),
    "skipped": ({"message": _TEXT}, {}, set(), False),
}  # fmt: skip


def problems(text: str) -> list[str]:
    """What is wrong with ``text`` as JUnit XML, a line each."""
    root = ET.fromstring(text)
    found = [] if root.tag == "testsuites" else [f"root: {root.tag}"]
    for element in root.iter():
        if element.tag not in _SHAPE:
            found.append(f"unknown element {element.tag}")
            continue
        needed, optional, children, may_tell = _SHAPE[element.tag]
        for name, pattern in needed.items():
            if not re.fullmatch(pattern, element.get(name, "")):
                found.append(f"{element.tag}: {name}={element.get(name)!r}")
        found += [f"{element.tag}: unknown {name}" for name in element.attrib if name not in needed | optional]
        found += [f"{child.tag} in {element.tag}" for child in element if child.tag not in children]
        if (element.text or "").strip() and not may_tell:
            found.append(f"text in {element.tag}")
    return found + [line for suite in (root, *root) for line in _miscounted(suite)]


def _miscounted(suite: ET.Element) -> list[str]:
    cases = list(suite.iter("testcase"))
    counted = {"tests": len(cases)}
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counted[attribute] = sum(case.find(tag) is not None for case in cases)
    told = {name: int(suite.get(name, "0")) for name in counted if name in suite.attrib}
    wrong = {name: value for name, value in told.items() if value != counted[name]}
    several = [case.get("name") for case in cases if len(case) > 1]
    return [f"{suite.get('name')}: {wrong}, {several}"] if wrong or several else []
