"""Kinds of drafters in processes of their own: how far they are, and what is left when one of them does not end."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpu_backend.al.apart import Work, measure_apart
from gpu_backend.al.order import Order, Told
from property_tests.gpu_room import al_parts
from scenarios.errors import InputError


def apart(work: Work, folder: Path, *kinds: str) -> tuple[Told, list[tuple[int, int]]]:
    """What comes out, and what is told of the progress."""
    shown: list[tuple[int, int]] = []
    parts = [Order(folder, (), (), drafters=(kind,)) for kind in kinds]
    return measure_apart(parts, work, lambda *now: shown.append(now)), shown


def runs(told: Told) -> dict[str, int]:
    """Runs by kind, in the order in which they are told."""
    found = dict.fromkeys(told.drafters, 0)
    for row in told.arms:
        found[row["drafter"]] += 1
    return found


def test_the_runs_of_all_kinds_are_counted_and_told_in_the_order_of_the_kinds(tmp_path: Path) -> None:
    told, shown = apart(al_parts.finishes, tmp_path, "mtp", "dflash")
    assert runs(told) == {"mtp": 2, "dflash": 2} and list(told.cold) == ["mtp", "dflash"]
    assert told.exit_code == 0 and not told.failed and not told.interrupted
    assert shown[-1] == (4, 4) and shown == sorted(shown) and {total for _, total in shown} == {4}


def test_ctrl_c_leaves_what_every_kind_has_finished(tmp_path: Path) -> None:
    told, _ = apart(al_parts.one_is_cut, tmp_path, "dflash", "dspark", "mtp")
    assert runs(told) == {"dflash": 2, "mtp": 1} and told.interrupted and told.exit_code == 130
    assert told.notes == ["dspark: nothing of it was finished"]


def test_a_second_ctrl_c_gives_up_the_kinds_that_are_busy_and_no_other(tmp_path: Path) -> None:
    told, _ = apart(al_parts.one_is_given_up, tmp_path, "dflash", "mtp")
    assert runs(told) == {"dflash": 2} and told.exit_code == 130
    assert told.notes == ["mtp: given up at the second Ctrl-C, so nothing of it is told"]


def test_a_kind_that_is_refused_or_crashes_throws_nothing_of_the_others_away(tmp_path: Path) -> None:
    told, _ = apart(al_parts.others_go_on, tmp_path, "dspark", "dflash", "eagle3", "mtp")
    assert runs(told) == {"dflash": 2} and not told.interrupted
    crash = told.failed.pop("dspark")
    assert crash.code == 4 and "a defect of kvtwin: LookupError in others_go_on" in crash.line
    assert told.failed["eagle3"].line == "its process ended with exit code 9" and told.exit_code == 4
    del told.failed["eagle3"]
    assert told.failed["mtp"].line == "device: pool draft needs 7 pages" and told.exit_code == 2


def test_what_is_refused_before_any_run_is_done_ends_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^mtp/config\.json: window: expected a number$"):
        apart(al_parts.refused_at_once, tmp_path, "dflash", "mtp")


def test_a_kind_that_somebody_interrupts_alone_is_missing_and_the_exit_code_says_so(tmp_path: Path) -> None:
    told, _ = apart(al_parts.cut_alone, tmp_path, "dflash", "mtp")
    assert runs(told) == {"dflash": 2} and told.notes == ["mtp: nothing of it was finished"]
    assert told.interrupted and told.exit_code == 130


def test_a_crash_is_not_hidden_behind_what_was_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"mtp: crashed, .*LookupError.*; eagle3: eagle3/config\.json: window"):
        apart(al_parts.refused_and_crashed, tmp_path, "mtp", "eagle3")


def test_a_process_that_answered_and_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_backend.al.apart.LEAVE_S", 0.1)
    told, _ = apart(al_parts.stays, tmp_path, "dflash")
    assert runs(told) == {"dflash": 2} and told.exit_code == 0 and not multiprocessing.active_children()


def test_a_kind_whose_process_was_killed_is_not_waited_for_though_its_pipe_is_still_open(tmp_path: Path) -> None:
    told, _ = apart(al_parts.leaves_another, tmp_path, "dflash", "mtp")
    assert told.failed["mtp"].line == "its process ended with exit code -9" and runs(told) == {"dflash": 2}
    assert not (tmp_path / "later").exists(), "which its own child would have left first"


def test_nobody_is_left_where_a_process_cannot_be_started(tmp_path: Path) -> None:
    parts = [Order(tmp_path, (), (), drafters=("dflash",)), Order(_Unsendable(), (), (), drafters=("mtp",))]
    with pytest.raises(OSError, match="cannot be sent"):
        measure_apart(parts, al_parts.waits)
    assert not multiprocessing.active_children()


def test_ctrl_c_while_a_process_starts_waits_until_it_can_take_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        measure_apart([Order(_Pressed(), (), (), drafters=("mtp",))], al_parts.waits)


def test_a_kind_is_not_measured_on_when_the_command_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}) as parent:
        while not (tmp_path / "waits").exists():
            time.sleep(0.01)
        began = time.monotonic()
        parent.kill()
        with (tmp_path / "waits").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    assert time.monotonic() - began < 30, "of the minute that it would take"


KILLED = """
import sys
from pathlib import Path
from gpu_backend.al.apart import measure_apart
from gpu_backend.al.order import Order
from property_tests.gpu_room import al_parts
measure_apart([Order(Path(sys.argv[1]), (), (), drafters=("mtp",))], al_parts.waits)
"""


class _Unsendable(type(Path())):
    def __reduce__(self) -> Any:
        raise OSError("cannot be sent")


class _Pressed(type(Path())):
    """Ctrl-C comes to the process that starts while it takes in what it is to do."""

    def __reduce__(self) -> Any:
        return al_parts.pressed, ()
