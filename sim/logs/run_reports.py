"""METRIC: what a run folder reports beside its log, against the ledger of the log."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scenarios.errors import InputError
from sim.logs.findings import LogLaw
from sim.logs.run_book import Worker

RESULT, REQUESTS, EVENTS = "result.json", "requests.csv", "events.jsonl"


class Reported(LogLaw):
    """The totals of ``result.json`` and the rows of ``requests.csv``."""

    code, name = "METRIC", "reported"
    sentence = "The totals and the rows of requests that a run reports equal the ledger of its log."
    needs = "run folder: result.json and requests.csv beside it"

    def compare(self, folder: Path, workers: list[Worker]) -> None:
        """Hold both files to the sums over all workers."""
        totals = _json(folder / RESULT).get("totals")
        if not isinstance(totals, dict):
            raise InputError(str(folder / RESULT), 0, "totals", f"expected an object, found {totals!r}")
        if any(worker.submitted & other.submitted for n, worker in enumerate(workers) for other in workers[:n]):
            self.undecided += 1  # ranks of one engine, each of which does all the work
            return
        for name, value in _totals(workers).items():
            if name in totals:
                self._equal(RESULT, name, value, totals[name])
        prefilled = _sum(workers, "prefilled")
        outputs: dict[int, int] = {}
        for worker in workers:
            for request, asked in worker.requests.items():
                outputs[request] = outputs.get(request, 0) + asked.output
        rows: set[int] = set()
        for line, row in _rows(folder / REQUESTS):
            try:
                request = int(row["request_id"])
                told = {name: int(row[name]) for name in ("prefilled_tokens", "output_tokens")}
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(str(folder / REQUESTS), line, "", f"expected a row of a request: {error}") from error
            self.place.line, self.place.event = line, None
            rows.add(request)
            self._equal(f"request {request}", "prefilled_tokens", prefilled.get(request, 0), told["prefilled_tokens"])
            self._equal(f"request {request}", "output_tokens", outputs.get(request, 0), told["output_tokens"])

        for request in sorted(outputs.keys() - rows):
            self._equal(f"request {request}", "a row", 1, 0)

    def _equal(self, where: str, name: str, expected: int, found: Any) -> None:
        self.evaluations += 1
        if expected != found:
            self.report("", where, f"{name} is reported", expected, found)


def _totals(workers: list[Worker]) -> dict[str, int]:
    told = {
        "prefilled_tokens": sum(worker.chunk_tokens for worker in workers),
        "context_rows": sum(worker.chunks for worker in workers),
        "decode_rows": sum(worker.steps for worker in workers),
        "output_tokens": sum(worker.outputs for worker in workers),
        "finished": sum(worker.finished for worker in workers),
        "lost_copies": sum(worker.lost for worker in workers),
        "deferrals": sum(worker.deferred for worker in workers),
    }
    if len(workers) == 1 and not workers[0].dummies:  # a fleet runs in lock step, idle workers with dummies
        told["iterations"] = workers[0].iterations
    return told


def _sum(workers: Iterable[Worker], name: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for worker in workers:
        for request, tokens in getattr(worker, name).items():
            found[request] = found.get(request, 0) + tokens
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(path), 0, "", f"expected the result of a run, found: {error}") from error
    if not isinstance(value, dict):
        raise InputError(str(path), 0, "", "expected an object")
    return value


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            return [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), 0, "", f"expected the requests of a run, found: {error}") from error
