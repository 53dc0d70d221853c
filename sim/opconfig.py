"""What the configuration in a trace of ops must hold before an engine is built from it."""

from __future__ import annotations

from typing import Any

from model.config import EngineConfig
from model.drafter import KINDS
from model.geometry import Lifecycle
from scenarios.engine_build import unknown
from scenarios.errors import FieldError, quote

Location = tuple[str | int, ...]
_MOST = 1 << 40  # of anything that is counted in a configuration
_AT_LEAST: dict[str, dict[str, int]] = {
    "limits": {
        "page_size": 1,
        "max_batch": 1,
        "max_num_tokens": 1,
        "max_seq_len": 1,
        "chunk_unit": 1,
        "extra_tokens": 0,
        "run_ahead": 0,
        "stall_passes": 1,
        "partial_children": 1,
    },
    "drafter": {"drafts": 0, "chain": 1},
    "": {"max_num_turns": 1, "vocabulary": 2, "tensor_parallel": 1},
}
_LIFECYCLE = {"sinks": 0, "trail": 0, "lookahead": 0, "bytes_per_token": 0}


def check_config(config: EngineConfig) -> None:
    """Refuse values that no engine can have. FieldError names the field below ``config``."""
    for part, fields in _AT_LEAST.items():
        owner = getattr(config, part) if part else config
        for name, least in fields.items():
            _whole(getattr(owner, name), least, ("config", part, name) if part else ("config", name))
    limits, drafter = config.limits, config.drafter
    share = limits.max_util_for_resume
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise FieldError(("config", "limits", "max_util_for_resume"), _problem("a share above 0, at most 1", share))
    for name in ("chunked_prefill", "deferral"):
        if not isinstance(getattr(limits, name), bool):
            raise FieldError(("config", "limits", name), _problem("true or false", getattr(limits, name)))
    if not isinstance(config.asynchronous_copies, bool):
        found = config.asynchronous_copies
        raise FieldError(("config", "asynchronous_copies"), _problem("true or false", found))
    if not isinstance(drafter.kind, str) or drafter.kind not in KINDS:
        raise FieldError(("config", "drafter", "kind"), unknown("a kind", str(drafter.kind), KINDS))
    _window(drafter.window, ("config", "drafter", "window"))
    _check_pools(config)
    if not config.target:
        raise FieldError(("config", "target"), "expected at least one lifecycle, found none")
    for role in ("target", "draft"):
        for place, lifecycle in enumerate(getattr(config, role)):
            _check_lifecycle(lifecycle, role, config, ("config", role, place))


def _check_pools(config: EngineConfig) -> None:
    for name, size in config.pools.items():
        _whole(size.device_pages, 1, ("config", "pools", name, "device_pages"))
        _whole(size.host_pages, 0, ("config", "pools", name, "host_pages"))


def _check_lifecycle(lifecycle: Lifecycle, role: str, config: EngineConfig, location: Location) -> None:
    for name, least in _LIFECYCLE.items():
        _whole(getattr(lifecycle, name), least, (*location, name))
    _window(lifecycle.window, (*location, "window"))
    if not isinstance(lifecycle.name, str) or not lifecycle.name:
        raise FieldError((*location, "name"), _problem("a name", lifecycle.name))
    if lifecycle.role != role:
        raise FieldError((*location, "role"), _problem(repr(role), lifecycle.role))
    if not isinstance(lifecycle.pool, str) or lifecycle.pool not in config.pools:
        raise FieldError((*location, "pool"), unknown("a pool", str(lifecycle.pool), config.pools))


def _window(value: Any, location: Location) -> None:
    if value is not None:
        _whole(value, 1, location)


def _whole(value: Any, least: int, location: Location) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise FieldError(location, _problem(f"a whole number from {least}", value))


def _problem(expected: str, found: object) -> str:
    return f"expected {expected}, found {quote(found)}"
