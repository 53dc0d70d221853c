"""The figures of a comparison: what each is called, which way is better, and how it comes out of a run's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reports.arms import HIT_CLASSES, LONG_TAIL, REPEAT, SHORT_TAIL, TWO_TURN, Arm, Arms
from reports.evidence import Evidence, numbers
from reports.statistics import Resampled, Resampling

UP, DOWN, NEITHER = "up", "down", ""
COUNT, SHARE, LENGTH, MS, FINE_MS, RATE, GIB, SECONDS = (
    "{:,.0f}", "{:.1%}", "{:.3f}", "{:,.1f}", "{:,.2f}", "{:,.1f}", "{:,.2f}", "{:,.1f}",
)  # fmt: skip
PEAK, CAPACITY, BYTES, HOST, HOST_BYTES = "peak_pages_", "device_pages_", "device_gib_", "host_pages_", "host_gib_"
HIT_TOKENS, HIT_PAGES, PER_HIT = "hit_rate_tokens_", "hit_rate_pages_", "cached_per_hit_"

BATCHES = (1, 2, 4, 8, 16, 32, 44, 64, 128)  # verify rows of a step whose time is shown
FEWEST_STEPS = 3

OfRun = Callable[[Evidence], float | None]
OfArm = Callable[[Arm, Resampling], Resampled]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. ``of_run`` reads it off one run; ``of_arm`` takes it over the requests of an arm, resampled.

    ``exact`` figures follow from the rules: a build that is the same gives the very number. ``short`` ones are in the
    table that a pull request shows. ``group`` orders and heads the tables, ``shown`` is the format of a value.
    """

    name: str
    label: str
    unit: str
    better: str
    group: str
    shown: str
    exact: bool = False
    short: bool = True
    of_run: OfRun | None = None
    of_arm: OfArm | None = None


def metrics_of(arms: Arms) -> list[Metric]:
    """All figures that these arms may have, in the order of the tables."""
    runs = [arm.first for arm in arms.arms.values()]
    return [
        *_reuse(),
        *_lifecycles(runs),
        *_hit_classes(arms),
        *_drafter(),
        *_latency(arms),
        *_throughput(),
        *_step_times(runs),
        *_memory(runs),
        *_events(),
    ]


# -- over requests -----------------------------------------------------------------------------------------------------


def _mean(column: str, only: Callable[[Arm], np.ndarray] | None = None) -> OfArm:
    def figure(arm: Arm, resampling: Resampling) -> Resampled:
        values = arm[column]
        return resampling.mean(values if only is None else np.where(only(arm), values, np.nan))

    return figure


def _sums(above: str, below: str, times: str = "") -> OfArm:
    """A ratio of sums; ``times`` weighs both by another column."""

    def figure(arm: Arm, resampling: Resampling) -> Resampled:
        values, weights = arm[above], arm[below]
        return resampling.mean(values * weights if times else values, weights)

    return figure


def _quantile(column: str, at: float, only: Callable[[Arm], np.ndarray] | None = None, rate: bool = False) -> OfArm:
    """A quantile; with ``rate`` 1 / the quantile, of milliseconds, a second."""

    def figure(arm: Arm, resampling: Resampling) -> Resampled:
        values = arm[column]
        found = resampling.quantile(values if only is None else np.where(only(arm), values, np.nan), at)
        if not rate:
            return found
        with np.errstate(divide="ignore"):
            return Resampled(float(np.divide(1e3, found.value)), 1e3 / found.draws, found.units)

    return figure


def _hits(arm: Arm) -> np.ndarray:
    return arm["cached_tokens"] > 0


def _cold(arm: Arm) -> np.ndarray:
    return arm["cached_tokens"] == 0


def _first(arm: Arm) -> np.ndarray:
    return arm["turn"] == 0


def _later(arm: Arm) -> np.ndarray:
    return arm["turn"] > 0


# -- the figures -------------------------------------------------------------------------------------------------------


def _reuse() -> Iterator[Metric]:
    def exact(name: str, label: str, better: str, of_run: OfRun, unit: str = "tokens", shown: str = COUNT) -> Metric:
        return Metric(name, label, unit, better, "reuse", shown, exact=True, of_run=of_run)

    yield exact("prefilled_tokens", "prefilled tokens", DOWN, lambda run: run.totals["prefilled_tokens"])
    yield exact("cached_tokens", "cached tokens", UP, lambda run: _total(run, "cached_tokens"))
    yield exact("reuse_share", "reused share of the prompts", UP, _reuse_share, "share", SHARE)
    yield exact("recomputed_tokens", "of the prefilled: recomputed", DOWN, lambda run: _total(run, "recomputed_tokens"))


def _total(run: Evidence, column: str) -> float:
    return float(np.nansum(numbers(run.requests, column)))


def _reuse_share(run: Evidence) -> float | None:
    prompt = _total(run, "prompt_tokens")
    return _total(run, "cached_tokens") / prompt if prompt else None


