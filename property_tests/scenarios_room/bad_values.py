"""Cases of ``test_bad_input``: values out of bounds, fields of another kind, and ops that could not run."""

from __future__ import annotations

from property_tests.scenarios_room.helpers import ONE_REQUEST


def _pair(rest: str, line: int, field: str, words: str) -> tuple[str, int, str, str]:
    return "workers: {kind: disaggregated, " + rest + "}\n" + ONE_REQUEST, line, field, words


_WORKER = "workers:\n  kind: disaggregated\n  pools:\n    - {}\n    - {draft: 1}\n"
_MOST = "expected at most 4,194,304 pages, found "

# Text after the two lines of TINY, the line and the field that are wrong, words of the message.
VALUES = {
    "more pages of a worker than memory": _pair(
        "pools: [{target: 1000000000000}, {}]", 3, "workers.pools[0].target", _MOST + "1,000,000,000,000"
    ),
    "more drafter pages of a worker than memory": _pair(
        "pools: [{}, {draft: 1000000000}]", 3, "workers.pools[1].draft", _MOST + "1,000,000,000"
    ),
    "more host pages of a worker than memory": _pair(
        "pools: [{target: {device_pages: 9, host_pages: 9000000}}]", 3, "workers.pools[0].target", _MOST + "9,000,000"
    ),
    "window beyond the pool of a worker": (
        _WORKER + ONE_REQUEST,
        7,
        "workers.pools[1].draft",
        "at least 2 pages for the window of 8 tokens (draft, pages of 4), found 1",
    ),
    "more workers' pages than memory": (
        "pools: {target: 4000000}\nworkers: {kind: tensor_parallel, count: 64}\n" + ONE_REQUEST,
        4,
        "workers",
        "expected at most 16,777,216 pages of all workers, found",
    ),
    "more bytes than pages in memory": (
        "memory: {device: 100000 TiB}\n" + ONE_REQUEST,
        3,
        "memory",
        "in the pool 'target'",
    ),
    "link without bandwidth": _pair("link: {gib_per_s: 1.0e-300}", 3, "workers.link.gib_per_s", "at least 1e-06"),
    "link beyond any bandwidth": _pair("link: {gib_per_s: 1.0e+300}", 3, "workers.link.gib_per_s", "at most 1e+06"),
    "endless latency": _pair("link: {latency_s: 1.0e+300}", 3, "workers.link.latency_s", "at most 1e+09"),
    "link that loses nearly all": _pair("link: {loss: 0.99}", 3, "workers.link.loss", "expected at most 0.9"),
    "number that is text": _pair("link: {latency_s: 1e-3}", 3, "workers.link.latency_s", "(write 1.0e-3), found"),
    "number without a sign": _pair("link: {latency_s: 1.5e3}", 3, "workers.link.latency_s", "(write 1.5e+3), found"),
    "host link without bandwidth": ("host_link: 1.0e-300\n" + ONE_REQUEST, 3, "host_link", "at least 1e-06"),
    "host link that loses all": ("host_link: {gib_per_s: 1, loss: 1}\n" + ONE_REQUEST, 3, "host_link.loss", "0.9"),
    "endless host latency": ("host_link: {gib_per_s: 1, latency_us: 1.0e+99}\n" + ONE_REQUEST, 3, "host_link", "1e+09"),
    "endless disturbance": (
        ONE_REQUEST + "disturbances: [{at_s: 1, action: skip, times: 1000000}]\n",
        4,
        "disturbances[0].times",
        "at most 10000, found 1000000",
    ),
    "graph twice": ("limits: {graph_batches: [4, 4]}\n" + ONE_REQUEST, 3, "limits.graph_batches[1]", "more than 4"),
    "graphs downwards": ("limits: {graph_batches: [4, 2]}\n" + ONE_REQUEST, 3, "limits.graph_batches[1]", "found 2"),
    "graph beyond any batch": (
        "limits: {graph_batches: [1, 1000000000]}\n" + ONE_REQUEST,
        3,
        "limits.graph_batches[1]",
        "at most max_batch (4), found 1000000000",
    ),
    "workers of no kind": ("workers: {count: 2}\n" + ONE_REQUEST, 3, "workers", "its kind in 'kind'"),
    "gate of ranks without requests": (
        "workers: {kind: tensor_parallel, gate: 1}\n" + ONE_REQUEST,
        3,
        "workers.gate",
        "expected a field of tensor_parallel, found 'gate', which belongs to attention_dp",
    ),
    "link of ranks": (
        "workers: {kind: tensor_parallel, link: {}}\n" + ONE_REQUEST,
        3,
        "workers.link",
        "found 'link', which belongs to disaggregated",
    ),
    "misspelt field of a kind": (
        "workers: {kind: attention_dp, gat: 1}\n" + ONE_REQUEST,
        3,
        "workers.gat",
        "did you mean 'gate'?",
    ),
    "field of other ops": ("ops: [{op: settle, skip: true}]\n", 3, "ops[0].skip", "which belongs to dispatch"),
    "worker of an op of both": (
        "workers: {kind: disaggregated}\nops: [{op: send, request: 0, worker: 1}]\n",
        4,
        "ops[0].worker",
        "expected no worker (a transfer concerns both), found 1",
    ),
    "host link of several": (
        "host_link: 3\nworkers: {kind: tensor_parallel}\n" + ONE_REQUEST,
        1,
        "",
        "expected host_link with a single worker only, found it beside workers",
    ),
    "what pools were split from without pools": (
        "memory: {device: 9, page_bytes: {target: 1}}\n" + ONE_REQUEST,
        1,
        "",
        "expected memory with page_bytes only beside pools in pages, found it without",
    ),
    "bytes of a page of no pool": (
        "pools: {target: 9}\nmemory: {device: 9, page_bytes: {tagret: 1}}\n" + ONE_REQUEST,
        4,
        "memory.page_bytes.tagret",
        "expected a pool of draft, target (did you mean 'target'?)",
    ),
    "a share by hand of memory to split": (
        "memory: {device: 9, given_share: true}\n" + ONE_REQUEST,
        3,
        "memory",
        "expected given_share only beside page_bytes, found it without",
    ),
    "a share to split beside pools": (
        "pools: {target: 9}\nmemory: {device: 9, page_bytes: {target: 1}, host_draft: 1}\n" + ONE_REQUEST,
        4,
        "memory",
        "expected host_draft only beside memory that is to be split, found it without",
    ),
    "graph of a batch beyond any": (
        "limits: {graph_batches: [100000]}\nops: [{op: dispatch}]\n",
        3,
        "limits.graph_batches[0]",
        "found 100000",
    ),
    "no ops": ("ops: []\n", 3, "ops", "at least one entry"),
    "op on no pool": ("ops: [{op: shrink, pool: drfat, pages: 1}]\n", 3, "ops[0].pool", "did you mean 'draft'?"),
}
