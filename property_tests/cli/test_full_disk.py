"""A disk that fills up under a campaign: a limit of the system on the size of files stands for it."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from property_tests.cli.conftest import Command

ORDER = ("fuzz", "--build", "unified", "--workers", "1", "--examples")
BROKEN = ("fuzz", "--build", "fault:raw-keys", "--workers", "1", "--examples")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process grows beyond ``size`` bytes. Nor does it compile meanwhile: Python 3.11 keeps what it
    wrote of a module's code, cut at the limit, and nobody can import that module from then on."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the ledger every four examples."""
    monkeypatch.setattr("property_tests.fuzz.campaign.FIRST_SHARD", 4)
    monkeypatch.setattr("property_tests.fuzz.campaign.LARGEST_SHARD", 4)


def test_a_ledger_that_finds_no_room_ends_the_session_with_its_summary(kvtwin: Command, tmp_path: Path) -> None:
    with room_for(3000):
        answer = kvtwin(*ORDER, "400", "--out", "kept")
    assert answer.code == 4
    assert "no law broke until a file could not be written" in " ".join(answer.out.split())
    assert answer.err.startswith("kvtwin: cannot write kept/ledger.jsonl: File too large; called again, the campaign")
    assert answer.err.count("\n") == 1
    lines = (tmp_path / "kept/ledger.jsonl").read_text().splitlines()
    kept = sum(json.loads(line)["examples"] for line in lines[1:])
    assert 0 < kept < 400
    again = kvtwin(*ORDER, "4", "--out", "kept", "--json").json()
    assert (again["examples_of_earlier_sessions"], again["examples"], again["exit_code"]) == (kept, kept + 4, 0)
    assert again["not_written"] is None


def test_a_failure_that_finds_no_room_is_told_and_found_again(kvtwin: Command, tmp_path: Path) -> None:
    with room_for(4000):
        answer = kvtwin(*BROKEN, "12", "--out", "kept", "--json")
    told = answer.json()
    assert answer.code == told["exit_code"] == 4
    assert told["failures"] and told["failures"][0]["folder"] is None
    assert told["not_written"].startswith("cannot write kept/failures/")
    assert answer.err == f"kvtwin: {told['not_written']}; called again, the campaign goes on from what is written\n"
    ledger = [json.loads(line) for line in (tmp_path / "kept/ledger.jsonl").read_text().splitlines()[1:]]
    assert not any(line["failures"] for line in ledger)
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.is_file() and "failures/" in str(path)]
    again = kvtwin(*BROKEN, "12", "--out", "kept", "--json").json()
    assert again["examples_of_earlier_sessions"] == sum(line["examples"] for line in ledger) < told["examples"]
    assert all((tmp_path / "kept" / failure["folder"]).is_dir() for failure in again["failures"])


def test_a_summary_that_finds_no_room_is_printed_all_the_same(kvtwin: Command, tmp_path: Path) -> None:
    kvtwin(*ORDER, "1", "--out", "large")
    ledger, summary = ((tmp_path / "large" / name).stat().st_size for name in ("ledger.jsonl", "campaign.json"))
    assert ledger < summary
    with room_for((ledger + summary) // 2):
        answer = kvtwin(*ORDER, "1", "--out", "small")
    assert answer.code == 4
    assert "1 example in" in answer.out
    assert answer.err.startswith("kvtwin: cannot write small/campaign.json: File too large")
    assert {path.name for path in (tmp_path / "small").iterdir()} == {"kvtwin.json", "ledger.jsonl"}
