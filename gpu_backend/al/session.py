"""The experiment from an order to plain rows."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gpu_backend.acceptance.metrics import acceptance_length
from gpu_backend.acceptance.rules import Rule, Sampling
from gpu_backend.acceptance.weights import DFLASH
from gpu_backend.al import conditions, experiment
from gpu_backend.al.apart import measure_apart
from gpu_backend.al.arms import Arm, firsts
from gpu_backend.al.calibrate import calibrate, error_of
from gpu_backend.al.experiment import Ask, Progress, Results
from gpu_backend.al.laws import caught_by
from gpu_backend.al.measure import DRAFTER, TARGET, Run
from gpu_backend.al.order import AGENTIC, BAD_INPUT, FAULT, LENGTHS, Failure, Order, Told, faults_for
from gpu_backend.al.prompts import digest, has_requests, require_known, sizes
from gpu_backend.replay.result import ReplayOrder
from gpu_backend.replay.session import require_order
from gpu_backend.shipped.card import kinds_in
from gpu_backend.train.session import device_name
from scenarios.errors import InputError
from sim.rulespec import find

ENDS = ("low", "change", "high")
MOST_PREDICTED = 48  # hits of a scenario that the sim serves: each is drawn several times
ON_CUDA, ON_CPU = (256, 128), (8, 32)  # requests of a condition and tokens of each, where the order does not say


def measure(order: Order, progress: Progress | None = None) -> Told:
    """Run what is ordered; InputError, in one line, for what cannot be measured.

    On a GPU every kind of drafter has a process of its own: what takes time is what the host does for each row. What
    Ctrl-C leaves is what was finished, and so does a kind that is refused once others have runs to tell of.
    """
    kinds = kinds_of(order)
    if len(kinds) == 1 or require_order(ReplayOrder(order.device)).type != "cuda":
        return measure_here(order, progress)
    return measure_apart([replace(order, drafters=(kind,)) for kind in kinds], measure_here, progress)


def measure_here(order: Order, progress: Progress | None = None) -> Told:
    """The same in this process."""
    asks = asks_of(order)
    told = Told(provenance(asks[0]), [], [], {}, drafters={ask.pair.kind: own(ask) for ask in asks})
    told.notes.extend(notes_of(asks))
    done, wanted = 0, sum(len(ask.arms()) for ask in asks)

    def ran(part: int, _: int) -> None:
        if progress is not None:
            progress(done + part, wanted)

    ran(0, 0)
    for ask in asks:
        results = experiment.Results()
        try:
            results = experiment.measure(ask, ran)
            done += len(results.arms)
            tell(told, ask, results, calibrates=order.calibrate and results.refused is None)
        except InputError as error:
            results.refused = error
        if results.refused is not None:
            if not (told.arms or results.interrupted):
                raise results.refused
            told.failed[ask.pair.kind] = Failure(str(results.refused), BAD_INPUT)
        if results.interrupted:
            return replace(told, interrupted=True)
    return told


def tell(told: Told, ask: Ask, results: Results, *, calibrates: bool) -> None:
    """Add to ``told`` what was measured of one kind of drafter under one rule; Ctrl-C leaves the rest of it out."""
    kind, decoding = ask.pair.kind, str(ask.sampling.rule)
    head = {"drafter": kind, "decoding": decoding}
    try:
        hits = [head | row for row in hit_rows(results)]
        cold = {
            name: run.measured.table()
            | {"seconds": round(run.seconds, 3), "device_seconds": round(run.device_seconds, 3), "steps": run.steps}
            for name, run in results.cold.items()
        }
        told.hits.extend(hits)
        told.cold.setdefault(kind, {})[decoding] = cold
        for arm in results.arms:
            told.arms.append(head | row_of(arm, ask.seed) | caught(ask, results, arm))
        if calibrates and kind not in told.calibrations and not results.interrupted:
            told.calibrations[kind] = calibration(ask, results)
    except KeyboardInterrupt:
        results.interrupted = True


def caught(ask: Ask, results: Results, arm: Arm) -> dict[str, Any]:
    """The laws that see a fault in the sim, the first one first; none are asked about other builds."""
    if arm.kind != FAULT:
        return {"caught_by": []}
    return {"caught_by": caught_by(ask.pair, results.conditions[arm.condition], find(arm.build))}


def calibration(ask: Ask, results: Results) -> dict[str, Any]:
    """The sim's acceptance model from what was measured: the text of its file, predictions, their error."""
    pair = ask.pair
    scenarios = {}
    for name, condition in results.conditions.items():
        few = condition if name == AGENTIC else replace(condition, hits=condition.hits[:MOST_PREDICTED])
        scenarios[name] = conditions.warm(pair, few), conditions.cold(pair, few)
    about = provenance(ask) | own(ask) | {"rule": str(ask.sampling.rule), "conditions": list(results.conditions)}
    about |= {"weights": about.pop("name"), "builds": list(dict.fromkeys(arm.build for arm in results.arms))}
    try:
        model, found = calibrate(results.arms, scenarios, pair.drafts, pair.window, about)
    except ValueError as error:
        raise InputError("al", 0, "calibrate", f"expected runs to fit from, found {error}") from error
    model.provenance["error"] = error_of(found)
    rows = [{"drafter": pair.kind} | one.row() for one in found]
    return {"model": model.to_json(), "predictions": rows, "error": error_of(found)}


