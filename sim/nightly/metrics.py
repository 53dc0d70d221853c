"""The figures of a nightly: which must be equal to the baseline's, which are noisy, and what is better."""

from __future__ import annotations

from dataclasses import dataclass

LESS, MORE, SAME = "less", "more", "same"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run. ``better`` says which way is; ``minimum`` is ``None`` for one that must be equal.

    Of a noisy one it is the share by which its mean has to move before it is told at all.
    """

    name: str
    label: str
    better: str
    pattern: str = "{:,.0f}"
    minimum: float | None = None

    @property
    def exact(self) -> bool:
        """Whether runs of the same code give the very same."""
        return self.minimum is None

    def shown(self, value: float | str | None) -> str:
        """A value as people read it; digests by their first digits."""
        if value is None:
            return "none"
        if isinstance(value, str):
            return value[:12] if len(value) == 64 and " " not in value else value or "none"
        return self.pattern.format(value)


_EXACT = (
    Metric("outcome", "the outcome", SAME),
    Metric("laws_broken", "laws broken", SAME),
    Metric("laws_evaluated", "laws evaluated", SAME),
    Metric("prefilled_tokens", "prefilled tokens", LESS),
    Metric("cached_tokens", "cached tokens", MORE),
    Metric("claims", "requests with a claim", MORE),
    Metric("recomputed_tokens", "recomputed tokens", LESS),
    Metric("preemptions", "preemptions", LESS),
    Metric("peak_pages", "peak pages", LESS),
    Metric("output_tokens", "output tokens", SAME),
    Metric("figure", "the figure", SAME, "{:,.4g}"),
    Metric("decisions", "the digest of decisions", SAME),
    Metric("memory", "the digest of the memory", SAME),
)
_NOISY = (
    Metric("acceptance_length", "acceptance length", MORE, "{:,.3f}", 0.02),
    Metric("ttft_ms", "TTFT (ms)", LESS, "{:,.2f}", 0.05),
    Metric("tpot_ms", "TPOT (ms)", LESS, "{:,.3f}", 0.03),
    Metric("step_ms", "time of a step (ms)", LESS, "{:,.3f}", 0.10),
)
METRICS = {metric.name: metric for metric in (*_EXACT, *_NOISY)}
NOISY = tuple(metric.name for metric in _NOISY)
DIGESTS = ("decisions", "memory")  # say nothing that another changed figure of the same run does not say better


def metric_of(name: str) -> Metric:
    """The metric of a column, such as ``peak_pages:draft``."""
    return METRICS[name.partition(":")[0]]


def label_of(name: str) -> str:
    """How a sentence calls the figure ``name``."""
    kind, _, part = name.partition(":")
    metric = METRICS[kind]
    if kind == "figure":
        return part
    return f"{metric.label} of pool {part}" if part else metric.label
