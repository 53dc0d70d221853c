"""An engine (or several workers) and its ops as a scenario file: the form in which a failure is read and kept.

The file loads to the ops and to the engine of the trace. Two figures that no decision depends on may differ: bytes
of a token where the trace has none, and the lookahead of layers, which the build's layout sets anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from model.config import EngineConfig, Memory
from model.geometry import Lifecycle, ReusePolicy
from model.ops import At, Op
from model.topology import Topology
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.opcodec import encode_op
from sim.optrace import Trace

_DEFAULTS = {"chunked_prefill": True, "deferral": True, "max_util_for_resume": 0.97, "partial_children": 32}
_LINK = 25.0  # GiB/s: ops say when a copy lands, so that any bandwidth will do


def scenario_yaml(name: str, comment: str, build: str, config: EngineConfig, ops: Sequence[At | Op]) -> str:
    """The text of a scenario file with ``comment`` on its first line; it loads to the same engine and ops."""
    return trace_yaml(Trace(name, build, 0, "exhaustive", config, tuple(ops)), (comment,))


def trace_yaml(trace: Trace, comments: Iterable[str] = (), expect: dict[str, Any] | None = None) -> str:
    """The text of a scenario file that is ``trace``, with a line for each of ``comments`` and what is expected of it.

    Raises ValueError, in one sentence, for an engine that no scenario file can describe.
    """
    values = _values(trace)
    if trace.config.memory is not None:
        split = {key: value for key, value in values.items() if key != "pools"}
        split["memory"] = {"device": trace.config.memory.device, "host": trace.config.memory.host}
        if _config_of(split) == _config_of(values):  # the build splits the bytes, and may do so better one day
            values = split
    if expect is not None:
        values["expect"] = expect
    head = "".join(f"# {' '.join(comment.split())}\n" for comment in comments)
    return head + _text(values)


def _values(trace: Trace) -> dict[str, Any]:
    """The scenario as plain values, pools in pages."""
    config = trace.config if trace.workers is None else trace.workers.configs[0]
    drafter = config.drafter
    values: dict[str, Any] = {
        "summary": trace.scenario,
        "geometry": _geometry(config),
        "drafter": {
            "kind": drafter.kind,
            "drafts": drafter.drafts,
            "window": drafter.window,
            "chain": drafter.chain,
        },
        "build": trace.build,
        "limits": _limits(config),
        "pools": _pools(config),
        "policy": {"kind": config.policy.value, "max_num_turns": config.max_num_turns},
        "ops": [_op(op) for op in trace.ops],
    }
    if trace.seed:
        values = {"summary": values.pop("summary"), "seed": trace.seed, **values}
    if config.memory is not None:
        values["memory"] = _memory(config.memory)
    if config.asynchronous_copies:
        values["host_link"] = _LINK
    if trace.workers is not None:
        values["workers"] = _workers(trace.workers)
    return values


def _config_of(values: dict[str, Any]) -> EngineConfig | None:
    """The engine that a file of ``values`` loads to; ``None`` for a file that is refused."""
    try:
        return parse_scenario(_text(values), "trace.yaml", Path()).engine_config()
    except InputError:
        return None


def _text(values: dict[str, Any]) -> str:
    """The file, ops last."""
    order = sorted(values, key=lambda key: key == "ops")
    return "".join(_lines(key, values[key]) for key in order)


def _lines(key: str, value: Any) -> str:
    """``key`` and its value, nested ones in flow style: one line a pool, a group of layers, an op."""
    if isinstance(value, list):
        return f"{key}:\n" + "".join(f"  - {_flow(entry)}\n" for entry in value)
    if key in ("geometry", "pools"):
        return f"{key}:\n" + "".join(f"  {name}: {_flow(entry)}\n" for name, entry in value.items())
    return f"{key}: {_flow(value)}\n"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=True, width=1 << 20, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _geometry(config: EngineConfig) -> dict[str, Any]:
    sides = {"target": config.target, "draft": config.draft}
    layers = {side: [_layers(life, config) for life in lives] for side, lives in sides.items() if lives}
    return {**layers, "vocabulary": config.vocabulary, "tensor_parallel": config.tensor_parallel}


def _layers(life: Lifecycle, config: EngineConfig) -> dict[str, Any]:
    if life.policy is not ReusePolicy.REQUIRED:
        raise ValueError(f"no scenario file says that the layers {life.name} are {life.policy.name.lower()}")
    size = max(1, life.bytes_per_token) * config.limits.page_size
    layers: dict[str, Any] = {"name": life.name, "window": life.window, "sinks": life.sinks}
    if life.trail:
        layers["trail"] = life.trail
    return layers | {"page_bytes": size, "pool": life.pool}


def _limits(config: EngineConfig) -> dict[str, Any]:
    limits = config.limits
    names = ("page_size", "max_batch", "max_num_tokens", "max_seq_len", "chunk_unit", "extra_tokens", "stall_passes")
    values: dict[str, Any] = {name: getattr(limits, name) for name in names}
    values |= {name: getattr(limits, name) for name, usual in _DEFAULTS.items() if getattr(limits, name) != usual}
    if limits.graph_batches:
        values["graph_batches"] = list(limits.graph_batches)
    return values | {"overlap": bool(limits.run_ahead)}


def _pools(config: EngineConfig) -> dict[str, Any]:
    """Pools that layers name; nothing can happen in another one."""
    named = {life.pool for life in (*config.target, *config.draft)}
    return {
        pool: {"device_pages": size.device_pages, "host_pages": size.host_pages}
        for pool, size in config.pools.items()
        if pool in named
    }


def _memory(memory: Memory) -> dict[str, Any]:
    values: dict[str, Any] = {"device": memory.device, "host": memory.host, "page_bytes": dict(memory.page_bytes)}
    return values | {"given_share": True} if memory.given_share else values


def _workers(workers: Topology) -> dict[str, Any]:
    """The kind and its options; every worker has its own pools, and nothing else of its own."""
    first = workers.configs[0]
    if any(replace(config, pools=first.pools) != first for config in workers.configs):
        raise ValueError("no scenario file says that workers differ in more than their pools")
    values: dict[str, Any] = {"kind": workers.kind, "count": len(workers.configs)}
    options = dict(workers.options)
    if options.get("gate"):
        values["gate"] = options["gate"]
    if not options.get("drafts", True):
        values["transfers_draft"] = False
    return values | {"pools": [_pools(config) for config in workers.configs]}


def _op(op: At | Op) -> dict[str, Any]:
    """An op with the keys of a scenario's ``ops``."""
    line = encode_op(op)
    if line["op"] == "settle" and not line["accepted"]:
        del line["accepted"]
    return line
