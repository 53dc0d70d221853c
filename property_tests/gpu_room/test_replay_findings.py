"""What a replay says when the device does not hold what it should: request, pool, page, position and rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_backend.answers import NotCarriedOut
from gpu_backend.calls import SlotCall, SlotOp
from gpu_backend.calls import Slots as DrafterSlots
from gpu_backend.cells import CellState
from gpu_backend.kernels.slots_reference import slots_reference
from gpu_backend.replay.compare import first_difference
from gpu_backend.replay.content import Synthetic
from gpu_backend.replay.executor import DeviceWorld
from gpu_backend.replay.result import ReplayOrder
from gpu_backend.replay.session import replay
from gpu_backend.replay.state import seeds
from gpu_backend.replay.supported import require_replayable
from gpu_backend.triton_backend import TritonKernels
from model.builds import BUILDS
from model.events import Kind
from model.plan import StepPlan
from model.rules.slots import Slots
from property_tests.gpu_room.replaying import assert_equal, follow
from scenarios import catalog
from scenarios.errors import InputError

STEP = (4, 9, 21, 1, 0, 21, 7, 0xAB, 3, 0xCD)  # iteration, then one row of a memory step


def broken_at(followers: list[DeviceWorld], iteration: int, damage: str) -> None:
    """Let something happen to the first page of row slot 0 before ``iteration`` runs."""
    follower = followers[0]
    run = follower._step

    def step(plan: StepPlan, accepted: tuple[int, ...]) -> None:
        if plan.iteration == iteration:
            column = follower.memory.target_columns[0]
            page = int(column.table[0, 0])
            if damage == "tag":
                column.planes.pool.cells.tags[page, 1] ^= 1
            elif damage == "state":
                column.planes.pool.cells.states[page, 1] = int(CellState.UNWRITTEN)
            elif damage == "length":
                follower.memory.rows.length[0] += 1
            else:
                follower.memory.rows.drafter.base[0] += 1
        run(plan, accepted)

    follower._step = step  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("damage", "code", "position"),
    [("tag", "KEY", 1), ("state", "INIT", 1), ("length", "MAP", -1), ("base", "MAP", -1)],
)
def test_what_happens_to_a_cell_or_a_slot_is_found_at_the_next_step(
    device: torch.device, damage: str, code: str, position: int
) -> None:
    _, followers = follow("smoke/hello", device, prepare=lambda found: broken_at(found, 6, damage))
    findings = followers[0].counts.findings
    first = next(finding for finding in findings if finding.code == code)
    assert first.step == 6
    assert first.request >= 0
    if position >= 0:
        assert (first.pool, first.position) == ("target", position)
        assert first.page >= 0


def test_equal_events_differ_nowhere() -> None:
    events = [(Kind.MEM_STEP, STEP), (Kind.MEM_GRANT, (4, 0, 9, 5))]
    assert first_difference(events, list(events), ["target"], {}) is None


@pytest.mark.parametrize(
    ("field", "value", "code", "said"),
    [(2, 22, "MAP", "position"), (4, 1, "MAP", "base"), (6, 8, "MAP", "slot"), (7, 0xAC, "KEY", "content"),
     (1, 8, "OWN", "owner")],
)  # fmt: skip
def test_a_difference_names_its_field_and_its_place(field: int, value: int, code: str, said: str) -> None:
    other = (*STEP[:field], value, *STEP[field + 1 :])
    found = first_difference([(Kind.MEM_STEP, other)], [(Kind.MEM_STEP, STEP)], ["target"], {9: 3})
    assert found is not None
    assert (found.code, found.request, found.position, found.step) == (code, 3, 21, 4)
    assert said in found.message


def test_a_missing_event_is_a_difference() -> None:
    found = first_difference([], [(Kind.MEM_STEP, STEP)], ["target"], {})
    assert found is not None and found.code == "MAP" and "only the memory" in found.message


def test_a_rule_of_the_users_that_acts_on_the_device_is_engine_only() -> None:
    class Mine(Slots):
        pass

    build = BUILDS["unified"]
    own = replace(build, name="mine", rules=replace(build.rules, slots=Mine()))
    with pytest.raises(NotCarriedOut, match="build mine is engine only: its slots rule is a class of its own, Mine"):
        require_replayable(own)
    for known in BUILDS.values():
        require_replayable(known)


def test_outputs_over_a_million_positions_a_row_are_refused_in_one_line(device: torch.device) -> None:
    scenario = catalog.load("agentic")
    with pytest.raises(InputError, match=r"check: expected tags, found full: .* here there are 93,323,264"):
        replay(scenario, BUILDS["unified"], ReplayOrder(device.type, check="full"))


@pytest.mark.parametrize(("position", "length", "base"), [(7, 4, 1), (7, 7, 2), (7, 7, 0), (8, 8, 2), (7, 14, 2)])
def test_a_slot_starts_where_the_engine_says(position: int, length: int, base: int) -> None:
    """The operations by which the device arrives at a base and a length, on pages of 4 tokens."""
    slots = DrafterSlots.empty(1, 1, "cpu")
    none = torch.zeros(1, dtype=torch.int32)
    for op, value in seeds(position, length, base, 4):
        slots_reference(SlotCall(slots, none + int(SlotOp(op)), none, none + value, none, 4, 64))
    assert (int(slots.base[0]), int(slots.length[0])) == (base, length)


def test_pages_behind_several_layers_and_wider_rows_are_equal_too(device: torch.device) -> None:
    _, followers = follow("smoke/two_windows", device, content=Synthetic(2, 2, 32, torch.bfloat16))
    assert_equal(followers)


def test_the_kernels_leave_the_memory_that_the_references_leave(device: torch.device) -> None:
    """The Triton kernels on a GPU, or under their interpreter, on a scenario of two iterations."""
    _, followers = follow("reports/o30", device, kernels=TritonKernels())
    assert_equal(followers)
