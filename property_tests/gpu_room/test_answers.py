"""Answers of the device rules: the tagged memory and the device carry out each alike, or the device refuses it."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import get_type_hints

import numpy as np
import pytest
import torch

from gpu_backend.answers import CARRIED_OUT, NotCarriedOut, TableBuffer, chunk_tags, fold_rows, require_carried_out
from gpu_backend.calls import Cells, ConvertCall, SlotCall, SlotOp, Slots, StoreCall
from gpu_backend.cells import SENTINEL, CellState, device_tags, signed
from gpu_backend.contracts.base import int32
from gpu_backend.kernels.slots import slots_launch
from gpu_backend.kernels.store import store_launch
from gpu_backend.kernels.table import convert_launches
from model.builds import BUILDS
from model.config import Drafter
from model.drafter import Seed
from model.events import EventLog
from model.ops import World
from model.plan import ContextRow, StepPlan
from model.reader import SENTINELS
from model.rules import slots
from model.rules.base import Rules
from model.rules.device import (
    Addressing,
    DeviceRules,
    Extent,
    Padding,
    Provisional,
    Rebase,
    TableUpload,
    Trim,
    Unbacked,
)
from model.rules.lookahead import Lookahead
from model.shadow import Shadow
from model.table import TableRow
from model.tokens import cell_tags
from property_tests.model_core.helpers import PAGE, config, spec, step, submit, twin_of, world

RULES = {rule: answer for rule, answer in get_type_hints(DeviceRules).items() if issubclass(answer, enum.Enum)}
MEMBERS = [(rule, member) for rule, answer in RULES.items() for member in answer]


def serving(drafter: Drafter, **answer: object) -> tuple[World, Shadow]:
    """A world of the unified build with one answer replaced, and its memory."""
    build = BUILDS["unified"]
    changed = replace(build, rules=replace(build.rules, **answer))  # pyright: ignore[reportArgumentType]
    found = world(config(drafter=drafter), changed)
    assert found.watch is not None
    return found, found.watch.shadow


def drafter_cells(world: World, shadow: Shadow, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages of the drafter's row of request 1, int32 ``[1, blocks]``, and its first ``count`` cells, int64."""
    row = world.engine.twin.rows(world.engine.owners[1])[1]
    assert row.base == 0
    cells = shadow.cells[shadow.pool_of[1]][list(row.view)].reshape(-1)[:count]
    return torch.tensor([list(row.view)], dtype=torch.int32), device_tags(cells)


