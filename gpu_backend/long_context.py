"""``python -m gpu_backend.long_context``: long prompts behind a windowed drafter, block reuse off.

A prompt goes through in chunks. The target's pool comes to hold all of it; the drafter's must never hold more than the
window, its trailing page and one chunk, and both memories must be equal. Exit codes: 0 fine, 1 memories differ, a law
broke or the drafter's pool held more, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu_backend.arguments import positive
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import ReplayOrder
from gpu_backend.replay.session import replay
from model.geometry import cdiv
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.rulespec import find

DRAFTS, OUTPUT = 3, 8
SCENARIO = """
summary: one prompt of {length} tokens in chunks of {chunk}, drafter window {window}, block reuse off
geometry: tiny
drafter: {{drafts: {drafts}, window: {window}}}
build: {build}
limits: {{page_size: {page}, max_batch: 1, max_num_tokens: {chunk}, max_seq_len: {longest}, chunk_unit: {page}}}
pools: {{target: {target}, draft: {draft}}}
policy: none
workload:
  concurrency: 1
  sessions: [{{name: long, prompt: {length}, output: {output}}}]
acceptance: {{forced: 2}}
"""


@dataclass(frozen=True, slots=True)
class Windowed:
    """What one prompt needed: most pages of the drafter's pool at once, what they may be, and whether all agreed."""

    length: int
    peak: int
    bound: int
    steps: int
    prefilled: int
    exit_code: int

    @property
    def fine(self) -> bool:
        """Whether nothing differs and the drafter's pool held no more than it may."""
        return self.exit_code == 0 and self.peak <= self.bound


def pages_of_window(window: int, chunk: int, page: int) -> int:
    """Most pages of a windowed drafter at once: window, the page it cuts, the trailing page, a chunk.

    Semantics.md section 7: cdiv(W, B) + 1 + cdiv(chunk, B), and one page below the window.
    """
    return cdiv(window, page) + 1 + cdiv(chunk, page) + 1


def windowed(length: int, window: int, page: int, chunk: int, device: str | None, build: str = "paired-22") -> Windowed:
    """Replay one prompt of ``length`` tokens; InputError for a device that is not there."""
    pages = cdiv(length + OUTPUT + 2 * (1 + DRAFTS), page) + 4
    text = SCENARIO.format(
        length=length, chunk=chunk, window=window, build=build, page=page, longest=(pages - 2) * page,
        target=pages, draft=pages, drafts=DRAFTS, output=OUTPUT,
    )  # fmt: skip
    followers: list[DeviceWorld] = []
    scenario = parse_scenario(text, "long prompt", Path())
    replayed = replay(scenario, find(build), ReplayOrder(device), prepare=followers.append)
    draft = followers[0].engine.twin.pools["draft"]
    totals = replayed.result.totals
    return Windowed(
        length, draft.peak, pages_of_window(window, chunk, page), replayed.workers[0].steps,
        totals.prefilled_tokens, replayed.exit_code,
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Replay each length, print a line for it."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.long_context", description=__doc__)
    parser.add_argument("--lengths", type=positive, nargs="+", default=[32_768, 131_072, 262_144], metavar="TOKENS")
    parser.add_argument("--window", type=positive, default=4096)
    parser.add_argument("--page", type=positive, default=128)
    parser.add_argument("--chunk", type=positive, default=8192)
    parser.add_argument("--device", choices=("cuda", "cpu"), default=None)
    options = parser.parse_args(arguments)
    fine = True
    try:
        for length in options.lengths:
            found = windowed(length, options.window, options.page, options.chunk, options.device)
            fine = fine and found.fine
            print(
                f"{length:,} tokens in {found.steps} steps: drafter's pool at most {found.peak} pages, may hold "
                f"{found.bound}; {'fine' if found.fine else f'WRONG, replay exits with {found.exit_code}'}",
                flush=True,
            )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
