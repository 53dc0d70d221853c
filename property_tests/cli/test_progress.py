"""How far a long command is: a bar on a terminal, a plain line now and then in a pipe or the log of a CI job."""

from __future__ import annotations

import errno
import io
from collections import Counter
from collections.abc import Callable
from importlib import import_module

import pytest

from sim.findings import Campaigned, Cause, ShardResult

Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the time that the lines go by."""
    now = [100.0]
    monkeypatch.setattr("reports.terminal.monotonic", lambda: now[0])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return lambda seconds: now.__setitem__(0, seconds)


def ticks(clock: Clock, *ticks: tuple[float, int]) -> None:
    """A command that does 5,000 things; so many are done at each of these times."""
    with import_module("reports.terminal").progress("al") as tick:
        for seconds, done in ticks:
            clock(seconds)
            tick(done, 5000)


def test_elsewhere_than_on_a_terminal_a_line_comes_after_half_a_minute_and_then_at_most_every_one(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks(clock, (100, 1), (129.9, 2), (130, 3), (131, 4), (159.9, 5), (200, 1200), (229.9, 1300))
    assert capsys.readouterr() == ("", "al: 3 of 5,000\nal: 1,200 of 5,000\n")
    clock(100)
    ticks(clock, (129, 5000))
    assert capsys.readouterr() == ("", ""), "a command that ends sooner is silent"


def test_a_line_that_cannot_be_written_ends_no_command(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in (Full(), None):
        clock(100)
        monkeypatch.setattr("sys.stderr", broken)
        ticks(clock, (131, 3), (170, 5000))


class Full(io.StringIO):
    """The log of a job whose disk takes no more."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_terminal_shows_a_bar_and_no_such_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    ticks(clock, (130, 3), (170, 5000))
    shown = capsys.readouterr().err
    assert "5000/5000" in shown and " of " not in shown


def test_a_campaign_says_how_far_it_is_as_well(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    campaigns = import_module("reports.campaigns")
    done = Campaigned(ShardResult(examples=1280, evaluations=Counter(KEY=7000)))
    with campaigns.Desk(None) as desk:
        desk.tell(done)
        assert capsys.readouterr().err == ""
        clock(140)
        desk.tell(done)
        desk.tell(done)
        told = capsys.readouterr().err
        assert told.startswith("fuzz: 1,280 examples in ") and told.endswith("evaluated 7,000 times\n")
        assert told.count("\n") == 1
        clock(175)
        done.causes.append(Cause("KEY", ("submit",), "fault:raw-keys", "swarm", 7, "reads what is not its own"))
        desk.tell(done)
        assert capsys.readouterr().err.endswith("evaluated 7,000 times; a law broke in 1\n")
