"""The JSON Schema of ``comparison.json`` and of what ``kvtwin compare --json`` prints.

``schema_version`` goes up where a reader of the version before would be misled: a field that is gone or means another
thing. Further figures and fields leave it as it is.
"""

from __future__ import annotations

from typing import Any

from reports.comparison_document import SCHEMA_VERSION

_NUMBER = {"type": ["number", "null"]}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_MODES = ["forced", "modelled", "recorded", "measured"]

_ROW: dict[str, Any] = {
    "metric": {**_TEXT, "description": "name of the figure; a column of comparison.csv"},
    "label": {**_TEXT, "description": "what tables call it"},
    "unit": _TEXT,
    "group": {"enum": ["reuse", "drafter", "latency", "throughput", "memory", "events"]},
    "build": {**_TEXT, "description": "name of the arm"},
    "value": {**_NUMBER, "description": "null: the arm has no such figure"},
    "low": {**_NUMBER, "description": "lower end of the 95 % interval; null: there is none"},
    "high": _NUMBER,
    "before": {**_NUMBER, "description": "the baseline's value"},
    "after": {**_NUMBER, "description": "this arm's value"},
    "ratio": {**_NUMBER, "description": "after / before; null where before is 0"},
    "ratio_low": {**_NUMBER, "description": "of the ratio, in draws that both arms share"},
    "ratio_high": _NUMBER,
    "change": {**_NUMBER, "description": "after - before"},
    "change_low": _NUMBER,
    "change_high": _NUMBER,
    "exact": {"type": "boolean", "description": "follows from the rules: an equal build has the very number"},
    "better": {"enum": ["up", "down", ""], "description": "which way is better, if either is"},
    "resampling": {
        "enum": ["request", "conversation", "seed", "exact", "none"],
        "description": "what the bootstrap draws; exact: nothing varies; none: one run, nothing to draw from",
    },
}
_ACCEPTANCE = {
    "mode": {"enum": [*_MODES, "mixed"], "description": "measured is natural acceptance; forced ones are an input"},
    "model": _TEXT,
}
_BUILD: dict[str, Any] = {
    "name": {**_TEXT, "description": "label of the arm: its build, unless the folder was given another"},
    "build": _TEXT,
    "on": {"enum": ["sim", "cpu", "cuda"], "description": "where it ran"},
    "acceptance": {},
    "seeds": {"type": "array", "items": {"type": "integer"}},
    "digests": {"type": "array", "items": {"type": "object", "additionalProperties": _TEXT}},
    "historical": {"type": "boolean", "description": "may break laws"},
    "laws_broken": _TEXTS,
    "laws_declared": {**_TEXTS, "description": "laws that it is there to break"},
    "missed": {**_TEXTS, "description": "expectations of the scenario"},
}
_COMPARISON: dict[str, Any] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "name": _TEXT,
    "scenario": _TEXT,
    "summary": {**_TEXT, "description": "what was found, a sentence a build"},
    "baseline": {**_TEXT, "description": "name of the arm that ratios are to"},
    "requests": {"type": "integer"},
    "paired_requests": {"type": "integer", "description": "requests that every arm holds"},
    "drafts": {"type": "integer", "description": "K"},
    "repeats": {"type": "integer", "description": "seeds an arm"},
    "resampling": {"enum": ["request", "conversation"], "description": "unit of intervals over requests"},
    "acceptance": {},
    "warning": {"type": ["string", "null"], "description": "why acceptance lengths are no result, where they are none"},
    "notes": _TEXTS,
    "interrupted": {"type": "boolean"},
    "left_out": {**_TEXTS, "description": "builds that Ctrl-C left no result of"},
    "builds": {},
    "rows": {},
    "exit_code": {"enum": [0, 1, 3, 130]},
}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties), **more}


def comparison_schema() -> dict[str, Any]:
    """Holds one comparison, as in ``comparison.json``, and the answer of ``compare --json``, which lists several."""
    acceptance = _object(_ACCEPTANCE, additionalProperties=False)
    build = _object(
        _BUILD | {"acceptance": acceptance},
        additionalProperties=_NUMBER,
        description="one arm; every other field is the value of a figure, as in rows",
    )
    row = _object(_ROW, additionalProperties=False)
    parts = {"acceptance": acceptance, "builds": _listed(build, 1), "rows": _listed(row, 1)}
    comparison = _object(_COMPARISON | parts, additionalProperties=False)
    printed = _object({**_COMPARISON, **parts, "folder": {"type": ["string", "null"]}}, additionalProperties=False)
    answer = _object(
        {"comparisons": _listed({"$ref": "#/$defs/printed"}, 1), "exit_code": {"enum": [0, 1, 3, 130]}},
        additionalProperties=False,
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvtwin comparison, version {SCHEMA_VERSION}",
        "anyOf": [{"$ref": "#/$defs/comparison"}, {"$ref": "#/$defs/answer"}],
        "$defs": {"comparison": comparison, "printed": printed, "answer": answer},
    }


def _listed(items: dict[str, Any], least: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}
