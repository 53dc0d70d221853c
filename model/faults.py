"""Named wrong rules: each breaks one answer of a correct build and names the law that has to notice first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model.builds import BUILDS, Build
from model.drafter import Seed
from model.rules.admission import Accounting, Admission, Epoch, Suspension
from model.rules.claim import TargetCursor
from model.rules.copy import WriteInPlace
from model.rules.device import Extent, Provisional, TableUpload
from model.rules.keys import RawKeys, TrimOnly
from model.rules.layout import Index, Retention
from model.rules.lookahead import Lookahead
from model.rules.prune import LastManagerWins, PruneThenTrim
from model.rules.publish import Publish
from model.rules.scheduling import Chunking
from model.rules.slots import Slots


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong rule. ``fires``: the code that must come first, then those that tend to follow it."""

    name: str
    changes: tuple[tuple[str, Any], ...]
    base: str
    sources: tuple[str, ...]
    fires: tuple[str, ...]
    scenario: str
    looks_like: str

    @property
    def rule(self) -> str:
        """Names of the rules that it replaces."""
        return ", ".join(name for name, _ in self.changes)

    @property
    def build(self) -> Build:
        """The base build with the rule replaced."""
        base = BUILDS[self.base]
        rules = replace(base.rules, **dict(self.changes))
        return Build(f"fault:{self.name}", rules, self.looks_like, ", ".join(self.sources), False, self.fires)


def _fault(
    name: str,
    changes: dict[str, Any],
    base: str,
    sources: tuple[str, ...],
    fires: tuple[str, ...],
    scenario: str,
    looks_like: str,
) -> Fault:
    return Fault(name, tuple(changes.items()), base, sources, fires, scenario, looks_like)


