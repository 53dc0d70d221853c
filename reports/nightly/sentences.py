"""A nightly in plain sentences, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from reports.document import plural
from reports.nightly.night import Night
from reports.nightly.outcome import CRASHED, FAILED, OPEN, PASSED, UNCHECKED, Case
from sim.nightly.metrics import label_of, metric_of
from sim.nightly.rules import BETTER, GONE, NEW, REMADE, Change

BAD, ODD, GOOD, PLAIN = "bad", "odd", "good", "plain"
_BESIDE = ("device drill", "drill", "seeds")  # stages whose subjects are no runs
MOST = 6  # names that a sentence lists
_BAD_WORDS = {CRASHED: "crashed", FAILED: "failed", UNCHECKED: "not checked"}
_TOLD = {
    NEW: "is new: the baseline has no figures of it",
    GONE: "is gone: the baseline has figures of it, this nightly has none",
    REMADE: "was defined otherwise when the baseline was stored, so that nothing of it was compared",
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One line for a person, and whether it is bad news."""

    text: str
    tone: str


def sentences(night: Night) -> list[Sentence]:
    """What went wrong, what got worse, what could not be judged; then what got better, what is new, what is gone."""
    told = [Sentence(_case(case), BAD) for case in night.cases(CRASHED)]
    told += [Sentence(text, BAD) for text in _failures(night.cases(FAILED))]
    changes = night.compared.changes if night.compared is not None else ()
    told += [Sentence(text, BAD) for text in _changes(change for change in changes if change.fails)]
    told += [Sentence(_case(case), ODD) for case in night.cases(UNCHECKED)]
    if night.compared is not None and not night.compared.exact + night.compared.noisy:
        told.append(Sentence(f"no figure could be compared with the baseline {night.baseline}", ODD))
    fine = (change for change in changes if change.metric and not change.fails)
    told += [Sentence(text, GOOD) for text in _changes(fine)]
    told += [Sentence(text, ODD) for text in _subjects(changes)]
    told += [Sentence(note, ODD) for note in night.notes]
    if night.left_out:
        what = _names(f"{stage} {subject}".strip() for stage, subject in sorted(night.left_out))
        told.append(Sentence(f"left out: {what}", ODD))
    told += [Sentence(line, PLAIN) for line in night.skipped]
    if unanswered := night.cases(OPEN):
        told.append(Sentence(f"open: {_names(f'{case.subject} ({case.message})' for case in unanswered)}", PLAIN))
    return told


def headline(night: Night) -> Sentence:
    """The verdict in one sentence."""
    passed, total = len(night.cases(PASSED)), len(night.found.cases)
    counts = {word: len(night.cases(verdict)) for verdict, word in _BAD_WORDS.items()}
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    where = f"suite {night.suite} on {night.device if night.on != 'sim' else 'sim'}"
    cases = f"{passed:,} of {plural(total, 'case')} passed" + (f" ({', '.join(parts)})" if parts else "")
    held = _held(night)
    worse = bool(parts) or (night.compared is not None and night.compared.fails)
    words = "not fine" if worse else "interrupted" if night.interrupted else "fine"
    if night.exit_code == 3:
        words = "nothing checked"
    tone = {"fine": GOOD, "not fine": BAD}.get(words, ODD)
    return Sentence(f"{where}: {words}; {cases}{held}", tone)


def _held(night: Night) -> str:
    if night.compared is None:
        return "; held to no baseline"
    fails = sum(change.fails for change in night.compared.changes)
    looked = f"{plural(night.compared.exact, 'exact figure')} and {night.compared.noisy:,} noisy"
    if not fails:
        return f"; {looked} compared, none got worse"
    return f"; of {looked}, {fails:,} {'is' if fails == 1 else 'are'} not what the baseline has"


def _case(case: Case) -> str:
    return case.message if case.subject and case.subject in case.message else f"{case.subject}: {case.message}"


def _failures(cases: Iterable[Case]) -> Iterator[str]:
    """One sentence a case: laws of runs first, then what a scenario expects, faults, figures. Repeats are told once."""
    seen: set[tuple[str, str, str]] = set()
    for case in sorted(cases, key=_rank):
        key = case.stage, case.subject, case.name.partition(", repeat")[0]
        if key not in seen:
            seen.add(key)
            yield f"{case.stage}: {_case(case)}" if case.stage in _BESIDE else _case(case)


def _rank(case: Case) -> int:
    if case.stage in _BESIDE:
        return 2 + _BESIDE.index(case.stage)
    return 1 if case.name == "expectations" else 0


def _changes(changes: Iterable[Change]) -> Iterator[str]:
    """One sentence a subject, in the order in which its worst change comes."""
    by_subject: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_subject.setdefault((change.stage, change.subject), []).append(change)
    for (stage, subject), found in by_subject.items():
        place = subject if stage in ("comparisons", "fuzz") else f"{stage} {subject}"
        yield f"{place}: {'; '.join(change_text(change) for change in found)}"


def change_text(change: Change) -> str:
    """One figure: what it was, what it is, and by how much it moved."""
    metric = metric_of(change.metric)
    label = label_of(change.metric)
    old, new = metric.shown(change.before), metric.shown(change.after)
    if change.ratio is None:
        moved = _percent(change)
        must = ", but it has to be equal" if change.kind == BETTER else ""
        return f"{label} {old} → {new}{f' ({moved}{must})' if moved else ''}"
    ratio = change.ratio
    interval = f"{_signed(ratio.low - 1)} to {_signed(ratio.high - 1)} over {units_of(change)}"
    return f"{label} {old} → {new} ({change.kind} by {_signed(ratio.value - 1)}, {interval})"


def units_of(change: Change) -> str:
    """What was resampled, and how many there were."""
    return plural(change.units, "repeat" if change.metric == "step_ms" else "conversation")


def _percent(change: Change) -> str:
    if isinstance(change.before, str) or isinstance(change.after, str) or not change.before or change.after is None:
        return ""
    return _signed(change.after / change.before - 1)


def _signed(share: float) -> str:
    return f"{'+' if share >= 0 else '−'}{abs(share):.1%}"


def _subjects(changes: Iterable[Change]) -> Iterator[str]:
    """What only one side has, a sentence for each stage."""
    lone = sorted((change for change in changes if not change.metric), key=lambda one: (one.kind, one.stage))
    for (kind, stage), group in groupby(lone, key=lambda one: (one.kind, one.stage)):
        subjects = [change.subject for change in group]
        yield f"{stage}: {_names(subjects)} {_TOLD[kind]}"


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - MOST
    return ", ".join(listed[:MOST]) + (f" and {rest:,} more" if rest > 0 else "")
