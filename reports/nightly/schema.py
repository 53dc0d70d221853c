"""The JSON Schemas of ``nightly.json`` (and of what ``kvtwin nightly --json`` prints) and of ``baseline.json``.

The number in ``schema`` goes up where a reader of the version before would be misled. Further fields leave it as it is.
"""

from __future__ import annotations

from typing import Any

from reports.nightly import baseline
from reports.nightly.files import SCHEMA
from reports.nightly.outcome import CRASHED, FAILED, OPEN, PASSED, UNCHECKED
from reports.nightly.sentences import BAD, GOOD, ODD, PLAIN
from sim.nightly.rules import BETTER, CHANGED, GONE, NEW, REMADE, WORSE

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_VALUE = {"type": ["number", "string", "null"]}
_SHA = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties), **more}


def _listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_KEY = {
    "suite": _object({"name": _TEXT, "digest": _SHA}, additionalProperties=False),
    "on": {"enum": ["sim", "cpu", "gpu"]},
    "device": {**_TEXT, "description": "name of the GPU, or cpu, or sim"},
    "code": {**_TEXT, "description": "version, and a digest of the sources that figures follow from"},
}
_CHANGE = {
    "stage": _TEXT,
    "subject": {**_TEXT, "description": "a scenario on a build, a fault, a figure of the seeds"},
    "metric": {**_TEXT, "description": "empty: only one side has the subject, or it was made of other inputs"},
    "kind": {"enum": [WORSE, BETTER, CHANGED, NEW, GONE, REMADE]},
    "before": _VALUE,
    "after": _VALUE,
    "ratio": {
        "anyOf": [
            {"type": "null", "description": "the figure is exact"},
            _object({"low": {"type": "number"}, "value": {"type": "number"}, "high": {"type": "number"}}),
        ],
        "description": "after / before of a noisy figure; the intervals of a night hold together with 95 %",
    },
    "units": {**_COUNT, "description": "conversations, or repeats, that the bootstrap drew from"},
    "fails": {"type": "boolean", "description": "the nightly is not fine"},
}
_CASE = {
    "stage": _TEXT,
    "subject": _TEXT,
    "name": {**_TEXT, "description": "a law's code, or what else was asked"},
    "verdict": {"enum": [PASSED, FAILED, CRASHED, UNCHECKED, OPEN]},
    "message": _TEXT,
    "detail": _TEXT,
}


def nightly_schema() -> dict[str, Any]:
    """Holds ``nightly.json``; a stage may add a field of its own, such as ``fuzz``."""
    compared = _object({"exact": _COUNT, "noisy": _COUNT}, additionalProperties=False)
    left_out = _object({"stage": _TEXT, "subject": {**_TEXT, "description": "empty: the whole stage"}})
    sentence = _object({"text": _TEXT, "tone": {"enum": [BAD, ODD, GOOD, PLAIN]}}, additionalProperties=False)
    properties = {
        "schema": {"const": SCHEMA},
        **_KEY,
        "exit_code": {"enum": [0, 1, 3, 4, 130]},
        "verdict": {**_TEXT, "description": "the nightly in one sentence"},
        "sentences": {**_listed(sentence), "description": "what got worse, the worst first; then the rest"},
        "interrupted": {"type": "boolean"},
        "seconds": {"type": "number"},
        "baseline": {"type": ["string", "null"], "description": "the folder that the figures were held to"},
        "compared": {"anyOf": [{"type": "null"}, compared], "description": "how many figures were compared"},
        "changes": _listed(_object(_CHANGE, additionalProperties=False)),
        "cases": _listed(_object(_CASE, additionalProperties=False)),
        "left_out": {**_listed(left_out), "description": "what had no turn, or crashed"},
        "skipped": {**_listed(_TEXT), "description": "stages that need another place"},
    }
    return {"$schema": _DRAFT, "title": f"kvtwin nightly, {SCHEMA}", **_object(properties)}


def baseline_schema() -> dict[str, Any]:
    """Holds ``baseline.json``: exact figures by stage, subject and metric, a value a repeat."""
    figures = {"type": "object", "additionalProperties": _listed(_VALUE)}
    subject = _object({"made": {**_TEXT, "description": "digest of its inputs"}, "figures": figures})
    properties = {
        "schema": {"const": baseline.SCHEMA},
        **_KEY,
        "lacks": {**_TEXT, "description": "why nothing can be held to it; empty: it can"},
        "stages": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": subject}},
    }
    return {"$schema": _DRAFT, "title": f"kvtwin baseline, {baseline.SCHEMA}", **_object(properties)}
