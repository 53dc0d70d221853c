"""``kvtwin fuzz``: what it prints and keeps, how it goes on, and its exit codes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from model.builds import BUILDS
from model.invariants import INVARIANTS
from property_tests.cli.conftest import Command
from property_tests.fuzz.campaign import ENDING
from property_tests.fuzz.order import Order
from sim.findings import Campaigned, Cause, ShardResult

KVTWIN = [sys.executable, "-m", "kvtwin"]
SMALL = ("fuzz", "--build", "unified,paired-22", "--examples", "24", "--workers", "1")
BROKEN = ("fuzz", "--build", "fault:raw-keys", "--examples", "12", "--workers", "1")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_campaign_says_what_it_reached_what_it_evaluated_and_how_fast(
    kvtwin: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    answer = kvtwin(*SMALL)
    assert (answer.code, answer.err) == (0, "")
    told = " ".join(answer.out.split())
    assert "swarm, 2 builds, profile quick, seed 0: 24 examples in" in told
    assert "steps/s, 1 worker): no law broke" in told
    assert "Laws evaluated:" in told and "partial claims" in told
    assert max(map(len, answer.out.splitlines())) <= 100


def test_the_document_has_order_rates_laws_features_and_causes(kvtwin: Command) -> None:
    document = kvtwin("fuzz", "--examples", "13", "--workers", "1", "--driver", "bytes", "--json").json()
    correct = [build.name for build in BUILDS.values() if build.correct]
    assert document["order"]["builds"] == correct
    assert (document["order"]["driver"], document["examples"], document["failures"]) == ("bytes", 13, [])
    assert set(document["laws_evaluated"]) == set(INVARIANTS)
    assert document["laws_evaluated"]["OWN"] > 0
    assert document["features"] and document["steps"] > 13
    assert document["examples_per_second"] > 0 and document["exit_code"] == 0


def test_a_broken_law_is_1_and_its_smallest_program_is_kept(kvtwin: Command, tmp_path: Path) -> None:
    answer = kvtwin(*BROKEN, "--out", "found")
    assert answer.code == 1
    assert "a law broke in" in answer.out and " fault:raw-keys " in answer.out
    document = json.loads((tmp_path / "found/campaign.json").read_text())
    assert document["exit_code"] == 1
    folders = [failure["folder"] for failure in document["failures"]]
    assert folders and len(set(folders)) == len(folders)
    written = [line for line in answer.out.splitlines() if line.startswith("  written: ")]
    assert written == [f"  written: found/{folder}" for folder in folders]
    for failure in document["failures"]:
        assert failure["folder"].startswith(f"failures/{failure['law']}")
        kept = tmp_path / "found" / failure["folder"]
        again = kvtwin("run", "--ops", kept / "minimal.jsonl", "--json")
        assert again.code == 1
        assert again.json()["runs"][0]["violations"][0]["code"] == failure["law"]
        assert "kvtwin fuzz --build fault:raw-keys --driver swarm" in (kept / "repro.txt").read_text()


def test_a_rule_that_never_decides_is_kept_as_a_failure(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("property_tests.fuzz.patience.EXAMPLE_S", 0.5)
    head = "from model.rules.claim import JointMinimum\n\n\nclass Mine(JointMinimum):\n"
    (tmp_path / "endless_claim.py").write_text(
        f"{head}    def decide(self, view):\n        while True:\n            pass\n"
    )
    rule = ("--rule", "claim=endless_claim:Mine")
    document = kvtwin("fuzz", *rule, "--examples", "1", "--workers", "1", "--out", "kept", "--json").json()
    (failure,) = document["failures"]
    assert (failure["law"], document["exit_code"]) == ("HANG", 1)
    assert "endless_claim.Mine.decide" in failure["message"]
    kept = tmp_path / "kept" / failure["folder"]
    assert "(endless_claim, line " in failure["message"]
    assert files(kept) == {"kvtwin.json", "repro.txt", "trace.jsonl", "minimal.jsonl", "crash.txt"}
    told = (kept / "repro.txt").read_text()
    assert "the program does not end" in told and "has no limit: Ctrl-C ends it" in told
    heading, place, *_ = (kept / "crash.txt").read_text().splitlines()
    assert heading == "In the rule:" and 'endless_claim.py", line ' in place and place.endswith("in decide")


def test_the_causes_are_told_without_a_folder_too(kvtwin: Command) -> None:
    answer = kvtwin(*BROKEN)
    assert answer.code == 1
    assert "submit" in answer.out and "--out DIR keeps each" in answer.out


def test_a_campaign_goes_on_in_its_folder_and_adds_up(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin(*SMALL, "--out", "kept")
    assert files(tmp_path / "kept") == {"kvtwin.json", "campaign.json", "ledger.jsonl"}
    answer = kvtwin(*SMALL, "--out", "kept")
    assert answer.code == 0
    assert "48 examples, 24 of them in earlier sessions" in " ".join(answer.out.split())
    both = json.loads((tmp_path / "kept/campaign.json").read_text())
    whole = kvtwin(*SMALL[:4], "48", *SMALL[5:], "--json").json()
    for name in ("examples", "steps", "laws_evaluated", "features"):
        assert both[name] == whole[name]


@pytest.mark.parametrize("changed", [("--seed", "1"), ("--driver", "bytes"), ("--profile", "deep")])
def test_another_order_in_the_folder_is_one_line(kvtwin: Command, tmp_path: Path, changed: tuple[str, str]) -> None:
    kvtwin(*SMALL, "--out", "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    answer = kvtwin(*SMALL, *changed, "--out", "kept")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"kept: {changed[0][2:]}: expected " in answer.err and f"found {changed[1]}" in answer.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before


def test_a_folder_of_something_else_is_left_alone(kvtwin: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("dear reader")
    kvtwin("run", "hello", "--out", "run")
    (tmp_path / "note").write_text("milk")
    before = files(tmp_path)
    for target in ("thesis", "run", "note"):
        answer = kvtwin(*SMALL, "--out", target)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert answer.err.startswith(f"kvtwin: {target}: expected ")
    assert files(tmp_path) == before


BAD = {
    "a rule that nobody has": ("--rule", "clam=property_tests.fuzz.order:Order"),
    "a rule without a class": ("--rule", "claim=property_tests.fuzz.order:Nothing"),
    "a rule without a module": ("--rule", "claim=no_such_module:Mine"),
    "a rule that is no rule": ("--rule", "claim"),
    "a seed of words": ("--seed", "today"),
    "a negative seed": ("--seed", "-3"),
    "two budgets": ("--minutes", "1", "--examples", "3"),
    "no time": ("--minutes", "0"),
    "time without end": ("--minutes", "inf"),
    "no time at all": ("--minutes", "nan"),
    "no example": ("--examples", "0"),
    "no worker": ("--examples", "3", "--workers", "0"),
    "more workers than can be of use": ("--examples", "3", "--workers", "100000"),
    "an unknown build": ("--build", "unifid"),
    "a build twice": ("--build", "unified,unified"),
    "an unknown fault": ("--build", "fault:raw-key"),
    "an unknown driver": ("--driver", "swarn"),
    "an unknown layer": ("--machine", "gpu"),
    "an unknown profile": ("--profile", "slow"),
    "no address": ("--cluster", "somewhere"),
    "a database for a driver without one": ("--driver", "swarm", "--database", "examples"),
    "workers beside those of a cluster": ("--cluster", "tcp://127.0.0.1:1", "--workers", "3"),
    "an argument": ("hello",),
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD)
def test_what_cannot_be_ordered_is_one_line(kvtwin: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    answer = kvtwin("fuzz", *options)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    named = [option for option in options if option.startswith("--")]
    assert any(
        answer.err.startswith((f"kvtwin: {name}: ", f"kvtwin: Invalid value for '{name}'")) for name in named
    ) or (options == BAD["an argument"] and answer.err.startswith("kvtwin: Got unexpected extra argument"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layer", ["cache", "engine", "sim"])
def test_a_machine_is_driven_on_each_layer(kvtwin: Command, layer: str) -> None:
    document = kvtwin(
        "fuzz", "--machine", layer, "--build", "unified", "--examples", "8", "--workers", "1", "--json"
    ).json()
    assert (document["order"]["driver"], document["order"]["machine"]) == ("machine", layer)
    assert (document["examples"], document["exit_code"]) == (8, 0)


def test_the_machines_keep_failing_examples_in_the_database(kvtwin: Command, tmp_path: Path) -> None:
    order = ("fuzz", "--machine", "engine", "--build", "fault:target-cursor", "--examples", "16", "--workers", "1")
    assert kvtwin(*order, "--database", "shared").code == 1
    assert files(tmp_path / "shared")


@pytest.mark.parametrize("where", ["/proc/nope", "note", "note/below"])
def test_a_database_that_cannot_be_written_is_one_line(kvtwin: Command, tmp_path: Path, where: str) -> None:
    (tmp_path / "note").write_text("milk")
    answer = kvtwin("fuzz", "--machine", "engine", "--examples", "1", "--workers", "1", "--database", where)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"kvtwin: --database: expected a folder to write to, found '{where}': ")
    assert (tmp_path / "note").read_text() == "milk"


@pytest.mark.parametrize(("driver", "layer"), [("bytes", "cache"), ("bytes", "sim"), ("swarm", "sim")])
def test_a_layer_that_a_driver_cannot_drive_is_one_line(kvtwin: Command, driver: str, layer: str) -> None:
    answer = kvtwin("fuzz", "--driver", driver, "--machine", layer)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"for the driver {driver}, found {layer}" in answer.err


def test_a_commit_id_is_a_seed(kvtwin: Command) -> None:
    commit = "9f2c0b7e51d3a8846f0e2d1c3b5a79680fedcba9"
    options = ("fuzz", "--build", "unified", "--examples", "4", "--workers", "1", "--json")
    long, short = (kvtwin(*options, "--seed", text).json() for text in (commit, commit[:12].upper()))
    assert long["order"]["seed"] == short["order"]["seed"] == int(commit[:12], 16)
    assert long["steps"] == short["steps"] != kvtwin(*options, "--seed", "7").json()["steps"]


def test_nothing_checked_is_3(kvtwin: Command) -> None:
    answer = kvtwin("fuzz", "--build", "unified", "--minutes", "0.000001", "--workers", "1")
    assert answer.code == 3
    assert "nothing checked" in answer.out


def test_a_full_disk_is_one_line_and_what_is_there_stays_whole(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, text: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kvtwin(*SMALL, "--out", "kept")
    before = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("property_tests.fuzz.ledger.os.write", full)
        answer = kvtwin(*SMALL, "--out", "kept")
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == f"kvtwin: cannot write kept/ledger.jsonl: {os.strerror(errno.ENOSPC)}\n"
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before
    assert kvtwin(*SMALL, "--out", "kept").code == 0


def test_a_disk_that_fills_up_under_a_failure_leaves_no_half_of_it(
    kvtwin: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("reports.failures.save_trace", full)
        assert kvtwin(*BROKEN, "--out", "found").code == 4
    assert not [name for name in files(tmp_path / "found") if "failures/" in name]
    assert kvtwin(*BROKEN, "--out", "found").code == 1


def test_a_campaign_that_is_refused_does_not_touch_what_another_one_is_writing(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin(*BROKEN, "--out", "found")
    half = tmp_path / "found/failures/.unfinished/half"
    half.mkdir(parents=True)
    with (tmp_path / "found/ledger.jsonl").open("ab") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        answer = kvtwin(*BROKEN, "--out", "found")
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert "found a campaign that is running in it" in answer.err
        assert half.is_dir()
    assert kvtwin(*BROKEN, "--out", "found").code == 1
    assert not half.exists()


def lines_of(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def test_a_killed_worker_and_ctrl_c_lose_nothing(tmp_path: Path, kvtwin: Command) -> None:
    """As a user has it: a process is killed, the campaign goes on; Ctrl-C ends it, and the folder goes on later."""

    def await_lines(count: int) -> None:
        until = time.monotonic() + 120
        while lines_of(ledger) < count:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)

    ledger = tmp_path / "kept/ledger.jsonl"
    options = ["fuzz", "--build", "unified", "--minutes", "50", "--workers", "2", "--out", "kept"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(
        [*KVTWIN, *options],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        await_lines(2)
        busy = [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(busy[0], signal.SIGKILL)
        await_lines(lines_of(ledger) + 2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # or it would go on for its 50 minutes where this test fails
    assert (process.returncode, err) == (130, f"kvtwin: {ENDING}\nkvtwin: interrupted\n")
    assert re.search(r"interrupted after \d+\.\d of 50 minutes; no law broke until then", " ".join(out.split()))
    document = json.loads((tmp_path / "kept/campaign.json").read_text())
    assert (document["interrupted"], document["crashes"], document["exit_code"]) == (True, [], 130)
    ran = document["examples"]
    again = ("fuzz", "--build", "unified", "--examples", "8", "--workers", "1", "--out", "kept", "--json")
    assert kvtwin(*again).json()["examples"] == ran + 8


@pytest.mark.parametrize(
    ("ordered", "told"),
    [
        ({"ordered_examples": 24}, "interrupted after 16 of 24 examples"),
        ({"ordered_seconds": 1200.0, "session_seconds": 90.0}, "interrupted after 1.5 of 20 minutes"),
    ],
)
@pytest.mark.parametrize("found", [False, True])
def test_ctrl_c_is_told_where_a_law_broke_too(
    capsys: pytest.CaptureFixture[str], ordered: dict[str, Any], told: str, found: bool
) -> None:
    campaigns = import_module("reports.campaigns")
    totals = ShardResult(examples=20, evaluations=Counter(KEY=1), features=Counter(hits=1))
    causes = [Cause("KEY", ("submit",), "fault:raw-keys", "swarm", 7, "reads what is not its own")] if found else []
    done = Campaigned(totals, causes, resumed=4, interrupted=True, **ordered)
    order = {"driver": "swarm", "builds": ["fault:raw-keys"], "profile": "quick", "seed": 0}
    campaigns.show(order, done, False, None)
    last = " ".join(capsys.readouterr().out.split())
    assert last.endswith(f"a law broke in 1, of 1 cause; {told}" if found else f"{told}; no law broke until then")
    assert campaigns.exit_code(done) == (1 if found else 130)


@pytest.mark.parametrize("out", [Path("kept"), None])
def test_workers_that_are_gone_are_one_line_and_what_was_judged_until_then_is_told(
    capsys: pytest.CaptureFixture[str], out: Path | None
) -> None:
    judged = ShardResult(128, 900, evaluations=Counter(KEY=7), features=Counter(joint_claims=3))
    done = Campaigned(judged, lost="the cluster at tcp://host:8786 is gone")
    campaigns = import_module("reports.campaigns")
    campaigns.show(asdict(Order(("unified",))), done, False, out)
    told = capsys.readouterr()
    assert "128 examples" in told.out and "no law broke until the workers were gone" in " ".join(told.out.split())
    again = "called again with the same --out, the campaign goes on" if out else "--out keeps a campaign"
    assert told.err == f"kvtwin: the cluster at tcp://host:8786 is gone; {again}\n"
    assert campaigns.exit_code(done) == 4
