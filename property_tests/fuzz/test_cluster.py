"""The same campaign on a cluster: a scheduler and two workers, started by command line as for several machines."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from property_tests.fuzz import helpers, session
from property_tests.fuzz.cluster import Cluster
from property_tests.fuzz.test_campaign_loop import ORDER, campaign, told_apart
from scenarios.errors import InputError
from sim.findings import Campaigned, Failure

DASK = [sys.executable, "-m", "dask"]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


class Machines:
    """A scheduler and two workers on the loopback, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers = folder, list[subprocess.Popen[bytes]]()
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(folder / "s"), folder=folder)
        told = (folder / "scheduler.log").open()
        self.address = ""
        until = time.monotonic() + PATIENCE_S
        while not self.address:
            assert time.monotonic() < until and self.scheduler.poll() is None, told.read()
            for line in told:
                if "Scheduler at:" in line:
                    self.address = line.split()[-1]
            time.sleep(0.05)
        told.close()

    def begin(self) -> None:
        """The workers come."""
        options = (self.address, "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder))
        self.workers = [self._start("worker", *options, "--name", name, folder=self.folder) for name in "ab"]

    def _start(self, *command: str, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / f"{command[0]}.log").open("ab") as log:
            line = [*DASK, *command, "--host", "127.0.0.1", "--no-dashboard"]
            return subprocess.Popen(line, stdout=log, stderr=log, cwd=ROOT)

    def await_workers(self, crew: Cluster) -> None:
        until = time.monotonic() + PATIENCE_S
        while crew.lanes < 2:
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    cluster = Machines(tmp_path)
    cluster.begin()
    yield cluster
    cluster.end()


@pytest.fixture
def deserted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """A scheduler without workers, and little patience."""
    for module in ("cluster", "campaign"):
        monkeypatch.setattr(f"property_tests.fuzz.{module}.TELL_S", 0.2)
        monkeypatch.setattr(f"property_tests.fuzz.{module}.WORKERS_S", 1.0)
    cluster = Machines(tmp_path)
    yield cluster
    cluster.end()


class Listener:
    """A desk that keeps nothing and listens."""

    ledger = None

    def __init__(self) -> None:
        self.lines: list[str] = []

    def keep(self, failure: Failure, command: str) -> str:
        return ""

    def drop(self, folder: str) -> None: ...

    def tell(self, so_far: Campaigned) -> None: ...

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_a_scheduler_without_workers_is_told_and_given_up(deserted: Machines) -> None:
    desk = Listener()
    with pytest.raises(InputError, match=r"^--cluster: expected a worker within 1 s, found none at the scheduler tcp:"):
        session.run(session.Asked(examples=4, cluster=deserted.address), desk)
    assert desk.lines == [f"the scheduler at {deserted.address} has no workers; waiting 1 s for one"]


def test_workers_that_all_go_for_good_end_the_session(deserted: Machines) -> None:
    lines: list[str] = []
    done = campaign(40, Cluster(deserted.address), note=lines.append)
    assert lines == ["all workers are gone; waiting 1 s for one"]
    assert (done.lost, done.crashes, done.totals.examples) == ("no worker was there for 1 s", [], 0)


def test_a_rule_that_the_workers_cannot_import_is_bad_input_that_names_one_of_them(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = tmp_path / "rules_at_home" / "claim_at_home.py"
    rule.parent.mkdir()
    rule.write_text("from model.rules.claim import JointMinimum\nclass Mine(JointMinimum): ...\n")
    monkeypatch.syspath_prepend(str(rule.parent))
    asked = session.Asked(examples=4, rules=("claim=claim_at_home:Mine",), cluster=machines.address)
    lacks = r"^--cluster: worker tcp://127\.0\.0\.1:\d+: expected workers that have the builds .*claim_at_home"
    with pytest.raises(InputError, match=lacks):
        session.run(asked, Listener())
    done = session.run(session.Asked(examples=4, build="unified", cluster=machines.address), Listener())
    assert (done.totals.examples, done.crashes) == (4, [])


def test_totals_are_those_of_a_serial_run_and_a_killed_worker_loses_nothing(machines: Machines, tmp_path: Path) -> None:
    def kill_one(so_far: Campaigned) -> None:
        if so_far.totals.examples >= 24 and machines.workers[0].poll() is None:
            machines.workers[0].kill()
            machines.workers[0].wait()

    crew = Cluster(machines.address)
    machines.await_workers(crew)
    done = campaign(72, crew, path=tmp_path / "ledger.jsonl", tell=kill_one)
    assert machines.workers[0].returncode is not None, "one worker was killed half-way"
    assert (done.workers, done.crashes) == (2, [])
    whole = campaign(8, path=tmp_path / "ledger.jsonl")  # and it goes on without the cluster
    serial = helpers.run_shard(ORDER, 0, 80, None)
    assert (whole.resumed, whole.totals.examples, whole.totals.steps) == (72, 80, serial.steps)
    assert (whole.totals.evaluations, whole.totals.features) == (serial.evaluations, serial.features)
    assert {cause.key for cause in whole.causes} == {failure.cause for failure in told_apart(serial.failures)}
    assert whole.failures == len(serial.failures)


def test_a_lost_cluster_is_told_and_what_it_found_is_kept(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_all(so_far: Campaigned) -> None:
        if so_far.totals.examples:
            machines.end()

    crew = Cluster(machines.address)
    monkeypatch.setattr("property_tests.fuzz.cluster.CONNECT_S", 1)
    lost = campaign(10_000, crew, path=tmp_path / "ledger.jsonl", tell=kill_all)
    assert (lost.lost, lost.crashes) == (f"the cluster at {machines.address} is gone", [])
    assert lost.totals.examples > 0
    assert campaign(0, path=tmp_path / "ledger.jsonl").totals == lost.totals


@pytest.mark.parametrize("address", ["host", "tcp://host", "http://host:80", ":8786", "tcp://:1", "host:port"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(InputError, match=r"cluster: expected the address of a scheduler, tcp://HOST:PORT, found"):
        Cluster(address)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"kvtwin\[cluster\]"):
        Cluster("tcp://127.0.0.1:1")


def test_nobody_at_the_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("property_tests.fuzz.cluster.CONNECT_S", 1)
    with pytest.raises(InputError, match=r"expected a scheduler at tcp://127\.0\.0\.1:1, found none that answers"):
        Cluster("tcp://127.0.0.1:1")
