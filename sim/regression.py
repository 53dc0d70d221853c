"""A toy engine and its ops as a scenario file that reproduces what they did: the form in which a failure is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from model.config import EngineConfig
from model.geometry import Lifecycle
from model.ops import Op
from sim.opcodec import encode_op

_DEFAULTS = {"chunked_prefill": True, "deferral": True, "max_util_for_resume": 0.97, "partial_children": 32}


def scenario_yaml(name: str, comment: str, build: str, config: EngineConfig, ops: Sequence[Op]) -> str:
    """The text of a scenario file with ``comment`` on its first line; it loads to the same engine and ops."""
    values: dict[str, Any] = {
        "summary": name,
        "geometry": _geometry(config),
        "drafter": {
            "kind": config.drafter.kind,
            "drafts": config.drafter.drafts,
            "window": config.drafter.window,
            "chain": config.drafter.chain,
        },
        "build": build,
        "limits": _limits(config),
        "pools": {
            pool: {"device_pages": size.device_pages, "host_pages": size.host_pages}
            for pool, size in config.pools.items()
        },
        "policy": {"kind": config.policy.value, "max_num_turns": config.max_num_turns},
        "ops": [_op(op) for op in ops],
    }
    return f"# {' '.join(comment.split())}\n" + "".join(_lines(key, value) for key, value in values.items())


def _lines(key: str, value: Any) -> str:
    """``key`` and its value, nested ones in flow style: one line a pool, a group of layers, an op."""
    if isinstance(value, list):
        return f"{key}:\n" + "".join(f"  - {_flow(entry)}\n" for entry in value)
    if key in ("geometry", "pools"):
        return f"{key}:\n" + "".join(f"  {name}: {_flow(entry)}\n" for name, entry in value.items())
    return f"{key}: {_flow(value)}\n"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=1 << 20)
    return text.removesuffix("\n").removesuffix("\n...")


def _geometry(config: EngineConfig) -> dict[str, Any]:
    sides = {"target": config.target, "draft": config.draft}
    layers = {side: [_layers(life, config) for life in lives] for side, lives in sides.items() if lives}
    return {**layers, "vocabulary": config.vocabulary, "tensor_parallel": config.tensor_parallel}


def _layers(life: Lifecycle, config: EngineConfig) -> dict[str, Any]:
    size = max(1, life.bytes_per_token) * config.limits.page_size
    return {"name": life.name, "window": life.window, "sinks": life.sinks, "page_bytes": size, "pool": life.pool}


def _limits(config: EngineConfig) -> dict[str, Any]:
    limits = config.limits
    names = ("page_size", "max_batch", "max_num_tokens", "max_seq_len", "chunk_unit", "extra_tokens", "stall_passes")
    values: dict[str, Any] = {name: getattr(limits, name) for name in names}
    values |= {name: getattr(limits, name) for name, usual in _DEFAULTS.items() if getattr(limits, name) != usual}
    return values | {"overlap": bool(limits.run_ahead)}


def _op(op: Op) -> dict[str, Any]:
    """An op with the keys of a scenario's ``ops``."""
    line = encode_op(op)
    if line["op"] == "settle" and not line["accepted"]:
        del line["accepted"]
    return line
