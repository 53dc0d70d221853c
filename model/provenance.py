"""Which upstream change brought an answer of a rule: what the matrix of builds says beside each answer."""

from __future__ import annotations

from model.builds import BUILDS, Build

_MAIN = "main before #18093"
_18093 = "#18093 (seed 004)"
_22 = "#22 (seed 000)"
_21281 = "#21281 (seed 002)"
_UNIFIED = "unified layout (seed 003)"
_VLLM_DROP = "vLLM without lookahead hashes"
_VLLM_AHEAD = "vLLM with lookahead hashes"
_SGLANG = "SGLang"

BROUGHT_BY: dict[tuple[str, str], str] = {
    ("layout", "separate"): _MAIN,
    ("layout", "paired"): _18093,
    ("layout", "unified"): _UNIFIED,
    ("layout", "draft-group-in-shared-pool"): "vLLM's groups of one pool",
    ("layout", "optional-draft-group-in-shared-pool"): "vLLM's groups of one pool, bounded replay",
    ("layout", "fused-page"): f"{_SGLANG}'s fused lanes",
    ("keys", "match-backoff"): "merged in place of #18093",
    ("keys", "shifted-stream"): _18093,
    ("keys", "whole-blocks"): _VLLM_DROP,
    ("keys", "lookahead-hash"): _VLLM_AHEAD,
    ("claim", "target-only"): _MAIN,
    ("claim", "target-only-full-pages"): "#21 alone (hypothesis of seed 000)",
    ("claim", "joint-minimum"): _18093,
    ("claim", "recompute-tail"): "recompute of the speculative tail",
    ("claim", "windowed-pair"): _22,
    ("claim", "windowed-pair-no-branch"): "#22 without its branch point",
    ("claim", "windowed-pair-page-boundary"): f"{_UNIFIED}, before partial endpoints",
    ("claim", "without-window"): "experiment of seed 003",
    ("claim", "drop-last-page"): f"{_VLLM_DROP} (drop of the last block)",
    ("claim", "window-tail-replay"): f"{_VLLM_AHEAD} (bounded replay)",
    ("publish", "everything"): _MAIN,
    ("publish", "written-per-chunk"): _UNIFIED,
    ("publish", "per-chunk"): _18093,
    ("publish", "written"): f"{_22}, commit gate",
    ("publish", "written-no-branch"): "#22 without its branch point",
    ("publish", "whole-blocks"): "vLLM's full blocks",
    ("mirror", "target-view-history"): _21281,
    ("mirror", "legacy-draft-view"): "main before #21281",
    ("retention", "window"): _MAIN,
    ("retention", "window-and-trailing-page"): _21281,
    ("slots", "prefix-not-hidden"): _MAIN,
    ("slots", "parked-and-resumed"): "#22 and #21281 (seeds 000, 002)",
    ("admission", "symmetric"): _18093,
    ("admission", "draft-outside-admission"): "main before #21281",
    ("transfer", "per-pool-fenced"): "connectors as repaired upstream",
    ("transfer", "target-pages-only"): "TensorRT-LLM#17371",
    ("budget", "affine-split"): "affine split of a rank's memory, upstream",
    ("budget", "host-by-draft-funding"): f"{_22}, host share",
    ("budget", "window-share"): f"{_UNIFIED}, two windows a slot",
}


def brought_by(build: Build, rule: str) -> str:
    """The change that brought the answer of ``build`` to ``rule``: that of the first build with it, where none is
    named for the answer itself, and for a fault's wrong answer where the fault is from."""
    answer = build.rules.named()[rule]
    named = BROUGHT_BY.get((rule, answer))
    if named is not None:
        return named
    first = next((known for known in BUILDS.values() if known.rules.named()[rule] == answer), build)
    return first.provenance
