"""The JSON Schema of ``check.json`` and of what ``kvtwin check --json`` prints.

``schema_version`` goes up where a reader of the version before would be misled; further laws leave it as it is.
"""

from __future__ import annotations

from typing import Any

from reports.log_checks import SCHEMA_VERSION
from sim.logs.check import FORMATS

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}
_CODE = {**_TEXT, "description": "an invariant, as kvtwin invariants lists them, or LOSSLESS"}
_LAW: dict[str, Any] = {
    "code": _CODE,
    "law": {**_TEXT, "description": "name of the law: several may belong to one invariant"},
    "sentence": _TEXT,
    "needs": {**_TEXT, "description": "what a log must have for the law to be evaluated"},
    "evaluations": _COUNT,
    "undecided": {**_COUNT, "description": "cases that the log leaves open"},
    "broken": {**_COUNT, "description": "all that were found, also beyond those listed as findings"},
}
_FINDING: dict[str, Any] = {
    "code": _CODE,
    "law": _TEXT,
    "line": {**_COUNT, "description": "of the log, from 1"},
    "event": {"type": ["integer", "null"], "description": "as the log numbers it: event_id, seq or iteration"},
    "pool": {**_TEXT, "description": "rank, window, layer group, medium or worker"},
    "block": {**_TEXT, "description": "hash of a block; of kvtwin's own logs a request or an owner"},
    "message": _TEXT,
    "expected": _TEXT,
    "found": _TEXT,
}
_CHECK: dict[str, Any] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "log": _TEXT,
    "format": {"enum": list(FORMATS)},
    "verdict": {"enum": ["fine", "law broken", "nothing checked"]},
    "events": {**_COUNTS, "description": "how many of each kind"},
    "unknown": {**_COUNTS, "description": "fields and kinds of events that were passed over"},
    "evaluations": _COUNT,
    "broken": _COUNT,
    "not_checked": {
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "invariants that were not evaluated, and why the log does not allow it",
    },
    "pools": {"type": "array", "items": {"type": "object", "required": ["pool"]}},
}


def check_schema() -> dict[str, Any]:
    """Holds the verdict on one log."""
    lists = {"laws": _listed(_LAW), "findings": _listed(_FINDING)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvtwin check, version {SCHEMA_VERSION}",
        **_object(_CHECK | lists),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}


def _listed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties)}
