"""One run as tables, whichever way it was made: in this process, or read from a folder of ``run`` or ``replay``."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reports.course import Course, course_of
from reports.course_files import COURSE, read_course
from reports.document import request_rows, run_document
from reports.folder import MARK
from reports.run_folder import REPLAY, REQUESTS, RESULT, SPECULATION, read_json
from scenarios.errors import InputError, reason_of
from sim.result import RunResult

if TYPE_CHECKING:
    from reports.stories import Told


FOLLOWED = 2_000  # requests up to which a comparison keeps the course of its runs: a page has to hold it
STEP_COLUMNS = {"request_id": "int64", "index": "int64", "accepted": "int64"}
_SHOWN = 40  # letters of a field that is not of its form
_TEXT, _WHOLE, _MAPPING, _ROWS = (str, "text"), (int, "an integer"), (dict, "a mapping"), (list, "a list")
_FORM = {
    "scenario": _TEXT, "build": _TEXT, "check": _TEXT, "verdict": _TEXT, "seed": _WHOLE, "requests": _WHOLE,
    "acceptance": _MAPPING, "summary": _MAPPING, "totals": _MAPPING, "digests": _MAPPING, "checked": _MAPPING,
    "pools": _ROWS, "lifecycles": _ROWS, "violations": _ROWS, "missed": _ROWS, "notes": _ROWS,
}  # fmt: skip
_TIMED = ("turn", "submit_ms", "ttft_ms", "tpot_ms", "e2e_ms")
_TEXTS: dict[Hashable, type[object]] = {"session": str, "claim_kind": str, "state": str, "claims": str}


@dataclass(frozen=True)
class Evidence:
    """One run of one scenario on one build. ``repeat`` counts runs of both with other seeds, ``on`` is where it ran:
    ``sim``, ``cpu`` or ``cuda``.

    ``requests``: a row a request, the columns of ``requests.csv`` and ``key`` (what names the request in every arm),
    ``first_turn``, ``committed_tokens`` (of its verify steps), ``tokens_per_user`` (1 / ITL, tokens a second) and
    ``tokens_per_user_with_ttft`` (output tokens over the whole latency). ``steps``: a row a verify step of real drafts;
    ``accepted`` is what it committed, the bonus token included, ``accepted_drafts`` one less. ``pools``: a row a
    lifecycle and worker, with its pool (``name`` is ``POOL`` or ``POOL@WORKER``) and its hits (those of all workers).

    ``device``: of a replay its steps, seconds and whether the memories were equal; empty otherwise. ``label``: what the
    reader calls this arm, the build unless told otherwise. ``told``: stories of its first violations, if it has any.
    """

    scenario: str
    build: str
    seed: int
    repeat: int
    on: str
    acceptance_mode: str
    acceptance: str
    drafts: int
    check: str
    verdict: str
    summary: Mapping[str, Any]
    totals: Mapping[str, int]
    digests: Mapping[str, str]
    checked: Mapping[str, int]
    violations: list[dict[str, Any]]
    missed: list[str]
    notes: list[str]
    requests: pd.DataFrame
    steps: pd.DataFrame
    pools: pd.DataFrame
    course: Course | None = None
    device: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    told: Sequence[Told] = ()

    @property
    def arm(self) -> str:
        """What the run is called beside others."""
        return self.label or self.build

    @property
    def timed_on_device(self) -> bool:
        """Whether steps took what a device needed for them: a replay in the device's own order."""
        return self.device.get("order", {}).get("mode") == "free"

    @property
    def codes(self) -> list[str]:
        """Codes of the laws that broke, each once, sorted."""
        return sorted({str(violation["code"]) for violation in self.violations})

    @property
    def nothing_checked(self) -> bool:
        """Whether no law was evaluated."""
        return not any(self.checked.values())


def evidence_of(result: RunResult, repeat: int = 0, on: str = "sim", label: str = "") -> Evidence:
    """The tables of a run that is still in memory."""
    steps = [(timing.request_id, timing.accepted) for timing in result.timings]
    found = _evidence(run_document(result), pd.DataFrame(request_rows(result)), _steps(steps), repeat, on, label=label)
    return replace(found, course=course_of(result))