_ENTRIES = (
    _fault(
        "restored-prefix-read",
        {"slots": Slots("prefix-not-hidden", hides_prefix=False)},
        "target-21",
        ("vllm#47930", "vllm#47926"),
        ("INIT", "FRONT"),
        "reports/o01",
        "Accepted length falls to about 1 as soon as prefix caching is on.",
    ),
    _fault(
        "target-cursor",
        {"claim": TargetCursor(), "admission": Admission("unclipped", clips=False)},
        "paired-22",
        ("TensorRT-LLM#18280", "TensorRT-LLM#18093"),
        ("FRONT", "PUB", "INIT", "OWN", "KEY"),
        "reports/o02",
        "A repeated prompt drops acceptance from 0.19 to 0.03; nothing crashes.",
    ),
    _fault(
        "raw-keys",
        {"keys": RawKeys()},
        "unified",
        ("sglang#10846", "sglang#11231"),
        ("KEY",),
        "reports/o04",
        "Accepted length 2.26 with the cache on, 2.39 with it off.",
    ),
    _fault(
        "trim-only",
        {"keys": TrimOnly()},
        "unified",
        ("found here: match back-off at a branch on a page end",),
        ("KEY",),
        "faults/trim_only",
        "One drafter cell per branch point belongs to the branch that came first.",
    ),
    _fault(
        "placeholder-lookahead",
        {"lookahead": Lookahead.PLACEHOLDER},
        "unified",
        ("sglang#26329", "sglang#26800", "TensorRT-LLM#18093"),
        ("KEY", "PUB"),
        "reports/o05",
        "The same prompt drafts differently when it was prefilled in chunks.",
    ),
    _fault(
        "backoff-after-prune",
        {"prune": PruneThenTrim()},
        "joint-backoff",
        ("vllm#17398",),
        ("WINDOW", "INIT", "OWN", "FRONT", "KEY"),
        "reports/o11",
        "A windowed group reads a page that was released before the hit.",
    ),
    _fault(
        "last-manager-wins",
        {"prune": LastManagerWins()},
        "joint-backoff",
        ("TensorRT-LLM#10875",),
        ("WINDOW", "INIT", "PUB", "OWN", "FRONT", "KEY"),
        "reports/o15",
        "Accuracy falls with mixed windows, depending on the order of the groups.",
    ),
    _fault(
        "node-coverage",
        {"index": Index("node-coverage", exact=False)},
        "unified",
        ("TensorRT-LLM#17122",),
        ("KEY", "INIT"),
        "reports/o18",
        "A hit claims more of a page than was ever computed into it.",
    ),
    _fault(
        "batch-row-kept",
        {"epoch": Epoch("row-kept", releases_rows=False)},
        "unified",
        ("TensorRT-LLM#13592",),
        ("STATE", "FRONT", "OWN", "KEY", "INIT", "PUB", "SHAPE", "WINDOW", "MAP"),
        "reports/o24",
        "After a suspension a request advances by its neighbour's accepted count.",
    ),
    _fault(
        "hold-leak",
        {"admission": Admission("claims-kept", frees_failed_first=False)},
        "unified",
        ("TensorRT-LLM#19202",),
        ("ROLLBACK", "PROGRESS"),
        "reports/o33",
        "Nobody is admitted although most pages are only cached.",
    ),
    _fault(
        "no-draft-lookahead-pages",
        {"admission": Admission("no-block-pages", covers_block=False)},
        "paired-22",
        ("vllm#42971",),
        ("OWN", "PUB", "INIT", "KEY", "FRONT", "ADMIT", "WINDOW"),
        "reports/o49",
        "The accepted length of other requests falls slowly with load.",
    ),
    _fault(
        "copy-in-place",
        {"copy": WriteInPlace()},
        "unified",
        ("TensorRT-LLM KVCacheManagerV2: partial-page copy",),
        ("OWN", "PUB", "KEY", "INIT"),
        "faults/copy_in_place",
        "Two requests that share a prompt start spoil each other's last page.",
    ),
    _fault(
        "publish-unwritten",
        {"publish": Publish("everything", only_written=False)},
        "paired-22",
        ("seed 000: commit gate",),
        ("PUB", "INIT"),
        "faults/publish_unwritten",
        "A later hit drafts from pages that nobody wrote.",
    ),
    _fault(
        "release-early",
        {"retention": Retention("one-token-early", tokens=-1)},
        "unified",
        ("TensorRT-LLM KVCacheManagerV2: window release",),
        ("WINDOW", "OWN", "INIT"),
        "faults/release_early",
        "Acceptance dips whenever the window's edge meets a page edge.",
    ),
    _fault(
        "discounted-budget",
        {"chunking": Chunking("charged-after-discount", charges_executed=False)},
        "unified",
        ("TensorRT-LLM#13318", "TensorRT-LLM#13351"),
        ("SHAPE",),
        "faults/discounted_budget",
        "A step runs more tokens than max_num_tokens and the event loop dies.",
    ),
    _fault(
        "evict-target-only",
        {"suspension": Suspension("target-only", both=False)},
        "paired-22",
        ("TensorRT-LLM#18093, review",),
        ("REF",),
        "faults/evict_target_only",
        "A suspended request keeps its drafter pages locked.",
    ),
    _fault(
        "no-draft-rollback",
        {"admission": Admission("draft-keeps-growth", reverts_draft=False)},
        "paired-22",
        ("TensorRT-LLM#18093, review",),
        ("ROLLBACK", "SHAPE"),
        "faults/no_draft_rollback",
        "Each skipped forward leaves the drafter's pool a little fuller.",
    ),
    _fault(
        "base-not-rolled-back",
        {"slots": Slots("length-only-snapshot", keeps_base=False, parks=False)},
        "paired-22",
        ("seed 002: snapshot and rollback",),
        ("ROLLBACK",),
        "faults/base_not_rolled_back",
        "After a failed forward a slot hides the wrong part of its context.",
    ),
    _fault(
        "draft-outside-admission",
        {"admission": Admission("target-only", counts_draft=False)},
        "paired-22",
        ("TensorRT-LLM#18660",),
        ("ADMIT", "SHAPE", "OWN", "INIT", "WINDOW"),
        "faults/draft_outside_admission",
        "A mirror's resize fails after admission and takes all ranks down.",
    ),
    _fault(
        "chunk-floored-to-nothing",
        {"chunking": Chunking("floored-to-nothing", keeps_partial=False)},
        "unified",
        ("TensorRT-LLM scheduler V2: chunk end after a hit",),
        ("PROGRESS",),
        "faults/chunk_floored_to_nothing",
        "A hit inside a page waits for ever; the server looks idle.",
    ),
    _fault(
        "late-output",
        {"epoch": Epoch("late-applied", refuses_late=False)},
        "unified",
        ("vllm#49620", "vllm#41190"),
        ("STATE", "SHAPE", "METRIC", "FRONT", "OWN", "INIT", "KEY"),
        "faults/late_output",
        "After a preemption a request skips tokens or addresses pages it lost.",
    ),
    _fault(
        "shared-table-buffer",
        {"table": TableUpload.SHARED_BUFFER},
        "unified",
        ("TensorRT-LLM#15546",),
        ("MAP", "OWN", "PUB", "INIT", "WINDOW", "KEY"),
        "faults/shared_table_buffer",
        "Under load a step reads the block table of the step after it.",
    ),
    _fault(
        "recompute-counted",
        {"accounting": Accounting("hits-with-recompute", recompute_apart=False)},
        "unified",
        ("vllm#25780", "vllm#25787"),
        ("METRIC",),
        "faults/recompute_counted",
        "30 % reuse is reported on prompts that share nothing.",
    ),
    _fault(
        "kept-provisional",
        {"provisional": Provisional.KEPT},
        "unified",
        ("vllm#14649",),
        ("INIT", "PUB"),
        "faults/kept_provisional",
        "8 to 15 % of the accepted length is lost on every output.",
    ),
    _fault(
        "slot-loss-zero",
        {"slots": Slots("restart-at-zero", parks=False, seed=Seed.ZERO)},
        "paired-22",
        ("seed 000: missed iteration", "seed 002"),
        ("PUB", "FRONT", "WINDOW"),
        "faults/slot_loss_zero",
        "A request that misses one iteration drafts from nothing afterwards.",
    ),
    _fault(
        "store-at-zero",
        {"slots": Slots("slot-local-store", stores_in_place=False)},
        "paired-22",
        ("seed 002: store start",),
        ("OWN", "PUB", "FRONT", "WINDOW", "KEY", "INIT"),
        "faults/store_at_zero",
        "A hit's drafter context overwrites the shared prefix pages.",
    ),
    _fault(
        "count-not-extent",
        {"extent": Extent.COUNT},
        "unified",
        ("seed 002: decode_draft_block_table",),
        ("OWN", "INIT", "WINDOW", "PUB"),
        "faults/count_not_extent",
        "Once a window has released pages, the block's writes land on one cell.",
    ),
)

FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ENTRIES}


def resolve_build(name: str) -> Build:
    """The build ``name``, or the faulty one ``fault:NAME``; raises ``KeyError`` with the names that exist."""
    if name in BUILDS:
        return BUILDS[name]
    fault = FAULTS.get(name.removeprefix("fault:")) if name.startswith("fault:") else None
    if fault is None:
        raise KeyError(f"no build {name!r}; builds: {', '.join(BUILDS)}, or fault:NAME")
    return fault.build
