"""What a soak replays: agent conversations, long prompts in chunks, floods of short requests, by seed.

``full`` is for a GPU, ``tiny`` for a CPU. Lengths and disturbances are drawn from the seed.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from scenarios import catalog
from scenarios.expect import Expect
from scenarios.loader import parse_scenario
from scenarios.schema import Scenario

AGENTIC, LONG, FLOOD = "agentic", "long", "flood"
KINDS = (AGENTIC, LONG, FLOOD)
FULL, TINY = "full", "tiny"
TINY_AGENTIC = """
summary: agent conversations, tiny
geometry: tiny
pools: {target: 400, draft: 400}
limits: {max_batch: 4, max_num_tokens: 32, max_seq_len: 256}
policy: all_reusable
workload:
  concurrency: 3
  agentic:
    sessions: 4
    requests: 8
    system_sessions: 3
    system_requests: 6
    system: 40
    publisher_private: 12
    branch_private: 6
    new_tokens: 150
    private: {median: 5, mean: 6, max: 12}
    other: {median: 12, mean: 14, max: 24}
    output: {median: 6, mean: 7, max: 12}
acceptance: {coverage: 0.6}
"""
LONG_PROMPTS = """
summary: long prompts in chunks, some of them behind a shared document
geometry: {geometry}
pools: {{target: {pages}, draft: {pages}}}
limits: {{page_size: {page}, max_batch: 8, max_num_tokens: {chunk}, max_seq_len: {longest}}}
policy: all_reusable
workload:
  concurrency: 6
  prefixes: {{document: {shared}}}
  sessions:
{sessions}
acceptance: {{length: 2.5}}
disturbances:
{disturbances}
"""
FLOODS = """
summary: bursts of short requests that do not fit together
geometry: {geometry}
pools: {{target: {pages}, draft: {pages}}}
limits: {{page_size: {page}, max_batch: {batch}, max_num_tokens: {chunk}, max_seq_len: {longest}}}
workload:
  prefixes: {{system: {shared}}}
  sessions:
{sessions}
acceptance: {{length: 2.5}}
disturbances:
{disturbances}
"""
SIZES: dict[tuple[str, str], dict[str, object]] = {
    (LONG, FULL): {
        "geometry": "minimax-m3.1-flash-like", "pages": 1800, "page": 128, "chunk": 4096, "longest": 40_960,
        "shared": 12_000,
    },
    (LONG, TINY): {"geometry": "tiny", "pages": 200, "page": 4, "chunk": 32, "longest": 256, "shared": 60},
    (FLOOD, FULL): {
        "geometry": "minimax-m3.1-flash-like", "pages": 200, "page": 128, "batch": 64, "chunk": 4096,
        "longest": 2048, "shared": 300,
    },
    (FLOOD, TINY): {
        "geometry": "tiny", "pages": 22, "page": 4, "batch": 6, "chunk": 32, "longest": 64, "shared": 14,
    },
}  # fmt: skip


def scenario_of(kind: str, size: str, seed: int) -> Scenario:
    """The scenario of a round; expectations that were written for another seed are left out."""
    if kind == AGENTIC:
        found = catalog.load("agentic") if size == FULL else parse_scenario(TINY_AGENTIC, "agentic", Path())
        return found.replace(seed=seed, expect=Expect(), builds=[])
    random = Random(f"{kind} {seed}")
    sessions, disturbances = _long(random, size) if kind == LONG else _flood(random, size)
    text = (LONG_PROMPTS if kind == LONG else FLOODS).format(
        **SIZES[kind, size],
        sessions="\n".join(f"    - {{{session}}}" for session in sessions),
        disturbances="\n".join(f"  - {{{item}}}" for item in disturbances),
    )
    return parse_scenario(text, kind, Path()).replace(seed=seed)


def _long(random: Random, size: str) -> tuple[list[str], list[str]]:
    """Prompts of up to eight chunks; every other one starts with the document. Some are suspended, forwards fail."""
    count, least, most, output = (16, 3000, 24_000, 160) if size == FULL else (4, 20, 120, 8)
    sessions = list[str]()
    for place in range(count):
        own = random.randint(least, most)
        prompt = f"[document, {own // 2}]" if place % 2 else str(own)
        sessions.append(f"name: prompt-{place}, prompt: {prompt}, output: {output}")
    disturbances = [f"at_iteration: {random.randint(3, 6)}, action: fail"]
    for at in range(6, 46 if size == FULL else 14, 8 if size == FULL else 2):
        disturbances.append(f"at_iteration: {at}, action: suspend, request: {random.randrange(count // 2)}")
        disturbances.append(f"at_iteration: {at + 1}, action: fail")
    return sessions, disturbances


def _flood(random: Random, size: str) -> tuple[list[str], list[str]]:
    """Bursts that arrive at once; requests are cancelled and suspended, forwards fail and are skipped."""
    bursts, copies, apart, output, iterations = (4, 64, 0.8, 64, 120) if size == FULL else (2, 6, 0.02, 9, 16)
    least, most = (100, 700) if size == FULL else (4, 14)
    sessions = [
        f"name: burst-{burst}-{part}, copies: {copies // 2}, prompt: [system, {random.randint(least, most)}], "
        f"output: {output}, arrival_s: {burst * apart:.2f}"
        for burst in range(bursts)
        for part in range(2)
    ]
    requests = bursts * copies
    disturbances = list[str]()
    for _ in range(requests // 4):
        at = random.randint(2, iterations)
        disturbances += [f"at_iteration: {at}, action: cancel, request: {random.randrange(requests)}"]
        disturbances += [f"at_iteration: {at}, action: suspend, request: {random.randrange(requests)}"]
    disturbances.append("at_iteration: 5, action: fail")
    for at in range(7, iterations, max(4, iterations // 6)):
        disturbances.append(f"at_iteration: {at}, action: {random.choice(('fail', 'fail', 'skip'))}")
    return sessions, disturbances