def read_evidence(folder: Path, repeat: int = 0, label: str = "") -> Evidence:
    """The tables of a run that ``kvtwin run --out`` or ``kvtwin replay --out`` left in ``folder``.

    Raises :class:`InputError`, in one line, for any other folder and for broken files.
    """
    manifest = read_json(folder, MARK)
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind not in ("run", "replay"):
        problem = f"expected the folder of a run or of a replay, found one of kind {kind!r}"
        raise InputError(str(folder), 0, "", problem)
    device: dict[str, Any] = {}
    on = "sim"
    document = read_json(folder, RESULT if kind == "run" else REPLAY)
    try:
        if kind == "replay":
            on = str(document["order"]["device"]).partition(":")[0]
            device = _device(document)
            found = document["findings"]
            document = document["run"]
            document["violations"] = [*document["violations"], *found]
        _check_form(folder / (RESULT if kind == "run" else REPLAY), document)
        requests = _read_requests(folder / REQUESTS)
        if len(requests) != document["requests"]:
            problem = f"expected the {document['requests']} requests of the run, found {len(requests)}"
            raise InputError(str(folder / REQUESTS), 0, "", problem)
        found = _evidence(document, requests, _read_steps(folder / SPECULATION), repeat, on, device, label)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"expected the files of this version of kvtwin, found no {error} in them; run it again"
        raise InputError(str(folder), 0, "", problem) from error
    return replace(found, course=read_course(folder / COURSE))


def _check_form(path: Path, document: Mapping[str, Any]) -> None:
    """Hold every field that the tables are made of to its kind; :class:`InputError` names one that is of another."""
    for name, (kind, words) in _FORM.items():
        if not isinstance(document[name], kind):
            found = repr(document[name])
            problem = f"expected {words}, found {found if len(found) <= _SHOWN else found[:_SHOWN] + '...'}"
            raise InputError(str(path), 0, name, problem)
    if not document["pools"]:
        raise InputError(str(path), 0, "pools", "expected at least one pool, found none")


def _evidence(
    document: Mapping[str, Any],
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    repeat: int,
    on: str,
    device: Mapping[str, Any] | None = None,
    label: str = "",
) -> Evidence:
    acceptance = document["acceptance"]
    requests = _with_figures(requests)
    steps.insert(1, "session", _sessions(requests, steps["request_id"].to_numpy()))
    return Evidence(
        scenario=document["scenario"],
        build=document["build"],
        seed=document["seed"],
        repeat=repeat,
        on=on,
        acceptance_mode=acceptance["mode"],
        acceptance=acceptance["model"],
        drafts=acceptance["drafts"],
        check=document["check"],
        verdict=document["verdict"],
        summary=document["summary"],
        totals=document["totals"],
        digests=document["digests"],
        checked=document["checked"],
        violations=list(document["violations"]),
        missed=list(document["missed"]),
        notes=list(document["notes"]),
        requests=requests,
        steps=steps,
        pools=_pools(document["pools"], document["lifecycles"]),
        device=device or {},
        label=label,
    )


def _sessions(requests: pd.DataFrame, request_ids: NDArray[np.int64]) -> NDArray[np.object_]:
    """The session of each of ``request_ids``; empty where there is no such request."""
    known = requests["request_id"].to_numpy()
    order = np.argsort(known)
    names = np.append(requests["session"].to_numpy(dtype=object)[order], "")
    places = np.searchsorted(known[order], request_ids)
    return names[np.where(np.isin(request_ids, known), places, len(known))]


def _device(replay: Mapping[str, Any]) -> dict[str, Any]:
    workers = replay["workers"]
    return {
        "order": replay["order"],
        "verdict": replay["verdict"],
        "equal": all(worker["equal"] for worker in workers),
        "steps": sum(worker["steps"] for worker in workers),
        "seconds": sum(worker["seconds"] + worker["dispatch_seconds"] for worker in workers),
    }


