"""Traces of ops on file: what came into an engine and nothing of what it decided, so that it can decide again.

JSON lines: a header (schema version, scenario, build, seed, check level, configuration), the ops in order, and an
end line with the number of ops and the digests of the run that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.config import EngineConfig
from model.ops import CHECKS, At, Op
from model.topology import CLUSTERS, Topology
from scenarios.errors import FieldError, InputError, field_name, quote, reason_of
from sim.files import write_lines
from sim.opcodec import decode_config, decode_op, encode_config, encode_op
from sim.opconfig import check_config

SCHEMA = 1
FORMAT = "kvtwin-ops"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace of ops. The digests are empty where the run that wrote it had none; ``file`` is where it was read."""

    scenario: str
    build: str
    seed: int
    check: str
    config: EngineConfig
    ops: tuple[At | Op, ...]
    decision_digest: str = ""
    memory_digest: str = ""
    workers: Topology | None = None  # several of them; ``config`` is then the first one's
    file: str = field(default="", compare=False)


def save_trace(path: Path, trace: Trace) -> None:
    """Write ``trace`` to ``path``, whole or not at all."""
    write_lines(path, _lines(trace))


def _lines(trace: Trace) -> Iterator[str]:
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        "scenario": trace.scenario,
        "build": trace.build,
        "seed": trace.seed,
        "check": trace.check,
        "config": encode_config(trace.config),
    }
    if trace.workers is not None:
        configs = [encode_config(config) for config in trace.workers.configs]
        header["workers"] = {"kind": trace.workers.kind, "configs": configs, "options": dict(trace.workers.options)}
    yield _json(header)
    for op in trace.ops:
        yield _json(encode_op(op))
    digests = {"decision_digest": trace.decision_digest, "memory_digest": trace.memory_digest}
    yield _json({"end": len(trace.ops), **digests})


def load_trace(path: Path) -> Trace:
    """Read a trace. Raises InputError with one line that names the file, the line and what was expected there."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"expected a readable trace of ops, found: {reason_of(error)}") from error
    if not lines:
        raise InputError(str(path), 0, "", "expected a header and an end line, found an empty file")
    if len(lines) < 2:
        raise InputError(str(path), 0, "", "expected a header and an end line, found a single line")
    values = [_parse(path, number, line) for number, line in enumerate(lines, 1)]
    header, end = values[0], values[-1]
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("schema") != SCHEMA:
        raise InputError(str(path), 1, "", f"expected the header of a {FORMAT} trace of schema {SCHEMA}")
    if not isinstance(end, dict) or end.get("end") != len(lines) - 2:
        raise InputError(str(path), len(lines), "", f"expected the end line of {len(lines) - 2} ops: the trace is cut")
    ops = []
    for number, value in enumerate(values[1:-1], 2):
        try:
            ops.append(decode_op(value))
        except ValueError as error:
            raise InputError(str(path), number, "", str(error)) from error
    return _trace(path, header, end, tuple(ops))


def _trace(path: Path, header: dict[str, Any], end: dict[str, Any], ops: tuple[At | Op, ...]) -> Trace:
    try:
        config = decode_config(header["config"])
        check_config(config)
        if header["check"] not in CHECKS:
            raise FieldError(("check",), f"expected one of {', '.join(CHECKS)}, found {quote(header['check'])}")
        return Trace(
            scenario=str(header["scenario"]),
            build=str(header["build"]),
            seed=int(header["seed"]),
            check=str(header["check"]),
            config=config,
            ops=ops,
            decision_digest=str(end.get("decision_digest", "")),
            memory_digest=str(end.get("memory_digest", "")),
            workers=_workers(header.get("workers")),
            file=str(path),
        )
    except FieldError as error:
        raise InputError(str(path), 1, field_name(error.location), error.problem) from error
    except KeyError as error:
        raise InputError(str(path), 1, "", f"expected the key {error.args[0]} in the header") from error
    except (TypeError, ValueError) as error:
        raise InputError(str(path), 1, "", f"expected a header that fits this version: {error}") from error


def _workers(value: Any) -> Topology | None:
    """The workers that the header tells of, if they were several."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("kind") not in CLUSTERS:
        raise FieldError(("workers", "kind"), f"expected one of {', '.join(CLUSTERS)}, found {quote(value)}")
    configs = tuple(decode_config(config) for config in value["configs"])
    for config in configs:
        check_config(config)
    options = {str(name): int(option) for name, option in dict(value.get("options", {})).items()}
    return Topology(value["kind"], configs, tuple(options.items()))


def _parse(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), number, "", f"expected a line of JSON, found {quote(line)}") from error


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
