"""Ops and the world they act on, as plain JSON values and back: the lines of a trace file.

The keys of an op are those of the ``ops:`` of a scenario file. Decoding raises ValueError that says what was expected.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from model.config import Drafter, EngineConfig, Limits, Memory, PoolSize, PublishPolicy, RequestSpec, Scope
from model.geometry import Lifecycle, ReusePolicy
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Fail, Land, Lose, Op, Settle, Shrink, Submit, Suspend, Warmup
from model.tokens import Segment

Json = dict[str, Any]


def encode_op(op: At | Op) -> Json:
    """``op`` as a JSON object; its kind stands under ``op``, the worker it is for, if any, under ``worker``."""
    if isinstance(op, At):
        return {**encode_op(op.op), "worker": op.worker}
    if isinstance(op, Submit):
        return _encode_submit(op.spec)
    if isinstance(op, Dispatch):
        return {"op": "dispatch", "skip": True} if op.skip else {"op": "dispatch"}
    if isinstance(op, Settle):
        return {"op": "settle", "accepted": list(op.accepted)}
    if isinstance(op, Cancel):
        return {"op": "cancel", "request": op.request_id}
    if isinstance(op, Suspend):
        return {"op": "suspend", "request": op.request_id}
    if isinstance(op, Shrink):
        return {"op": "shrink", "pool": op.pool, "pages": op.pages}
    if isinstance(op, Send):
        return {"op": "send", "request": op.request_id}
    if isinstance(op, Arrive):
        return {"op": "arrive", "request": op.request_id}
    if isinstance(op, Abort):
        return {"op": "abort", "request": op.request_id, "recompute": op.recompute}
    if isinstance(op, Land | Lose):
        return {"op": "land" if isinstance(op, Land) else "lose", "copy": op.copy}
    if isinstance(op, Warmup):
        return {"op": "warmup", "batch": op.batch, "tokens": op.tokens}
    return {"op": "fail"}


def decode_op(line: Any) -> At | Op:
    """The op of one JSON object."""
    if not isinstance(line, dict):
        raise ValueError("expected an object with the key op")
    if "worker" in line:
        rest = {key: value for key, value in line.items() if key != "worker"}
        return At(_whole(line["worker"], "worker"), _decode_one(rest))
    return _decode_one(line)


def _decode_one(line: Json) -> Op:
    kind = line.get("op")
    if kind not in _KEYS:
        raise ValueError(f"expected op to be one of {', '.join(_KEYS)}, found {kind!r}")
    unknown = sorted(set(line) - _KEYS[kind] - {"op"})
    if unknown:
        raise ValueError(f"expected only {', '.join(sorted(_KEYS[kind])) or 'op'} in a {kind}, found {unknown[0]}")
    if kind == "submit":
        return Submit(_decode_submit(line))
    if kind == "dispatch":
        return Dispatch(bool(line.get("skip", False)))
    if kind == "settle":
        accepted = line.get("accepted")
        if not isinstance(accepted, list):
            raise ValueError("expected accepted to be a list of counts")
        return Settle(tuple(_whole(count, "accepted", 1) for count in accepted))
    if kind == "cancel":
        return Cancel(_whole(line.get("request"), "request"))
    if kind == "suspend":
        return Suspend(_whole(line.get("request"), "request"))
    if kind == "shrink":
        return Shrink(_text(line.get("pool"), "pool"), _whole(line.get("pages"), "pages"))
    if kind == "send":
        return Send(_whole(line.get("request"), "request"))
    if kind == "arrive":
        return Arrive(_whole(line.get("request"), "request"))
    if kind == "abort":
        return Abort(_whole(line.get("request"), "request"), bool(line.get("recompute", False)))
    if kind in ("land", "lose"):
        return (Land if kind == "land" else Lose)(_whole(line.get("copy"), "copy"))
    if kind == "warmup":
        return Warmup(_whole(line.get("batch"), "batch", 1), _whole(line.get("tokens"), "tokens", 1))
    return Fail()


_KEYS: dict[Any, set[str]] = {
    "submit": {
        "request",
        "prompt",
        "output",
        "output_seed",
        "conversation",
        "scope",
        "priority",
        "drafts",
        "output_ids",
    },
    "dispatch": {"skip"},
    "settle": {"accepted"},
    "cancel": {"request"},
    "suspend": {"request"},
    "fail": set(),
    "shrink": {"pool", "pages"},
    "send": {"request"},
    "arrive": {"request"},
    "abort": {"request", "recompute"},
    "land": {"copy"},
    "lose": {"copy"},
    "warmup": {"batch", "tokens"},
}


def _encode_submit(spec: RequestSpec) -> Json:
    line: Json = {"op": "submit", "request": spec.request_id, "prompt": [_encode_segment(part) for part in spec.prompt]}
    line["output"] = spec.max_new_tokens
    line["output_seed"] = spec.output_seed
    line["conversation"] = spec.conversation
    if spec.scope != Scope():
        line["scope"] = asdict(spec.scope)
    if spec.priority:
        line["priority"] = spec.priority
    if not spec.drafts:
        line["drafts"] = False
    if spec.output:
        line["output_ids"] = list(spec.output)
    return line


def _decode_submit(line: Json) -> RequestSpec:
    prompt = line.get("prompt")
    if not isinstance(prompt, list) or not prompt:
        raise ValueError("expected prompt to be a list of token runs")
    return RequestSpec(
        request_id=_whole(line.get("request"), "request"),
        prompt=tuple(_decode_segment(part) for part in prompt),
        max_new_tokens=_whole(line.get("output"), "output", 1),
        output_seed=_whole(line.get("output_seed"), "output_seed"),
        conversation=_whole(line.get("conversation", -1), "conversation", -1),
        scope=_fields(Scope, line.get("scope", {}), "scope"),
        priority=_whole(line.get("priority", 0), "priority", -(1 << 31)),
        drafts=_flag(line.get("drafts", True), "drafts"),
        output=_ids(line.get("output_ids", []), "output_ids"),
    )


def _encode_segment(segment: Segment) -> Json:
    if segment.literal:
        return {"ids": list(segment.literal)}
    line: Json = {"stream": segment.seed, "tokens": segment.length}
    if segment.first >= 0:
        line["first"] = segment.first
    return line


def _decode_segment(line: Any) -> Segment:
    if isinstance(line, dict) and set(line) == {"ids"} and isinstance(line["ids"], list) and line["ids"]:
        return Segment.of(tuple(_whole(token, "ids") for token in line["ids"]))
    if isinstance(line, dict) and {"stream", "tokens"} <= set(line) <= {"stream", "tokens", "first"}:
        first = _whole(line.get("first", -1), "first", -1)
        return Segment(_whole(line["stream"], "stream"), _whole(line["tokens"], "tokens", 1), first)
    raise ValueError("expected a token run with ids, or with stream and tokens")


def encode_config(config: EngineConfig) -> Json:
    """``config`` as a JSON object: every field, nested ones as objects."""
    return asdict(config)


def decode_config(line: Any) -> EngineConfig:
    """The configuration of one JSON object."""
    if not isinstance(line, dict):
        raise ValueError("expected config to be an object")
    values = dict(line)
    for role in ("target", "draft"):
        values[role] = tuple(_decode_lifecycle(part) for part in values.get(role, ()))
    values["drafter"] = _fields(Drafter, values.get("drafter"), "drafter")
    limits = values.get("limits")
    if isinstance(limits, dict):
        limits = {**limits, "graph_batches": tuple(limits.get("graph_batches", ()))}
    values["limits"] = _fields(Limits, limits, "limits")
    pools = values.get("pools")
    if not isinstance(pools, dict):
        raise ValueError("expected pools to be an object")
    values["pools"] = {name: _fields(PoolSize, size, f"pools.{name}") for name, size in pools.items()}
    values["memory"] = _decode_memory(values.get("memory"))
    values["policy"] = PublishPolicy(values.get("policy", PublishPolicy.ALL_REUSABLE))
    return _fields(EngineConfig, values, "config")


def _decode_memory(line: Any) -> Memory | None:
    if line is None:
        return None
    memory = _fields(Memory, line, "memory")
    pages = memory.page_bytes
    if not isinstance(pages, list) or not all(isinstance(entry, list) and len(entry) == 2 for entry in pages):
        raise ValueError("expected memory.page_bytes to list pools with the bytes of a page")
    sizes = tuple((_text(pool, "memory.page_bytes"), _whole(size, "memory.page_bytes", 1)) for pool, size in pages)
    device, host = _whole(memory.device, "memory.device", 1), _whole(memory.host, "memory.host")
    return Memory(device, host, sizes, bool(memory.given_share))


def _decode_lifecycle(line: Any) -> Lifecycle:
    lifecycle = _fields(Lifecycle, line, "lifecycle")
    return _fields(Lifecycle, {**line, "policy": ReusePolicy(lifecycle.policy)}, "lifecycle")


def _fields(kind: type[Any], values: Any, name: str) -> Any:
    """An instance of the dataclass ``kind`` from a mapping of its fields."""
    if not isinstance(values, dict):
        raise ValueError(f"expected {name} to be an object")
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"expected {name} to have the fields of {kind.__name__}: {error}") from error


def _whole(value: Any, name: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"expected {name} to be a whole number from {least}, found {value!r}")
    return value


def _ids(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected {name} to be a list of token ids, found {value!r}")
    return tuple(_whole(token, name) for token in value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected {name} to be true or false, found {value!r}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected {name} to be a name, found {value!r}")
    return value
