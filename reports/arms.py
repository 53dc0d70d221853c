"""The arms of a comparison: runs side by side, with their requests lined up so that both arms' draws are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reports.evidence import Evidence, numbers
from reports.statistics import Resampling

REQUEST, CONVERSATION, SEED = "request", "conversation", "seed"
FEWEST_CONVERSATIONS = 10  # below, conversations are too few to say anything about others
COLUMNS = (
    "prompt_tokens",
    "cached_tokens",
    "prefilled_tokens",
    "output_tokens",
    "spec_steps",
    "committed_tokens",
    "acceptance_length",
    "coverage_first",
    "coverage_mean",
    "shared_tokens",
    "turn",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "tokens_per_user",
    "tokens_per_user_with_ttft",
)
REPEAT, TWO_TURN, SHORT_TAIL, LONG_TAIL, COLD = "repeat", "two-turn", "short tail", "long tail", "cold"
HIT_CLASSES = (REPEAT, TWO_TURN, SHORT_TAIL, LONG_TAIL)  # in the order of the seeds' table


@dataclass(frozen=True)
class Arm:
    """One arm: its runs (repeats with other seeds) and the columns of its requests, a place for each of all arms.

    A request that this arm lacks is NaN in every column.
    """

    label: str
    runs: tuple[Evidence, ...]
    columns: Mapping[str, NDArray[np.float64]]

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        return self.columns[column]

    @property
    def first(self) -> Evidence:
        """The run with the scenario's own seed."""
        return self.runs[0]


@dataclass(frozen=True)
class Arms:
    """``arms`` by label, in order. ``unit`` is what is resampled: a request or a conversation.

    ``repeats`` are those of all arms, ``seeds`` resamples them.
    ``classes`` names the hit class of each request; ``paired`` counts the requests that all arms hold.
    """

    arms: Mapping[str, Arm]
    unit: str
    resampling: Resampling
    seeds: Resampling | None
    repeats: tuple[int, ...]
    classes: NDArray[np.str_]
    paired: int

    @property
    def labels(self) -> list[str]:
        """Labels of the arms, in order."""
        return list(self.arms)


def arms_of(runs: Sequence[Evidence], unit: str | None = None, seed: int = 0) -> Arms:
    """Line up the requests of ``runs``, which are of one scenario.

    ``unit`` is ``request`` or ``conversation``; by default a conversation where there are enough of several turns.
    ``seed`` is that of the resampling.
    """
    by_label: dict[str, list[Evidence]] = {}
    for run in runs:
        by_label.setdefault(run.arm, []).append(run)
    frames = {label: _stacked(members) for label, members in by_label.items()}
    of_request = {}  # the conversation of each, from any arm that has it
    for frame in frames.values():
        of_request.update(zip(frame.index, frame["conversation_key"], strict=True))
    places = pd.Index(list(of_request), dtype=object)
    conversations = np.array(list(of_request.values()), dtype=str)
    if unit is None:
        several = len(np.unique(conversations))
        unit = CONVERSATION if FEWEST_CONVERSATIONS <= several < len(places) else REQUEST
    arms = {}
    paired = np.ones(len(places), dtype=bool)
    for label, frame in frames.items():
        aligned = frame.reindex(places)
        paired &= aligned["request_id"].notna().to_numpy()
        columns = {column: numbers(aligned, column) for column in COLUMNS}
        arms[label] = Arm(label, tuple(by_label[label]), columns)
    repeats = sorted({run.repeat for run in runs})
    return Arms(
        arms,
        unit,
        Resampling(conversations if unit == CONVERSATION else np.arange(len(places)), seed),
        Resampling(repeats, seed) if len(repeats) > 1 else None,
        tuple(repeats),
        _classes(list(arms.values())),
        int(paired.sum()),
    )


def _stacked(runs: Sequence[Evidence]) -> pd.DataFrame:
    """The requests of one arm's runs, indexed by repeat and key."""
    frames = []
    for run in runs:
        frame = run.requests
        prefix = f"{run.repeat}|"
        names = [prefix + key for key in frame["key"]]
        frame = frame.set_axis(pd.Index(names, dtype=object), axis=0)
        alone = frame["session"] == ""
        frame["conversation_key"] = np.where(alone, names, prefix + frame["session"].astype(str))
        frames.append(frame[~frame.index.duplicated()])
    return pd.concat(frames)


def _classes(arms: Sequence[Arm]) -> NDArray[np.str_]:
    """What kind of hit each request could be, by its prompt alone: the same in every arm.

    ``short tail``: behind a prefix that other conversations share comes no more than a drafter's window.
    """
    shape = arms[0]["prompt_tokens"].shape
    shared, prompt, turn = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for arm in arms:  # an arm that lacks a request says nothing about it
        for found, column in ((shared, "shared_tokens"), (prompt, "prompt_tokens"), (turn, "turn")):
            np.copyto(found, arm[column], where=np.isnan(found))
    windows = [window for arm in arms for window in _draft_windows(arm.first)]
    window = max(windows, default=0.0)
    classes = np.full(shape, "", dtype="U10")
    known = ~np.isnan(shared)
    classes[known] = COLD
    tail = prompt - shared
    classes[known & (shared > 0)] = LONG_TAIL
    classes[known & (shared > 0) & (tail <= window)] = SHORT_TAIL
    classes[known & (turn > 0)] = TWO_TURN
    classes[known & (shared > 0) & (tail <= 0)] = REPEAT
    return classes


def _draft_windows(run: Evidence) -> list[float]:
    pools = run.pools
    windows = zip(pools["role"], numbers(pools, "window"), strict=True)
    return [float(window) for role, window in windows if role == "draft" and not np.isnan(window)]