def _with_figures(requests: pd.DataFrame) -> pd.DataFrame:
    """The requests with what follows from their columns; columns that only a run with a clock has are NaN without."""
    frame = requests.copy()
    for column in (*_TIMED, "coverage_first", "coverage_mean", "shared_tokens"):
        frame[column] = numbers(frame, column)
    frame["session"] = frame["session"].fillna("").astype(str) if "session" in frame else ""
    turns = numbers(frame, "turn")
    # Numbers follow the order of submission, which two builds need not share; a session's turn is the same in both.
    frame["key"] = [
        f"#{request_id}" if np.isnan(turn) else f"{session}/{int(turn)}"
        for request_id, session, turn in zip(frame["request_id"], frame["session"], turns, strict=True)
    ]
    frame["first_turn"] = turns == 0
    steps, latency, between = (_positive(numbers(frame, name)) for name in ("spec_steps", "e2e_ms", "tpot_ms"))
    frame["committed_tokens"] = frame["accepted_drafts"] + frame["spec_steps"]
    frame["acceptance_length"] = frame["committed_tokens"] / steps
    frame["tokens_per_user"] = 1e3 / between
    frame["tokens_per_user_with_ttft"] = 1e3 * frame["output_tokens"] / latency
    return frame


def numbers(frame: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """A column as numbers, NaN where a cell is empty or the frame has no such column."""
    if column not in frame:
        return np.full(len(frame), np.nan)
    return frame[column].astype("float64").to_numpy()


def _positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values > 0, values, np.nan)


def _steps(accepted: Iterable[tuple[int, bytes]]) -> pd.DataFrame:
    """Steps of each request, in order, from the counts of tokens that they committed."""
    rows = [(request_id, np.frombuffer(counts, dtype=np.uint8)) for request_id, counts in accepted if counts]
    lengths = [len(counts) for _, counts in rows]
    frame = pd.DataFrame(
        {
            "request_id": np.repeat(np.array([request_id for request_id, _ in rows], dtype=np.int64), lengths),
            "index": np.concatenate([np.arange(length) for length in lengths]) if rows else np.empty(0),
            "accepted": np.concatenate([counts for _, counts in rows]) if rows else np.empty(0),
        }
    ).astype(STEP_COLUMNS)
    frame["accepted_drafts"] = frame["accepted"] - 1
    return frame


def _pools(pools: Iterable[Mapping[str, Any]], lifecycles: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    rows = []
    for pool in pools:
        name, _, worker = str(pool["name"]).partition("@")
        for life in (life for life in lifecycles if life["pool"] == name):
            sizes = {f"{tier}_bytes": pool[f"{tier}_pages"] * life["pool_page_bytes"] for tier in ("device", "host")}
            rows.append({**pool, "worker": int(worker or 0), **life, **sizes})
    frame = pd.DataFrame(rows)
    frame["window"] = numbers(frame, "window")
    return frame


def _read_requests(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, dtype=_TEXTS, keep_default_na=False, na_values=[""])
    except OSError as error:
        raise InputError(str(path), 0, "", f"expected the requests of a run, found none: {reason_of(error)}") from error
    except ValueError as error:
        raise InputError(str(path), 0, "", f"expected a table of requests, found: {error}") from error


def _committed(accepted: list[int]) -> bytes:
    """What steps committed that accepted so many drafts: those and the bonus token."""
    return (np.array(accepted, dtype=np.uint8) + 1).astype(np.uint8).tobytes()


def _read_steps(path: Path) -> pd.DataFrame:
    """The verify steps, from the speculation records; none where there is no such file."""
    rows: list[tuple[int, bytes]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    rows.append((record["request_id"], _committed(record["per_step_accepted"])))
                except (ValueError, KeyError, TypeError, OverflowError) as error:
                    problem = f"expected a speculation record, found: {error}"
                    raise InputError(str(path), number, "", problem) from error
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"cannot read it: {error}") from error
    return _steps(rows)
