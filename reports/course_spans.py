"""What requests did and when, from the decisions of one worker: a table of spans for each kind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from model.events import Kind
from reports.decisions import Decisions, Ints
from reports.document import plural

KINDS = (
    "queued",
    "chunk",
    "generation",
    "suspended",
    "claim",
    "publication",
    "copy",
    "transfer",
    "preempted",
    "finished",
)
NOBODY = -1
_ENDS = (Kind.FINISH, Kind.CANCEL)
_FAR = 1 << 62


class Spans:
    """Spans of one worker. ``pools`` names its pools by index; ``owner_of`` the last owner of each (pool, page) by an
    iteration, for copies between the tiers."""

    def __init__(self, decisions: Decisions, pools: list[str], owner_of: OwnerOf) -> None:
        self.log, self.pools, self.owner_of = decisions, pools, owner_of
        self.requests = requests_by_owner(decisions)

    def tables(self) -> Iterator[pd.DataFrame]:
        """A table for each kind that there is anything of; columns not named are filled in by the caller."""
        yield from (self._queued(), self._chunks(), self._generation(), self._claims(), self._publications())
        yield from (self._copies(), self._moves(), self._tier_copies(), self._transfers())
        yield from (self._ended(Kind.FINISH, "finished"), self._ended(Kind.CANCEL, "cancelled"))
        rows = (*_ENDS, Kind.PREEMPT)
        yield self._until("suspended", Kind.SUSPEND, (Kind.CHUNK, Kind.STEP, *rows), begins=True)
        yield self._until("preempted", Kind.PREEMPT, (Kind.CLAIM, *_ENDS))

    # -- of requests ---------------------------------------------------------------------------------------------

    def _queued(self) -> pd.DataFrame:
        """From submission to the first claim; the note names whose prefix the request waited for."""
        table = self._until("queued", Kind.SUBMIT, (Kind.CLAIM, *_ENDS))
        deferred = self.log.fields(Kind.DEFER)
        behind = dict(zip(deferred["request"].tolist(), deferred["behind"].tolist(), strict=True))
        waited = [behind.get(request) for request in table["request_id"]]
        table["note"] = ["" if one is None else f"waited for the prefix of request {one}" for one in waited]
        table["tokens"] = self.log.fields(Kind.SUBMIT)["prompt"]
        return table

    def _chunks(self) -> pd.DataFrame:
        rows, iterations = self.log.fields(Kind.CHUNK), self._iterations(Kind.CHUNK)
        ends = zip(rows["start"].tolist(), rows["end"].tolist(), rows["last"].tolist(), strict=True)
        return pd.DataFrame(
            {
                "kind": "chunk",
                "request_id": rows["request"],
                "begin_ns": self.log.begins(iterations),
                "end_ns": self.log.finishes(iterations),
                "iteration": iterations,
                "tokens": rows["end"] - rows["start"],
                "position": rows["start"],
                "note": [f"tokens {start}..{end}{', the last' if last else ''}" for start, end, last in ends],
            }
        )

    def _generation(self) -> pd.DataFrame:
        """Verify steps in a row, until the request is suspended, preempted or ends; tokens are those that it kept."""
        log = self.log
        steps, rows = log.fields(Kind.STEP), log.places(Kind.STEP)
        request, iterations = steps["request"], log.iterations[rows]
        runs = _runs(request, rows, *self._of((Kind.SUSPEND, Kind.PREEMPT, Kind.CLAIM)))
        order = np.lexsort((rows, request))
        heads = np.flatnonzero(np.r_[True, (np.diff(request[order]) != 0) | (np.diff(runs[order]) != 0)][: len(order)])
        tails = np.append(heads[1:], len(order))[: len(heads)] - 1
        first, last = order[heads], order[tails]
        return pd.DataFrame(
            {
                "kind": "generation",
                "request_id": request[first],
                "begin_ns": log.begins(iterations[first]),
                "end_ns": log.finishes(iterations[last]),
                "iteration": iterations[first],
                "tokens": self._kept(request[first], rows[first]),
                "note": [plural(count, "verify step") for count in (tails - heads + 1).tolist()],
            }
        )

    def _kept(self, request: Ints, start: Ints) -> Ints:
        """Tokens that settled after each of the runs (request, first record) began and before the next one did; the
        first token of a request, which its prompt brings, aside."""
        settled, records = self.log.settled()
        submitted = self.log.fields(Kind.SUBMIT)
        prompts = dict(zip(submitted["request"].tolist(), submitted["prompt"].tolist(), strict=True))
        order = np.lexsort((records, settled[:, 0]))
        owner, known = settled[order, 0], settled[order, 2]
        fresh = np.r_[True, np.diff(owner) != 0][: len(order)]
        gained = np.diff(known, prepend=0)
        gained[fresh] = known[fresh] - np.array([prompts.get(one, 0) + 1 for one in owner[fresh].tolist()])
        gained[fresh] = np.where(np.isin(owner[fresh], submitted["request"]), gained[fresh], 0)
        run = _last_before(request, start, owner, records[order])
        return np.bincount(run[run >= 0], weights=gained[run >= 0], minlength=len(request)).astype(np.int64)

    def _claims(self) -> pd.DataFrame:
        rows = self.log.fields(Kind.CLAIM)
        told = zip(rows["fresh"].tolist(), rows["branch"].tolist(), strict=True)
        table = self._instants("claim", Kind.CLAIM, rows["request"])
        table["tokens"] = rows["tokens"]
        table["note"] = [
            ", ".join((["fresh mirror"] if fresh else []) + ([f"branch at {branch}"] if branch >= 0 else []))
            for fresh, branch in told
        ]
        return table

    def _ended(self, kind: Kind, how: str) -> pd.DataFrame:
        rows = self.log.fields(kind)
        table = self._instants("finished", kind, rows["request"])
        table["tokens"], table["note"] = rows.get("output", 0), how
        return table

    def _transfers(self) -> pd.DataFrame:
        """From a send to its arrival or loss, on the worker that receives."""
        table = self._until("transfer", Kind.SEND, (Kind.ARRIVE, Kind.ABORT))
        sent = self.log.fields(Kind.SEND)
        table["tokens"], table["position"] = sent["position"] - sent["claim"], sent["claim"]
        lost, records = self._of((Kind.ABORT,))
        ends = self._next(sent["request"], self.log.places(Kind.SEND), (Kind.ARRIVE, Kind.ABORT))
        table["note"] = np.where(np.isin(ends, records), "lost", "") if len(lost) else ""
        return table

    # -- of pages ------------------------------------------------------------------------------------------------

    def _publications(self) -> pd.DataFrame:
        rows = self.log.fields(Kind.PUBLISH)
        _, of = self.log.lists(Kind.PUBLISH, 5)
        pages = np.bincount(of, minlength=len(rows["pool"]))
        table = self._instants("publication", Kind.PUBLISH, self._requests(rows["owner"]))
        table["tokens"], table["pool"] = rows["coverage"] * pages, self._named(rows["pool"])
        ends = zip(rows["block"].tolist(), pages.tolist(), strict=True)
        table["note"] = [
            f"block {first}" if count == 1 else f"blocks {first}..{first + count - 1}" for first, count in ends
        ]
        return table

    def _copies(self) -> pd.DataFrame:
        """Partial pages copied for a claim; the record before each grants its target."""
        rows, places = self.log.fields(Kind.COPY), self.log.places(Kind.COPY)
        grants, owners = self.log.places(Kind.GRANT), self.log.fields(Kind.GRANT)["owner"]
        at = np.searchsorted(grants, places) - 1
        request = self._requests(owners[at]) if len(grants) else np.full(len(places), NOBODY)
        table = self._instants("copy", Kind.COPY, request)
        table["tokens"], table["pool"] = rows["tokens"], self._named(rows["pool"])
        ends = zip(rows["source"].tolist(), rows["target"].tolist(), strict=True)
        table["note"] = [f"slot {source} to {target}" for source, target in ends]
        return table

    def _moves(self) -> pd.DataFrame:
        """Changes of tier that are done at once."""
        return self._between_tiers(self._instants("copy", Kind.MOVE, NOBODY), Kind.MOVE)

    def _tier_copies(self) -> pd.DataFrame:
        """Changes of tier that take time: from their start until they land or are lost."""
        log = self.log
        numbers, starts = log.fields(Kind.START)["copy"], log.places(Kind.START)
        table = self._between_tiers(self._instants("copy", Kind.START, NOBODY), Kind.START)
        fates = [(Kind.LAND, ""), (Kind.LOSE, ", lost")]
        ends = {}
        for kind, word in fates:
            ends |= dict(zip(log.fields(kind)["copy"].tolist(), _told(log.times[log.places(kind)], word), strict=True))
        found = [ends.get(number, (log.end_ns, ", under way at the end")) for number in numbers.tolist()]
        table["end_ns"] = np.maximum(np.array([end for end, _ in found], dtype=np.int64), log.times[starts])
        table["note"] += pd.Series([word for _, word in found], dtype=str)
        return table

    def _between_tiers(self, table: pd.DataFrame, kind: Kind) -> pd.DataFrame:
        rows = self.log.fields(kind)
        table["pool"] = self._named(rows["pool"])
        table["request_id"] = self._requests(self.owner_of(rows["pool"], rows["page"], table["iteration"].to_numpy()))
        ends = zip(rows["page"].tolist(), rows["source"].tolist(), rows["target"].tolist(), strict=True)
        table["note"] = pd.Series([f"page {page}, slot {one} to {other}" for page, one, other in ends], dtype=str)
        return table

    # -- helpers -------------------------------------------------------------------------------------------------

    def _iterations(self, kind: Kind) -> Ints:
        return self.log.iterations[self.log.places(kind)]

    def _requests(self, owners: Ints) -> Ints:
        return np.array([self.requests.get(owner, NOBODY) for owner in owners.tolist()], dtype=np.int64)

    def _named(self, pools: Ints) -> list[str]:
        return [self.pools[pool] for pool in pools.tolist()]

    def _instants(self, name: str, kind: Kind, request: Ints | int) -> pd.DataFrame:
        when = self.log.times[self.log.places(kind)]
        columns = {"request_id": request, "begin_ns": when, "end_ns": when, "iteration": self._iterations(kind)}
        return pd.DataFrame(columns).assign(kind=name)

    def _of(self, kinds: tuple[Kind, ...]) -> tuple[Ints, Ints]:
        """Request and place of all records of ``kinds``."""
        requests = [self.log.fields(kind)["request"] for kind in kinds]
        return np.concatenate(requests), np.concatenate([self.log.places(kind) for kind in kinds])

    def _next(self, request: Ints, places: Ints, kinds: tuple[Kind, ...]) -> Ints:
        """First record of ``kinds`` of each request behind its place; far away where none follows."""
        of, at = self._of(kinds)
        order = np.lexsort((at, of))
        of, at = of[order], at[order]
        width = len(self.log.kinds) + 1
        found = np.searchsorted(of * width + at, request * width + places, side="right")
        there = found < len(of)
        there[there] = of[found[there]] == request[there]
        ends = np.full(len(request), _FAR, dtype=np.int64)
        ends[there] = at[found[there]]
        return ends

    def _until(self, name: str, kind: Kind, kinds: tuple[Kind, ...], begins: bool = False) -> pd.DataFrame:
        """Spans from each record of ``kind`` to the next one of ``kinds`` of its request, or to the end of the run.

        ``begins``: where that record is a row of a step, the span ends when the device begins it.
        """
        log = self.log
        request, places = log.fields(kind)["request"], log.places(kind)
        ends = self._next(request, places, kinds)
        there = ends < _FAR
        stops = np.full(len(places), log.end_ns, dtype=np.int64)
        stops[there] = log.times[ends[there]]
        if begins:
            rows = there.copy()
            rows[there] = np.isin(log.kinds[ends[there]], (Kind.CHUNK, Kind.STEP))
            stops[rows] = log.begins(log.iterations[ends[rows]])
        table = self._instants(name, kind, request)
        table["end_ns"] = np.maximum(stops, table["begin_ns"].to_numpy())
        return table


class OwnerOf:
    """Who was granted a page last, from the notes of a journal; rows of (pool, page, owner), and the iteration by which
    each was made."""

    def __init__(self, notes: NDArray[np.int64], iterations: Ints) -> None:
        self._width = int(iterations.max(initial=0)) + 2
        self._pages = int(notes[:, 1].max(initial=0)) + 1
        key = self._key(notes[:, 0], notes[:, 1], iterations)
        order = np.argsort(key, kind="stable")
        self._keys, self._owners = key[order], notes[order, 2]

    def __call__(self, pool: Ints, page: Ints, iteration: Ints) -> Ints:
        """Owner of each page by an iteration; -1 where it had none."""
        at = np.searchsorted(self._keys, self._key(pool, page, np.minimum(iteration, self._width - 1)), "right") - 1
        mine = at >= 0
        mine[mine] = self._keys[at[mine]] // self._width == (pool * self._pages + page)[mine]
        owners = np.full(len(page), NOBODY, dtype=np.int64)
        owners[mine] = self._owners[at[mine]]
        return owners

    def _key(self, pool: Ints, page: Ints, iteration: Ints) -> Ints:
        return (pool * self._pages + page) * self._width + iteration


def requests_by_owner(decisions: Decisions) -> dict[int, int]:
    """Request of each owner that was admitted or sent."""
    found: dict[int, int] = {}
    for kind in (Kind.CLAIM, Kind.SEND):
        rows = decisions.fields(kind)
        found |= dict(zip(rows["owner"].tolist(), rows["request"].tolist(), strict=True))
    return found


def _runs(request: Ints, rows: Ints, breaking: Ints, breaks: Ints) -> Ints:
    """How many breaks of its request came ahead of each row."""
    order = np.lexsort((breaks, breaking))
    width = int(max(rows.max(initial=0), breaks.max(initial=0))) + 1
    keys = breaking[order] * width + breaks[order]
    return np.searchsorted(keys, request * width + rows) - np.searchsorted(keys, request * width)


def _last_before(request: Ints, start: Ints, of: Ints, at: Ints) -> Ints:
    """For each (of, at) the place of the last (request, start) of the same request ahead of it; -1: none."""
    order = np.lexsort((start, request))
    width = int(max(start.max(initial=0), at.max(initial=0))) + 1
    found = np.searchsorted(request[order] * width + start[order], of * width + at) - 1
    mine = found >= 0
    mine[mine] = request[order][found[mine]] == of[mine]
    result = np.full(len(of), -1, dtype=np.int64)
    result[mine] = order[found[mine]]
    return result


def _told(times: Ints, word: str) -> list[tuple[int, str]]:
    return [(time, word) for time in times.tolist()]