def asks_of(order: Order) -> list[Ask]:
    """One for each kind of drafter and rule of acceptance: the pair on its device, and texts for it."""
    device = require_order(replace(ReplayOrder(order.device), temperature=order.temperature))
    prompts, tokens = ON_CUDA if device.type == "cuda" else ON_CPU
    if order.weights is not None and has_requests(order.weights):
        prompts = min(prompts, sizes(order.weights)[0])
    count, found = order.prompts or prompts, []
    for kind in kinds_of(order):
        pair, texts = experiment.subject(
            order.weights, device, count, exact=order.exact, seed=order.seed, kind=kind, spans=order.spans
        )  # fmt: skip
        if order.weights is not None:
            require_known(order.weights, texts, pair.target.config.vocabulary)
        found += [
            Ask(
                pair, texts, order.tokens or tokens, order.builds, faults_for(kind, order.faults), order.conditions,
                order.graphs, order.seed, Sampling(Rule(rule), order.temperature, order.seed),
            )
            for rule in order.sampling
        ]  # fmt: skip
    return found


def kinds_of(order: Order) -> tuple[str, ...]:
    """Kinds of drafters that are measured: those asked for, else all that lie in the folder, else DFlash alone."""
    if order.drafters is not None:
        return order.drafters
    return (DFLASH,) if order.weights is None else kinds_in(order.weights) or (DFLASH,)


def notes_of(asks: Sequence[Ask]) -> list[str]:
    """What a reader has to know: which faults were not run on which kind of drafter."""
    found = []
    for ask in {ask.pair.kind: ask for ask in asks}.values():
        if ask.pair.lookahead:
            found.append(
                f"{ask.pair.kind}: a cell knows {ask.pair.lookahead} tokens behind it; under chunked, chunks have "
                f"{conditions.chunk_size(ask.pair)} tokens, and the last but one ends at "
                f"{conditions.chunk_end(ask.pair)}, right before where reuse does"
            )
    return found


