"""What every generated engine has in common, so that a changed one can be held to it.

Laws promise nothing about engines outside of this: where no chunk fits into a step, no request ever ends.
"""

from __future__ import annotations

from model.config import EngineConfig
from model.drafter import KINDS


def could_be_generated(config: EngineConfig) -> bool:
    """Whether the generator could have given the constants of ``config``, pools and lengths aside."""
    bounds, drafter, graphs = config.limits, config.drafter, config.limits.graph_batches
    span = KINDS[drafter.kind].tag_span(drafter.chain)
    return (
        bounds.max_num_tokens >= bounds.chunk_unit + drafter.drafts  # a chunk fits in beside a row
        and (bounds.chunked_prefill or bounds.max_num_tokens >= bounds.max_seq_len // 4)  # or else a whole prompt
        and (not graphs or graphs[-1] == bounds.max_batch)
        and (drafter.chain == 1 or drafter.kind == "mtp")
        and all(life.lookahead == span for life in config.draft)
        and all(life.window == drafter.window for life in config.draft[:1])
        and all(life.window is not None or not life.sinks for life in (*config.target, *config.draft))
        and (not config.asynchronous_copies or any(size.host_pages for size in config.pools.values()))
    )
