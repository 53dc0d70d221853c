"""The configurations of seed 003: MiniMax-M3.1-Flash with a DSpark drafter, at TP2 and at TP4."""

from __future__ import annotations

from model.budget import Pair
from model.config import Drafter, Limits
from model.geometry import AttentionShape

M3_DRAFTER = AttentionShape(layers=5, kv_heads=4, head_dim=128)
DSPARK = Drafter("dspark", drafts=7, window=4096)
HOST = 89_000_000_000  # seed 003: "an 89 GB host cache per rank"


def limits(
    max_batch: int,
    max_seq_len: int,
    page_size: int = 128,
    max_num_tokens: int = 8_192,
    extra_tokens: int = 8,
    run_ahead: int = 1,
) -> Limits:
    """Limits of an engine; the defaults are those of seed 003 (X and the tokens a pass are assumed)."""
    return Limits(
        page_size=page_size,
        max_batch=max_batch,
        max_num_tokens=max_num_tokens,
        max_seq_len=max_seq_len,
        chunk_unit=page_size,
        extra_tokens=extra_tokens,
        run_ahead=run_ahead,
    )


TP2 = limits(max_batch=88, max_seq_len=1 << 20)
TP4 = limits(max_batch=64, max_seq_len=32_768)
TP2_PAGES = Pair(target=3_189_548, draft=655_360)  # target pages fitted from seed 003
TP4_PAGES = Pair(target=2_375_356, draft=327_680)
SEPARATE_SHARE = 341  # draft pages a slot in the separate pool of seed 003, fitted


def device_bytes(page_bytes: Pair, target_pages: int, slots: int) -> int:
    """Device memory of a configuration of seed 003, from its separate pool."""
    return target_pages * page_bytes.target + SEPARATE_SHARE * slots * page_bytes.draft


TP2_BYTES = device_bytes(TP2_PAGES, 38_178, 88)
TP4_BYTES = device_bytes(TP4_PAGES, 83_319, 64)