def row_of(arm: Arm, seed: int = 0) -> dict[str, Any]:
    """One arm as plain values. Changes are ratios less 1, with the ends of their 95 % intervals."""
    run, cold = arm.run, arm.cold
    row: dict[str, Any] = {
        "condition": arm.condition,
        "build": arm.build,
        "kind": arm.kind,
        "verdict": arm.verdict,
        "laws": arm.broken,
        "error": arm.error,
        "hits": cold.measured.requests,
        "same_traces": int(arm.same.sum()),
        "same_outputs": int(arm.same_output.sum()),
        "owed": int(arm.owed.sum()),
        "owed_and_same": int((arm.owed & arm.same).sum()),
    }
    for length in LENGTHS:
        name = "AL" if length is None else f"AL{length}"
        row[f"{name}_cold"] = acceptance_length(cold.measured.steps, length)
        row[name] = None if run is None else acceptance_length(run.measured.steps, length)
        change = arm.change(length, seed)
        for place, end in enumerate(ENDS):
            row[f"{name}_{end}"] = None if change is None else change[place] - 1
    row |= {"first_cold": firsts(cold), "first": None if run is None else firsts(run)}
    change = arm.first_change(seed)
    row |= {f"first_{end}": None if change is None else change[place] - 1 for place, end in enumerate(ENDS)}
    row |= _ledger(run)
    return row


def _ledger(run: Run | None) -> dict[str, Any]:
    """Tokens of the hits: prefilled for each pool, claimed in each, hidden of the drafter's window."""
    if run is None:
        keys = (
            "prefilled_target",
            "prefilled_draft",
            "cached_target",
            "cached_draft",
            "hidden",
            "preempted",
            "seconds",
            "device_seconds",
            "steps",
        )
        return dict.fromkeys(keys)
    return {
        "prefilled_target": int(run.measured.prefilled[TARGET].sum()),
        "prefilled_draft": int(run.measured.prefilled[DRAFTER].sum()),
        "cached_target": sum(record.cached_tokens for record in run.records),
        "cached_draft": sum(record.draft_cached_tokens for record in run.records),
        "hidden": int(run.hidden.sum()),
        "preempted": sum(record.preemptions > 0 for record in run.records),
        "seconds": round(run.seconds, 3),
        "device_seconds": round(run.device_seconds, 3),
        "steps": run.steps,
    }


def hit_rows(results: Results) -> list[dict[str, Any]]:
    """A row a hit of every arm: where its reuse ended, sums of both runs, whether its trace was the cold one."""
    rows = []
    for arm in results.arms:
        if arm.run is None:
            continue
        for place, hit in enumerate(results.conditions[arm.condition].hits):
            before, after = arm.cold.trace(place), arm.run.trace(place)
            rows.append(
                {
                    "condition": arm.condition, "build": arm.build, "hit": place, "past_boundary": hit.past,
                    "same_trace": bool(arm.same[place]), "owed": bool(arm.owed[place]),
                    "steps_cold": len(before), "committed_cold": sum(count for _, count in before),
                    "steps": len(after), "committed": sum(count for _, count in after),
                    "first_cold": before[0][1] if before else None, "first": after[0][1] if after else None,
                    "hidden": int(arm.run.hidden[place]), "cached": arm.run.records[place].cached_tokens,
                    "prefilled": arm.run.records[place].prefilled_tokens,
                }
            )  # fmt: skip
    return rows


def provenance(ask: Ask) -> dict[str, Any]:
    """What the figures were measured with. They belong to this Python, whose library the prompts are taken from, to
    this torch and to this device."""
    return {
        "name": ask.pair.name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": str(ask.pair.device),
        "device_name": device_name(ask.pair.device),
        "exact": ask.pair.exact,
        "page": ask.pair.page,
        "prompts": len(ask.texts),
        "tokens": ask.tokens,
        "prompts_sha256": digest(list(ask.texts)),
        "temperature": ask.sampling.temperature,
        "seed": ask.seed,
        "timeline": "seed",
        "release": ask.pair.release,
    }


def own(ask: Ask) -> dict[str, Any]:
    """What is one kind of drafter's: its weights, window (none for full attention), K, and lookahead."""
    pair = ask.pair
    return {
        "drafter": pair.kind, "sha256": pair.sha256, "window": pair.window, "drafts": pair.drafts,
        "lookahead": pair.lookahead,
    }  # fmt: skip
