"""``python -m gpu_backend.needle``: a long prompt that was cached is claimed again, and must answer as a cold run does.

Target and drafter of tier T0 in exact mode: the logits behind the prompt of a hit equal a cold run's bit by bit, and
the replay holds tokens (LOSSLESS) and drafter rows (SHADOW) to cold runs. So that this can fail, a second replay puts
other K/V into a page early in the prompt before the hit reads it: its logits must differ. One page of many need not
change a token, so once these logits are known the whole prompt gets the K/V of one row: LOSSLESS and SHADOW must break.
Exit codes: 0 fine, 1 a hit differs or what was replaced does not show, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from gpu_backend.arguments import positive
from gpu_backend.modules.cold import cold_logits
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.modelled_world import JudgedWorld, ModelledWorld
from gpu_backend.replay.result import NATURAL, ReplayOrder
from gpu_backend.replay.session import replay
from model.geometry import cdiv
from model.plan import ContextRow
from scenarios.errors import InputError
from scenarios.loader import parse_scenario
from sim.rulespec import find

HIT, TAIL, OUTPUT, NEEDLE = 1, 5, 4, 1  # request that hits, its own tokens, tokens generated, block that is replaced
LEAST_PAGES = NEEDLE + 2  # of a prompt: the needle, and a page behind it whose K/V it gets
SHOWN = {"LOSSLESS", "SHADOW"}  # laws that the replaced K/V must break
SCENARIO = """
summary: a prompt of {length} tokens, and once more with a short tail
geometry: {{preset: tiny, vocabulary: 512}}
drafter: {{drafts: 3, window: {window}}}
build: unified
limits: {{page_size: {page}, max_batch: 1, max_num_tokens: {chunk}, max_seq_len: {longest}, chunk_unit: {page}}}
pools: {{target: {pages}, draft: {pages}}}
policy: all_reusable
workload:
  concurrency: 1
  prefixes: {{document: {length}}}
  sessions:
    - {{name: cold, prompt: document, output: {output}}}
    - {{name: hit, prompt: [document, {tail}], output: {output}}}
acceptance: {{forced: 2}}
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """A hit: its claim, the error of its logits as a share of the cold ones' largest, what the replay found."""

    cached: int
    error: float
    codes: tuple[str, ...]
    exit_code: int


class Watch:
    """Keeps the logits of the hit.

    With ``spoil`` its needle's page gets the K/V of the page behind, once, and behind these logits all the prompt
    those of one row.
    """

    def __init__(self, *, spoil: bool) -> None:
        self.spoil, self.error = spoil, float("nan")

    def put(self, follower: DeviceWorld) -> None:
        """Look on from now on."""
        assert isinstance(follower, ModelledWorld)
        slots, chunk = follower.rows.slots, follower.rows.chunk
        context, spoiled = slots.context, set[int]()

        def watched(row: ContextRow) -> int | None:
            if row.request_id != HIT:
                return chunk(row)
            if self.spoil and row.owner not in spoiled:
                spoiled.add(row.owner)
                for kv, table in _prompt_of(follower, row):
                    kv[:, :, table[NEEDLE]] = kv[:, :, table[NEEDLE + 1]]

            def kept(*arguments: object) -> object:
                output = context(*arguments)  # pyright: ignore[reportArgumentType]
                if row.last and isinstance(follower, JudgedWorld):
                    self._compare(follower, row, output.logits[0])
                if row.last and self.spoil:
                    for kv, table in _prompt_of(follower, row):
                        kv[:, :, table] = kv[:, :, table[NEEDLE], None, :1].clone()
                return output

            slots.context = kept  # pyright: ignore[reportAttributeAccessIssue]
            try:
                return chunk(row)
            finally:
                slots.context = context

        follower.rows.chunk = watched

    def _compare(self, follower: ModelledWorld, row: ContextRow, logits: torch.Tensor) -> None:
        stream = follower.memory.known[row.owner].stream
        prompt = stream.tokens(0, stream.prompt_length).tolist()
        cold = cold_logits(follower.models.target, prompt, [0], follower.memory.page_size)[0].double()
        self.error = float((logits.double() - cold).abs().max() / cold.abs().max())


def _prompt_of(follower: ModelledWorld, row: ContextRow) -> Iterator[tuple[torch.Tensor, list[int]]]:
    """Target K/V by column, and the ids of the pages that the row's whole blocks of prompt lie in."""
    memory = follower.memory
    stream = memory.known[row.owner].stream
    blocks = (stream.prompt_length - TAIL) // memory.page_size
    for column in memory.target_columns:
        first, last = follower.models.first(column)
        yield column.planes.pool.kv[first:last], column.table[row.slot, :blocks].tolist()


def asked(length: int, page: int, chunk: int, window: int, device: str | None, *, spoil: bool) -> Answered:
    """Replay the prompt and its hit; InputError for a device that is not there."""
    longest = (cdiv(length + TAIL + OUTPUT, page) + 2) * page
    text = SCENARIO.format(
        length=length, chunk=chunk, window=window, page=page, longest=longest, pages=2 * longest // page,
        output=OUTPUT, tail=TAIL,
    )  # fmt: skip
    watch = Watch(spoil=spoil)
    order = ReplayOrder(device, acceptance=NATURAL, exact=True)
    replayed = replay(parse_scenario(text, "needle", Path()), find("unified"), order, prepare=watch.put)
    codes = tuple(sorted({finding.code for finding in replayed.findings}))
    return Answered(replayed.result.totals.cached_tokens, watch.error, codes, replayed.exit_code)


def passed(sound: Answered, spoiled: Answered) -> bool:
    """Whether a hit answers as a cold run does, and other K/V show in its logits and in both laws."""
    equal = sound.exit_code == 0 and sound.error == 0 and sound.cached > 0
    return equal and spoiled.exit_code == 1 and spoiled.error > 0 and set(spoiled.codes) >= SHOWN


def main(arguments: list[str] | None = None) -> int:
    """Ask at each length, soundly and with the page replaced."""
    parser = argparse.ArgumentParser(prog="python -m gpu_backend.needle", description=__doc__)
    parser.add_argument("--lengths", type=positive, nargs="+", default=[32_768, 131_072, 262_144], metavar="TOKENS")
    parser.add_argument("--page", type=positive, default=128)
    parser.add_argument("--chunk", type=positive, default=2048)
    parser.add_argument("--window", type=positive, default=4096)
    parser.add_argument("--device", choices=("cuda", "cpu"), default=None)
    options = parser.parse_args(arguments)
    if min(options.lengths) < LEAST_PAGES * options.page:
        parser.error(f"expected --lengths of at least {LEAST_PAGES} pages, found {min(options.lengths)}")
    fine = True
    try:
        for length in options.lengths:
            size = (length, options.page, options.chunk, options.window, options.device)
            sound, spoiled = asked(*size, spoil=False), asked(*size, spoil=True)
            good = passed(sound, spoiled)
            fine = fine and good
            print(
                f"{length:,} tokens, {sound.cached:,} claimed: logits err by {sound.error:.2g}, "
                f"with a page replaced by {spoiled.error:.2g}; "
                f"{'fine' if good else f'WRONG {sound.codes}, with other K/V {spoiled.codes}'}",
                flush=True,
            )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