def _lifecycles(runs: Sequence[Evidence]) -> Iterator[Metric]:
    """Hit rates, one lifecycle at a time: sums over lifecycles compare nothing."""
    named = dict.fromkeys(str(name) for run in runs for name in run.pools["lifecycle"])
    for name in named:
        yield Metric(
            HIT_TOKENS + name, f"hit rate in tokens, lifecycle {name}", "share", UP, "reuse", SHARE, exact=True,
            of_run=lambda run, name=name: _hit_rate(run, name, "hit_tokens", "prompt_tokens"),
        )  # fmt: skip
    for name in named:
        yield Metric(
            HIT_PAGES + name, f"hit rate in pages, lifecycle {name}", "share", UP, "reuse", SHARE, exact=True,
            short=False, of_run=lambda run, name=name: _hit_rate(run, name, "hit_pages", "missed_pages", apart=True),
        )  # fmt: skip


def _hit_rate(run: Evidence, lifecycle: str, hits: str, others: str, apart: bool = False) -> float | None:
    """Hits of all workers together, which each worker's row repeats; ``apart``: ``others`` does not hold them."""
    found, other = (_of_row(run, "lifecycle", lifecycle, column) for column in (hits, others))
    if found is None or other is None:
        return None
    whole = other + (found if apart else 0.0)
    return found / whole if whole else None


def _of_row(run: Evidence, column: str, name: str, wanted: str) -> float | None:
    """A figure of the first pool or lifecycle of that name."""
    places = np.flatnonzero(run.pools[column].to_numpy() == name)
    return float(run.pools[wanted].to_numpy()[places[0]]) if len(places) else None


def _hit_classes(arms: Arms) -> Iterator[Metric]:
    words = {
        REPEAT: "repeat of a prompt",
        TWO_TURN: "later turn of a conversation",
        SHORT_TAIL: "shared prefix + short tail",
        LONG_TAIL: "shared prefix + long tail",
    }
    for kind in HIT_CLASSES:
        inside = arms.classes == kind
        count = int(inside.sum())
        if count:
            yield Metric(
                PER_HIT + kind.replace(" ", "_").replace("-", "_"),
                f"cached tokens per hit, {words[kind]} (n = {count:,})",
                "tokens", UP, "reuse", COUNT, exact=True,
                of_arm=lambda arm, resampling, inside=inside: resampling.mean(
                    np.where(inside, arm["cached_tokens"], np.nan)
                ),
            )  # fmt: skip


def _drafter() -> Iterator[Metric]:
    def one(name: str, label: str, figure: OfArm, unit: str, shown: str, short: bool = True) -> Metric:
        return Metric(name, label, unit, UP, "drafter", shown, short=short, of_arm=figure)

    length = "tokens per verify step"
    first = _mean("coverage_first", _hits)
    yield one("coverage_first", "drafter-window coverage, first step after a hit", first, "share", SHARE)
    overall = _sums("coverage_mean", "spec_steps", times="spec_steps")
    yield one("coverage_all", "drafter-window coverage, all steps", overall, "share", SHARE)
    mean = _mean("acceptance_length")
    yield one("al_request_mean", "acceptance length, request mean", mean, length, LENGTH)
    weighted = _sums("committed_tokens", "spec_steps")
    yield one("al_step_weighted", "acceptance length, step-weighted", weighted, length, LENGTH)
    hits, cold = _mean("acceptance_length", _hits), _mean("acceptance_length", _cold)
    yield one("al_hits", "acceptance length of hits, request mean", hits, length, LENGTH, short=False)
    yield one("al_cold", "acceptance length of cold requests, request mean", cold, length, LENGTH, short=False)


def _latency(arms: Arms) -> Iterator[Metric]:
    def one(name: str, label: str, figure: OfArm, unit: str, better: str, shown: str, short: bool = True) -> Metric:
        return Metric(name, label, unit, better, "latency", shown, short=short, of_arm=figure)

    turns: list[tuple[str, str, Callable[[Arm], np.ndarray] | None]] = [("", "", None)]
    if any(_later(arm).any() for arm in arms.arms.values()):
        turns += [("first_", ", first turns", _first), ("continuation_", ", continuation turns", _later)]
    for prefix, words, only in turns:
        for rank in (50, 90):
            figure = _quantile("ttft_ms", rank / 100, only)
            yield one(f"ttft_{prefix}p{rank}_ms", f"TTFT p{rank}{words} (ms)", figure, "ms", DOWN, MS)
    for rank in (50, 90):
        figure = _quantile("tpot_ms", rank / 100)
        yield one(f"tpot_p{rank}_ms", f"TPOT p{rank} (ms)", figure, "ms", DOWN, FINE_MS)
    for suffix, words in (("", "decode: 1 / ITL"), ("_with_ttft", "with TTFT")):
        for rank in (50, 90):
            figure = _quantile(f"tokens_per_user{suffix}", rank / 100)
            label = f"tok/s/user p{rank} ({words})"
            yield one(f"tokens_per_user{suffix}_p{rank}", label, figure, "tok/s", UP, RATE)
    slow = _quantile("tpot_ms", 0.9, rate=True)
    yield one(
        "tokens_per_user_slow", "tok/s/user of the slow tenth (1 / p90 ITL)", slow, "tok/s", UP, RATE, short=False
    )
    for rank in (50, 90):
        figure = _quantile("e2e_ms", rank / 100)
        yield one(f"latency_p{rank}_ms", f"request latency p{rank} (ms)", figure, "ms", DOWN, MS, short=False)


