"""The ledger: sessions add up, another order is refused, and a line is there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from property_tests.fuzz import digest, helpers
from property_tests.fuzz.ledger import Ledger
from property_tests.fuzz.order import Order
from property_tests.fuzz.test_campaign_loop import ORDER, campaign, found
from scenarios.errors import InputError


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "ledger.jsonl"
    campaign(20, path=path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, written: bytes) -> Path:
    """The ledger of 20 examples."""
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(written)
    return path


def test_sessions_add_up_to_the_campaign_in_one_piece(path: Path) -> None:
    campaign(20, path=path)
    assert found(campaign(8, path=path)) == found(campaign(48))


def test_examples_that_a_session_left_out_come_first(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) >= 3, "a header and two shards at least"
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    missing = 20 - campaign(0, path=path).totals.examples
    assert missing > 0
    whole = campaign(missing, path=path)
    assert found(whole) == found(campaign(20))


def test_a_line_that_was_cut_off_is_dropped(path: Path) -> None:
    before = path.read_bytes()
    path.write_bytes(before + b'{"begin":20,"end":28,"exam')
    assert campaign(0, path=path).totals.examples == 20
    assert path.read_bytes().startswith(before)
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 5}, "seed: expected 3, as the campaign in this folder has it, found 5"),
        ({"builds": ("unified",)}, "builds: expected unified, fault:raw-keys, as"),
        ({"profile": "deep"}, "profile: expected quick, as the campaign in this folder has it, found deep"),
        ({"driver": "bytes"}, "driver: expected swarm, as"),
    ],
)
def test_another_order_is_refused_in_one_line(path: Path, changed: dict[str, object], told: str) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError) as caught:
        Ledger(path, replace(ORDER, **changed), digest.of_code())
    assert told in str(caught.value) and str(path.parent) in str(caught.value)
    assert path.read_bytes() == before


def test_where_the_database_is_does_not_make_another_order(path: Path) -> None:
    assert campaign(4, path=path, order=replace(ORDER, database="elsewhere")).totals.examples == 24


def test_examples_of_other_code_are_not_added_to(path: Path) -> None:
    with pytest.raises(InputError, match="expected the code that this folder's examples ran on"):
        Ledger(path, ORDER, "0123456789abcdef")


@pytest.mark.parametrize(
    ("line", "text"), [(1, "{}"), (1, "milk"), (1, "[]"), (2, "{}"), (2, "bread"), (2, '{"begin": "x"}'), (2, "[1]")]
)
def test_a_file_that_is_no_ledger_is_refused_with_its_line(path: Path, line: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=rf"ledger\.jsonl:{line}: expected "):
        Ledger(path, ORDER, digest.of_code())


def test_two_campaigns_do_not_write_one_ledger(path: Path) -> None:
    first = Ledger(path, ORDER, digest.of_code())
    with pytest.raises(InputError, match="found a campaign that is running in it"):
        Ledger(path, ORDER, digest.of_code())
    first.close()
    Ledger(path, ORDER, digest.of_code()).close()


def test_a_full_disk_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, text: bytes) -> int:
        if len(text) > 20:
            return write(file, text[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.write
    ledger = Ledger(path, ORDER, digest.of_code())
    before = path.read_bytes()
    monkeypatch.setattr("property_tests.fuzz.ledger.os.write", full)
    result = helpers.run_shard(ORDER, 20, 2, None)
    ledger.add(20, 22, result, [], 1.0)
    assert ledger.so_far.unwritten == f"cannot write {path}: {os.strerror(errno.ENOSPC)}"
    assert ledger.so_far.totals.examples == 22, "told, though it stands nowhere"
    monkeypatch.undo()
    ledger.close()
    assert path.read_bytes() == before
    assert campaign(0, path=path).totals.examples == 20


def test_the_digest_of_the_code_takes_in_a_users_own_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model.builds import BUILDS

    (tmp_path / "my_claim.py").write_text("from model.rules.claim import JointMinimum\nclass Mine(JointMinimum): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rule = __import__("my_claim").Mine()
    build = BUILDS["unified"]
    mine = replace(build, rules=replace(build.rules, claim=rule))
    assert digest.of([build]) == digest.of_code() != digest.of([build, mine])
    before = digest.of([mine])
    (tmp_path / "my_claim.py").write_text("# another\n" + (tmp_path / "my_claim.py").read_text())
    assert digest.of([mine]) != before
    assert Order(("unified",)) == Order(("unified",), database="")
