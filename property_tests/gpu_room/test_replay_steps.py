"""What a generation step is told: tables by their changes, and rows that a settle compares all at once."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
import torch

from gpu_backend.bench_step import main, measure
from gpu_backend.replay import executor
from gpu_backend.replay.columns import DeviceColumn, dense
from gpu_backend.replay.executor import DeviceWorld
from model.table import TableRow
from property_tests.gpu_room.replaying import assert_equal, follow


def row(*pages: int, base: int = 0, sinks: tuple[int, ...] = ()) -> TableRow:
    return TableRow(array("i", sinks).tobytes(), base, array("i", pages).tobytes())


def column_of_a_world() -> DeviceColumn:
    followers: list[DeviceWorld] = []
    follow("smoke/hello", torch.device("cpu"), prepare=followers.extend)
    return followers[0].memory.columns[0]


def test_the_changes_of_a_table_make_it_what_the_step_was_told() -> None:
    column = column_of_a_world()
    columns = column.buffer.table.shape[1]
    table = np.full(tuple(column.buffer.table.shape), -1, dtype=np.int32)
    column.changes([0, 1], [row(), row()])  # whatever the world's last step had
    told = [
        (row(3), row(4, 5)),
        (row(3, 6), row(4, 5)),  # grows
        (row(3, 6), row(4)),  # shrinks
        (row(3, 6, 7, 8), row(4, 1)),  # both grow, one by two
        (row(6, 7, 8, base=1), row(4, 1)),  # the window moves on
        (row(7, 8, base=2, sinks=(3,)), row(1, base=1)),
        (row(7, 8, 9, base=2, sinks=(3,)), row(1, base=1)),
        (row(*range(columns + 3)), row(1, base=1)),  # more than there is room for
    ]
    told = [rows for rows in told if all(max(r.view, default=0) < column.planes.device_pages for r in rows)]
    assert len(told) > 4
    for rows in told:
        changed = column.changes([0, 1], list(rows))
        assert changed is not None
        table[changed[0], changed[1]] = changed[2]
        assert [table[slot].tolist() for slot in (0, 1)] == [dense(one, columns).tolist() for one in rows]
        assert column.changes([0, 1], list(rows)) is None


def test_a_table_that_grows_by_a_page_outside_the_pool_is_told_without_it() -> None:
    column = column_of_a_world()
    pages = column.planes.device_pages
    column.changes([0], [row(1)])
    changed = column.changes([0], [row(1, pages + 4, 2)])
    assert changed is not None
    assert changed.T.tolist() == [[0, 2, 3]]
    assert column.beyond == [(0, pages + 4)]


def test_rows_compared_all_at_once_are_as_many_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _, at_once = follow("smoke/disturbed", torch.device("cpu"), graphs=True)
    monkeypatch.setattr(executor, "as_believed", lambda *_: False)
    _, one_by_one = follow("smoke/disturbed", torch.device("cpu"), graphs=True)
    assert_equal(at_once)
    assert [follower.counts.slots for follower in at_once] == [follower.counts.slots for follower in one_by_one]
    assert all(follower.counts.slots > 0 for follower in at_once)


def test_a_slot_whose_base_is_off_by_a_page_is_named_by_a_settle() -> None:
    def prepare(followers: list[DeviceWorld]) -> None:
        for follower in followers:
            step = follower._step

            def shifted(plan, accepted, step=step, follower=follower):  # pyright: ignore[reportMissingParameterType]
                step(plan, accepted)
                follower.memory.rows.drafter.base += 1

            follower._step = shifted

    _, followers = follow("smoke/hello", torch.device("cpu"), prepare=prepare)
    found = [finding.message for follower in followers for finding in follower.counts.findings]
    assert any("drafter's base of row slot" in message for message in found)


def test_the_bench_times_the_hosts_part_of_full_batches_without_a_gpu() -> None:
    samples, equal = measure("unified", 2, 40, eager=False, device="cpu")
    assert equal
    assert len(samples.dispatch) > 2 < len(samples.settle)
    assert min(samples.dispatch + samples.settle) > 0


def test_a_bench_without_a_step_that_counts_says_that_nothing_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--batches", "1", "--builds", "unified", "--output", "4"]) == 3
    assert "nothing was measured" in capsys.readouterr().err
    assert main(["--device", "cpu", "--batches", "1", "--builds", "unifed"]) == 2
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", "--batches", "0"])
    assert ended.value.code == 2
