"""A nightly as Markdown, for a pull request or the summary of a CI job."""

from __future__ import annotations

from collections import Counter

from reports.nightly.night import Night
from reports.nightly.outcome import CRASHED, FAILED, OPEN, PASSED, UNCHECKED
from reports.nightly.sentences import BAD, GOOD, ODD, headline, sentences

MOST = 60  # sentences; the XML has every case
_MARKS = {BAD: "❌", ODD: "⚠️", GOOD: "✅"}
_COLUMNS = (PASSED, FAILED, CRASHED, UNCHECKED, OPEN)


def markdown(night: Night) -> str:
    """The verdict, what is worth a sentence, and the cases of each stage counted."""
    head = headline(night)
    lines = [f"## kvtwin nightly: {_escaped(head.text)}", ""]
    told = sentences(night)
    for sentence in told[:MOST]:
        mark = _MARKS.get(sentence.tone, "")
        lines.append(f"- {mark} {_escaped(sentence.text)}" if mark else f"- {_escaped(sentence.text)}")
    if len(told) > MOST:
        lines.append(f"- and {len(told) - MOST:,} more")
    if told:
        lines.append("")
    lines += ["| stage | " + " | ".join(_COLUMNS) + " | seconds |", "|---|" + "---:|" * (len(_COLUMNS) + 1)]
    counts = Counter((case.stage, case.verdict) for case in night.found.cases)
    for stage in dict.fromkeys(case.stage for case in night.found.cases):
        seconds = sum(value for (of, _), value in night.found.seconds.items() if of == stage)
        cells = [f"{counts[stage, verdict]:,}" for verdict in _COLUMNS]
        lines.append(f"| {stage} | {' | '.join(cells)} | {seconds:,.1f} |")
    held = night.baseline or "none"
    lines += ["", f"Suite `{night.suite}`, {night.code}, on {_escaped(night.device)}; baseline: `{held}`.", ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text that Markdown takes as it stands."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text