def stored(
    device: torch.device, table: torch.Tensor, before: torch.Tensor, rows: torch.Tensor, begin: int,
    tag: torch.Tensor, state: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Tags of the row's cells after ``tag`` was stored from position ``begin`` on, in a memory that held ``before``."""
    pages = int(table.max()) + 1
    tags = torch.full((pages, PAGE), SENTINEL[CellState.UNWRITTEN])
    tags[table[0].long()] = torch.nn.functional.pad(before, (0, table.shape[1] * PAGE - len(before))).view(-1, PAGE)
    cells = Cells(tags.to(device), torch.zeros((pages, PAGE), dtype=torch.int8, device=device))
    kv = torch.zeros((2, len(tag), 1, 16), device=device)
    caches = torch.zeros((2, pages, PAGE, 1, 16), device=device)
    position = torch.arange(begin, begin + len(tag), dtype=torch.int32, device=device)
    store_launch(
        StoreCall(
            kv[0], kv[1], caches[0], caches[1], rows.to(device), position, table.to(device), int32([0], device), cells,
            tag.to(device), state.to(device),
        )
    )()  # fmt: skip
    return cells.tags.cpu()[table[0].long()].view(-1)


def converts_alike(device: torch.device, **answer: object) -> None:
    """Sinks, a gap, pages and nothing behind them: extent in tokens, and the page behind every block below it."""
    shadow = Shadow(twin_of(config()), None, EventLog())
    shadow.device = replace(Rules().device(), **answer)  # pyright: ignore[reportArgumentType]
    rows = [([], 0, [7, 3]), ([5, 2], 4, [7, 3, 9]), ([], 3, [1]), ([], 0, []), ([6], 1, [4, 8])]
    table = torch.full((len(rows), 9), -1, dtype=torch.int32)
    for place, (sinks, base, pages) in enumerate(rows):
        table[place, : len(sinks)] = torch.tensor(sinks, dtype=torch.int32)
        table[place, base : base + len(pages)] = torch.tensor(pages, dtype=torch.int32)
    call = ConvertCall(
        table.to(device), int32([0] * len(rows), device), torch.full_like(table, 77).to(device),
        int32([77] * len(rows), device), 1, shadow.device.extent, shadow.device.unbacked,
    )  # fmt: skip
    for launch in convert_launches(call):
        launch()
    for place, (sinks, base, pages) in enumerate(rows):
        row = TableRow(np.array(sinks, np.int32).tobytes(), base, np.array(pages, np.int32).tobytes())
        extent = int(call.extent[place])
        assert extent * PAGE == shadow.bound(row) if pages or sinks else extent == 0
        assert call.out[place, :extent].tolist() == [shadow.slot_at(row, block) for block in range(extent)]
        assert call.out[place, extent:].tolist() == [-1] * (9 - extent)


def looks_alike(device: torch.device, rule: Lookahead) -> None:
    """EAGLE3 looks one token ahead: a chunk of 32 that is not the last, then 8 tokens to the prompt's end."""
    world, shadow = serving(Drafter("eagle3", 3, None), lookahead=rule)
    submit(world, spec(0, 40, 8))
    for start, end in ((0, 32), (32, 40)):
        step(world)
        table, wanted = drafter_cells(world, shadow, end)
        reader = shadow.readers[1]
        row = ContextRow(0, 1, 0, start, end, end == 40, (), True, 40 - end)
        tag, state, final = chunk_tags(
            rule, reader.stream, row, 0, span=1, seed=reader.seeds[1], vocabulary=4096
        )  # fmt: skip
        assert final == reader.draft_final == end
        rows = torch.zeros(end - start, dtype=torch.int32)
        found = stored(device, table, wanted[:start], rows, start, tag, state)
        assert torch.equal(found[:end], wanted)
        assert (state == CellState.FINAL).all()


def folds_alike(device: torch.device, rule: Provisional) -> None:
    """Three tokens are accepted at once: a draft pass wrote the cells of two of them before."""
    world, shadow = serving(Drafter("dflash", 3, 64), provisional=rule)
    submit(world, spec(0, 12, 20))
    step(world)
    step(world)
    slot = shadow.readers[1].slot
    begin = shadow.draft_length[slot]
    _, before = drafter_cells(world, shadow, begin + 3)
    step(world, 3)
    table, wanted = drafter_cells(world, shadow, begin + 3)
    reader = shadow.readers[1]
    tag = device_tags(cell_tags(reader.stream, begin, begin + 3, 0, reader.seeds[1]))
    rows = fold_rows(rule, torch.zeros(3, dtype=torch.int32), torch.tensor([True, False, False]))
    state = torch.full((3,), int(CellState.FINAL), dtype=torch.int8)
    found = stored(device, table, before, rows, begin, tag, state)
    assert torch.equal(found[: begin + 3], wanted)
    kept = int((found[begin : begin + 3] == SENTINEL[CellState.PROVISIONAL]).sum())
    assert kept == (2 if rule is Provisional.KEPT else 0)


def uploads_alike(device: torch.device, rule: TableUpload) -> None:
    """Three steps over four row slots; a row slot changes hands, one pauses for a step."""
    shadow = Shadow(twin_of(config()), None, EventLog())
    buffer = TableBuffer(rule, 4, 3, device)
    steps = [{0: [5, 6, 7], 1: [8, 9, 1]}, {1: [2, 3, 4], 3: [6, 5, 9]}, {1: [1, 1, 2], 0: [7, 7, 3], 3: [4, 4, 4]}]
    for rows in steps:
        plan = [
            ContextRow(0, slot, slot, 0, 1, False, (TableRow(b"", 0, np.array(pages, np.int32).tobytes()),))
            for slot, pages in rows.items()
        ]
        seen = shadow.overwritten_tables(plan, [])[0] if rule is TableUpload.SHARED_BUFFER else plan
        buffer.upload(torch.tensor(list(rows)), torch.tensor(list(rows.values()), dtype=torch.int32))
        wanted = [[-1] * 3] * 4
        for row in seen:
            wanted[row.slot] = list(row.tables[0].view)
        assert buffer.table.tolist() == wanted


def rebases_alike(device: torch.device, rule: Rebase) -> None:
    """A row of four blocks behind base page 2: entry 0 of the converted row is block 2 for reads and writes."""
    shadow = Shadow(twin_of(config()), None, EventLog())
    shadow.device = replace(Rules().device(), rebase=rule)
    pages = [7, 3, 9, 4]
    row = TableRow(b"", 0, np.array(pages, np.int32).tobytes())
    table = torch.tensor([pages], dtype=torch.int32, device=device)
    call = ConvertCall(table, int32([2], device), torch.full_like(table, 77), int32([77], device))
    for launch in convert_launches(call):
        launch()
    assert call.out[0, :2].tolist() == [shadow.slot_at(row, 2 + entry) for entry in range(2)]


def addresses_alike(device: torch.device, rule: Addressing) -> None:
    """Four cells across a page end, in a row whose pages do not lie side by side."""
    shadow = Shadow(twin_of(config()), None, EventLog())
    shadow.device = replace(Rules().device(), addressing=rule)
    pages, tag = [5, 9], torch.arange(100, 104)
    row = ContextRow(0, 1, 0, 2, 6, True, (TableRow(b"", 0, np.array(pages, np.int32).tobytes()),) * 2)
    shadow.write(row, shadow.columns[1], row.tables[1], 2, 6, memoryview(tag.numpy().astype(np.uint64)))
    wanted = device_tags(shadow.cells[shadow.pool_of[1]][pages].reshape(-1))
    before, rows = torch.zeros(2, dtype=torch.int64), torch.zeros(4, dtype=torch.int32)
    state = torch.full((4,), int(CellState.FINAL), dtype=torch.int8)
    found = stored(device, torch.tensor([pages], dtype=torch.int32), before, rows, 2, tag, state)
    assert torch.equal(found[2:6], wanted[2:6])


def trims_alike(device: torch.device, rule: Trim) -> None:
    """A drafter without a slot of its own stands where its request does after 1, 3 and 5 of 5 tokens."""
    world, shadow = serving(Drafter("draft-target-one-model", 4, None), trim=rule)
    submit(world, spec(0, 12, 20))
    step(world)
    step(world)
    slot = shadow.readers[1].slot
    for count in (1, 3, 5):
        memory = Slots.empty(1, 1, device)
        memory.length.fill_(shadow.draft_length[slot])
        step(world, count)
        one = int32([0], device)
        slots_launch(
            SlotCall(memory, int32([int(SlotOp.ADVANCE)], device), one, int32([count], device), one, PAGE, 500)
        )()
        assert memory.length.tolist() == [shadow.draft_length[slot]]


def pads_alike(device: torch.device, rule: Padding) -> None:
    """Three requests verify in a graph for four: the fourth row leaves both memories as they were."""
    world, shadow = serving(Drafter("dflash", 3, 64), padding=rule)
    submit(world, spec(0, 12, 20))
    step(world)
    step(world)
    table, before = drafter_cells(world, shadow, 16)
    cells = [pool.copy() for pool in shadow.cells]
    plan = StepPlan(9, [], [], [], replace(Rules().device(), padding=rule))
    plan.padding = 1
    shadow.run_step(plan, ())
    assert all(np.array_equal(pool, known) for pool, known in zip(shadow.cells, cells, strict=True))
    row, tag = torch.full((3,), -1, dtype=torch.int32), torch.full((3,), SENTINEL[CellState.DUMMY])
    state = torch.full((3,), int(CellState.DUMMY), dtype=torch.int8)
    assert torch.equal(stored(device, table, before, row, 12, tag, state)[:16], before)


ALIKE: dict[type[enum.Enum], Callable[..., None]] = {
    Extent: lambda device, member: converts_alike(device, extent=member),
    Unbacked: lambda device, member: converts_alike(device, unbacked=member),
    Lookahead: looks_alike,
    Provisional: folds_alike,
    TableUpload: uploads_alike,
    Rebase: rebases_alike,
    Addressing: addresses_alike,
    Trim: trims_alike,
    Padding: pads_alike,
}


@pytest.mark.parametrize(("rule", "member"), MEMBERS, ids=[f"{rule}-{member.name}" for rule, member in MEMBERS])
def test_memory_and_device_carry_out_an_answer_alike_or_the_device_refuses_it_by_name(
    device: torch.device, rule: str, member: enum.Enum
) -> None:
    rules = replace(Rules().device(), **{rule: member})  # pyright: ignore[reportArgumentType]
    if member in CARRIED_OUT:
        require_carried_out(rules)
        ALIKE[type(member)](device, member)
    else:
        with pytest.raises(NotCarriedOut, match=re.escape(f"{rule}: {member.value}")):
            require_carried_out(rules)


def test_an_answer_that_the_device_does_not_know_is_refused_by_name() -> None:
    class Other(enum.Enum):
        OWN = "an answer of the user's"

    rules = replace(Rules().device(), table=Other.OWN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(NotCarriedOut, match="does not carry out table: an answer of the user's"):
        require_carried_out(rules)
    assert len(fields(DeviceRules)) == len(RULES), "every device rule answers with an enum"


def test_the_correct_builds_need_no_answer_that_the_device_refuses() -> None:
    for build in BUILDS.values():
        require_carried_out(build.rules.device())


def test_both_memories_have_the_same_states_and_sentinels() -> None:
    for value, name in SENTINELS.items():
        assert SENTINEL[CellState[name.upper()]] == signed(value)
    assert len(set(SENTINEL.values())) == len(CellState) - 1, "all but FINAL, whose tag is its content"


@pytest.mark.parametrize("seed", Seed)
@pytest.mark.parametrize("position", [0, 1, 63, 64, 65, 200])
def test_a_slot_is_seeded_on_the_device_as_in_the_model(device: torch.device, seed: Seed, position: int) -> None:
    """Slots of returning requests, of fresh ones behind a claim, and of one whose base was parked."""
    page, rule = 16, slots.Slots(seed=seed)
    op = {Seed.ZERO: SlotOp.PLACE, Seed.PAGE: SlotOp.SEED_PAGE, Seed.POSITION: SlotOp.SEED_POSITION}[seed]
    updates = [
        (op, 0 if seed is Seed.ZERO else position, rule.returning(None, position, page)),
        (SlotOp.RESUME, position, rule.returning(2, position, page)),
        (SlotOp.PLACE, position, rule.first(position, position, page)),
        (SlotOp.SEED_POSITION, position, rule.first(position, 0, page)),
    ]
    if position == 0:
        del updates[1]  # nothing to resume: a value of 0 is a new request
    memory = Slots.empty(len(updates), 4, device)
    memory.parked.fill_(2)
    memory.length.fill_(99)
    memory.base.fill_(5)
    op_of, value_of = [int(op) for op, _, _ in updates], [value for _, value, _ in updates]
    place = int32(list(range(len(updates))), device)
    slots_launch(SlotCall(memory, int32(op_of, device), place, int32(value_of, device), place, page, 500))()
    assert memory.base.tolist() == [state.base for _, _, state in updates]
    assert memory.length.tolist() == [state.length for _, _, state in updates]
