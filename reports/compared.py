"""Arms side by side on one scenario: builds of one sim, runs from folders, or both, with their ratios to a baseline."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from reports.arms import arms_of
from reports.comparison_rows import rows_of
from reports.document import INTERRUPTED
from reports.evidence import Evidence

MODES = {
    "forced": "forced",
    "modelled": "modelled",
    "recorded": "recorded in the ops",
    "measured": "natural (measured)",
}

ALWAYS = (  # columns of the table even where no arm has the figure
    "prefilled_tokens", "cached_tokens", "reuse_share", "coverage_first", "coverage_all", "al_request_mean",
    "al_step_weighted", "ttft_p50_ms", "ttft_p90_ms", "tpot_p50_ms", "tpot_p90_ms", "output_tokens_per_s",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """``arms`` are all runs, in order; the runs of one arm (other seeds) have the same ``Evidence.arm``.

    ``rows`` is the tidy table of :func:`reports.comparison_rows.rows_of`, ``table`` its values with one row per arm
    (index ``build``). ``unit`` is what intervals of figures over requests resample, ``paired`` how many requests all
    arms hold. ``historical`` names the builds that may break laws and the laws that each declares to break, ``judged``
    the builds of which the scenario expects something, ``left_out`` those that Ctrl-C left no result of.
    """

    scenario: str
    baseline: str
    arms: list[Evidence]
    rows: pd.DataFrame
    table: pd.DataFrame
    unit: str
    paired: int
    historical: Mapping[str, Collection[str]] = field(default_factory=dict)
    judged: Collection[str] = ()
    left_out: Sequence[str] = ()

    @property
    def builds(self) -> list[str]:
        """Labels of the arms, in order; an arm is called by its build unless two share one."""
        return list(dict.fromkeys(run.arm for run in self.arms))

    def runs(self, build: str) -> list[Evidence]:
        """The runs of one arm, that of the scenario's own seed first."""
        return [run for run in self.arms if run.arm == build]

    def value(self, metric: str, build: str) -> float:
        """A figure of one arm; NaN where it has none."""
        if metric not in self.table:
            return math.nan
        return float(self.table[metric].astype("float64").to_numpy()[self.builds.index(build)])

    @property
    def repeats(self) -> int:
        """How many seeds each arm ran with, at most."""
        return max(len(self.runs(build)) for build in self.builds)

    @property
    def requests(self) -> int:
        """Requests of one run."""
        return len(self.arms[0].requests)

    @property
    def drafts(self) -> int:
        """K, the drafts that a verify step verifies."""
        return self.arms[0].drafts

    @property
    def modes(self) -> dict[str, str]:
        """How the accepted counts of each arm came about: forced, modelled, recorded or measured."""
        return {run.arm: run.acceptance_mode for run in reversed(self.arms)}

    @property
    def acceptance_mode(self) -> str:
        """The mode that all arms share, or ``mixed``."""
        modes = set(self.modes.values())
        return modes.pop() if len(modes) == 1 else "mixed"

    @property
    def acceptance(self) -> str:
        """Where accepted counts came from, in words; of each arm where they differ."""
        words = {run.arm: f"{run.acceptance_mode}: {run.acceptance}" for run in reversed(self.arms)}
        if len(set(words.values())) == 1:
            return self.arms[0].acceptance
        return "; ".join(f"{build} {words[build]}" for build in self.builds)

    @property
    def laws(self) -> dict[str, list[str]]:
        """Codes of the laws that each arm broke, over all its runs."""
        return {build: sorted({code for run in self.runs(build) for code in run.codes}) for build in self.builds}

    @property
    def missed(self) -> dict[str, list[str]]:
        """Expectations that an arm missed, where the scenario expects something of it."""
        return {
            build: [line for run in self.runs(build) for line in run.missed if run.build in self.judged]
            for build in self.builds
        }

    @property
    def checked(self) -> bool:
        """Whether every run evaluated some law."""
        return not any(run.nothing_checked for run in self.arms)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the last build was finished."""
        return bool(self.left_out)

    def declared(self, build: str) -> Collection[str]:
        """The laws that an arm's build declares to break."""
        return self.historical.get(self.runs(build)[0].build, ())

    def is_historical(self, build: str) -> bool:
        """Whether an arm's build may break laws."""
        return self.runs(build)[0].build in self.historical

    @property
    def warning(self) -> str | None:
        """Why the acceptance lengths must not be read as a result, where that is so."""
        inputs = {build: mode for build, mode in self.modes.items() if mode in ("forced", "recorded")}
        if not inputs:
            return None
        mode = " and ".join(dict.fromkeys(inputs.values()))
        where = "" if len(inputs) == len(self.modes) else f" on {', '.join(inputs)}"
        return (
            f"acceptance is {mode}{where}: the acceptance lengths are an input here, and show nothing of what "
            "a build does to the drafter; read the coverage of its window instead"
        )

    @property
    def notes(self) -> list[str]:
        """What a reader must know before trusting a ratio."""
        notes = []
        held = max(sum(len(run.requests) for run in self.runs(build)) for build in self.builds)
        if self.paired < held:
            notes.append(f"{self.paired:,} of {held:,} requests are in every arm; figures count all that an arm has")
        if len(set(self.modes.values())) > 1:
            notes.append("acceptance lengths of different modes stand side by side, and their ratio compares the modes")
        timed = [build for build in self.builds if self.runs(build)[0].timed_on_device]
        if timed and len(timed) < len(self.builds):
            notes.append(
                f"latencies and rates of {', '.join(timed)} are of a device's own steps, those of others are not"
            )
        elif not timed and len({run.on for run in self.arms}) > 1:
            notes.append("latencies and rates are of the simulated clock in every arm, wherever it ran")
        return notes

    @property
    def exit_code(self) -> int:
        """1 if a correct build broke a law or missed an expectation, 3 if a run evaluated no law, else 0.

        That a historical build breaks a law is what it is there to show.
        """
        laws, missed = self.laws, self.missed
        if any((laws[build] or missed[build]) and not self.is_historical(build) for build in self.builds):
            return 1
        return INTERRUPTED if self.interrupted else 0 if self.checked else 3


def compare(
    runs: Sequence[Evidence],
    historical: Mapping[str, Collection[str]],
    judged: Collection[str] = (),
    left_out: Sequence[str] = (),
    baseline: str | None = None,
    unit: str | None = None,
) -> Comparison:
    """Put ``runs`` of one scenario side by side, in the given order, against ``baseline`` (the first by default).

    ``unit``: what is resampled, ``request`` or ``conversation``; see :func:`reports.arms.arms_of`.
    """
    arms = arms_of(runs, unit)
    before = arms.labels[0] if baseline is None else baseline
    rows = rows_of(arms, before)
    table = rows.pivot(index="build", columns="metric", values="value")
    columns = list(dict.fromkeys((*rows["metric"], *ALWAYS)))
    table = table.reindex(index=arms.labels, columns=columns).rename_axis(columns=None)
    return Comparison(
        scenario=runs[0].scenario,
        baseline=before,
        arms=list(runs),
        rows=rows,
        table=table,
        unit=arms.unit,
        paired=arms.paired,
        historical=historical,
        judged=judged,
        left_out=tuple(left_out),
    )