def _throughput() -> Iterator[Metric]:
    def one(name: str, label: str, of_run: OfRun, unit: str, better: str, shown: str, short: bool = True) -> Metric:
        return Metric(name, label, unit, better, "throughput", shown, short=short, of_run=of_run)

    yield one("output_tokens_per_s", "output tokens per second", _output_rate, "tok/s", UP, COUNT)
    yield one("total_tokens_per_s", "prompt and output tokens per second", _total_rate, "tok/s", UP, COUNT, short=False)
    yield one("duration_s", "duration (s)", lambda run: _seconds(run) or None, "s", DOWN, SECONDS, short=False)
    yield one("device_step_ms", "device time per step, mean (ms)", _device_step, "ms", DOWN, FINE_MS)


def _step_times(runs: Sequence[Evidence]) -> Iterator[Metric]:
    """Device time of verify steps by batch, for the sizes that every run met. Of a sim it is what its profile says."""
    met = [{int(one["rows"]) for one in _sizes(run) if one["count"] >= FEWEST_STEPS} for run in runs]
    for rows in sorted(set.intersection(*met) & set(BATCHES)):
        yield Metric(
            f"step_{rows}_rows_ms", f"step time p50, batch {rows} (ms)", "ms", DOWN, "throughput", FINE_MS,
            short=any(run.on != "sim" for run in runs),
            of_run=lambda run, rows=rows: next(
                (float(one["p50_ms"]) for one in _sizes(run) if one["rows"] == rows), None
            ),
        )  # fmt: skip


def _sizes(run: Evidence) -> list[dict[str, float]]:
    return run.summary.get("step_times", [])


def _seconds(run: Evidence) -> float:
    return float(run.summary["duration_s"])


def _output_rate(run: Evidence) -> float | None:
    return float(run.summary["output_token_throughput"]) or None


def _total_rate(run: Evidence) -> float | None:
    tokens = _total(run, "prompt_tokens") + _total(run, "output_tokens")
    return tokens / _seconds(run) if _seconds(run) else None


def _device_step(run: Evidence) -> float | None:
    steps = run.device.get("steps")
    return 1e3 * float(run.device["seconds"]) / steps if steps else None


def _memory(runs: Sequence[Evidence]) -> Iterator[Metric]:
    """Pages and bytes of every pool on a rank, and the most that were in use."""

    def one(prefix: str, pool: str, words: str, column: str, better: str, scale: float = 1.0) -> Metric:
        return Metric(
            prefix + pool, f"{words}, pool {pool}", "pages" if scale == 1.0 else "GiB", better, "memory",
            COUNT if scale == 1.0 else GIB, exact=True, short=prefix in (PEAK, CAPACITY),
            of_run=lambda run: _of_pool(run, pool, column, scale),
        )  # fmt: skip

    for pool in dict.fromkeys(str(name) for run in runs for name in run.pools["name"]):
        yield one(PEAK, pool, "peak pages", "peak", NEITHER)
        yield one(CAPACITY, pool, "device pages", "device_pages", UP)
        yield one(BYTES, pool, "device GiB", "device_bytes", NEITHER, 2.0**-30)
        yield one(HOST, pool, "host pages", "host_pages", UP)
        yield one(HOST_BYTES, pool, "host GiB", "host_bytes", NEITHER, 2.0**-30)


def _of_pool(run: Evidence, pool: str, column: str, scale: float) -> float | None:
    found = _of_row(run, "name", pool, column)
    return None if found is None else found * scale


def _events() -> Iterator[Metric]:
    for name in ("preemptions", "suspensions"):
        yield Metric(
            name, name, "", DOWN, "events", COUNT, exact=True, of_run=lambda run, name=name: run.totals[name]
        )  # fmt: skip
    yield Metric(
        "finished", "requests that finished", "requests", UP, "events", COUNT, exact=True, short=False,
        of_run=lambda run: run.totals["finished"],
    )  # fmt: skip
    yield Metric("violations", "violations", "", DOWN, "events", COUNT, exact=True, of_run=_violations)


def _violations(run: Evidence) -> float:
    return float(len(run.violations))
