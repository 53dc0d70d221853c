"""Tensor parallelism over two processes of the CPU: equal memories, outputs of one rank, and ranks that part."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.parallel.__main__ import main
from gpu_backend.parallel.outputs import PLACES, Said, beside
from gpu_backend.parallel.report import BROKEN, FINE, NOTHING_CHECKED, RankReport, exit_code, lines
from property_tests.gpu_room.rank_runs import reports

CASES = {
    "two windows": "smoke/two_windows,,,60",
    "agreed": "reports/o81,,,60",
    "own host size": "reports/o81,fault:host-rank-divergent,,60",
    "own losses": "reports/o75,fault:existence-on-one-rank,,60",
    "fewer pages": "reports/o81,,fewer-pages,60",
    "lost pages": "reports/o81,,lost-pages@1:14,60",
    "skipped op": "smoke/hello,,skipped-op@0:9,60",
    "skipped sum": "smoke/hello,,skipped-sum,5",
}
PARTED = "the ranks run different steps"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[RankReport]]:
    return reports(tmp_path_factory.mktemp("ranks"), "cpu", CASES)


@pytest.mark.parametrize("case", ["two windows", "agreed"])
def test_every_rank_has_the_memory_and_the_outputs_of_a_single_one(
    found: dict[str, list[RankReport]], case: str
) -> None:
    ranks = found[case]
    assert exit_code(ranks) == FINE, lines(ranks)
    for rank, report in enumerate(ranks):
        assert report.rank == rank and report.equal and report.digest == ranks[0].digest
        assert report.sums > 2 * report.steps and report.plans >= report.steps > 0
        assert report.outputs.rows == report.outputs.equal > report.rows
        assert 0 < report.outputs.worst <= 1  # a sum over ranks rounds elsewhere than a single product does


def test_the_drafter_is_shared_out_too(found: dict[str, list[RankReport]]) -> None:
    """A verify row gives 1 + K logits of the target, and K of the drafter where one runs; both have layers to sum."""
    for report in found["agreed"]:
        chunks = 3
        assert report.outputs.rows == chunks + (report.rows - chunks) * (4 + 3)
        assert report.sums == 1 + 4 * report.rows + 4 * (report.rows - chunks)


@pytest.mark.parametrize(
    ("case", "message", "step", "odd"),
    [
        ("own host size", PARTED, 8, "rank 1: request 2 computes tokens"),
        ("own losses", PARTED, 4, "rank 1: request 1 computes tokens"),
        ("fewer pages", "the ranks run different ops", 0, "rank 1: op 1, a refusal (session other, turn 0 can never"),
        ("fewer pages", "the ranks build engines of different pools", -1, "rank 1: target 13 pages"),
        ("lost pages", "the ranks leave different memories", 12, "rank 1: the end"),
        ("skipped op", "the ranks run different ops", 4, "rank 1: op 9, a dispatch"),
        ("skipped sum", "the ranks did not meet at sum 13, where each waits 5 s at most", 1, "rank 1: waits at op"),
    ],
)
def test_a_rank_that_parts_from_the_others_is_named(
    found: dict[str, list[RankReport]], case: str, message: str, step: int, odd: str
) -> None:
    ranks = found[case]
    assert exit_code(ranks) == BROKEN
    for report in ranks:
        assert {violation.code for violation in report.violations} == {"RANK"}
    told = [violation for violation in ranks[0].violations if message in violation.message]
    assert told, lines(ranks)
    assert told[0].step >= step and told[0].found.startswith(odd), told[0]
    assert any(line.startswith("RANK: ") and message in line for line in lines(ranks))


def test_a_rank_that_hangs_stops_all_at_one_step(found: dict[str, list[RankReport]]) -> None:
    for case in ("own losses", "skipped op", "skipped sum"):
        first, second = found[case]
        waiting = case == "skipped sum"  # rank 0 is in the step that rank 1 has left
        assert first.stopped and second.stopped and first.steps + waiting == second.steps > 1


def test_a_process_that_dies_is_reported_by_the_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke/hello", "--ranks", "2", "--device", "cpu", "--timeout", "30", "--plant", "dead@1:6"]) == 1
    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith("rank 0 of 2 on cpu: ") and out[0].endswith("the ranks parted")
    assert out[1] == "rank 1 of 2: no report"
    assert out[2].startswith("RANK: step ") and out[2].endswith("rank 1: does not come")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["smoke/hello"], "ranks: expected --ranks N, or torch.distributed.run, found neither"),
        (["smoke/hello", "--ranks", "2", "--timeout", "0"], "timeout: expected seconds above 0, found 0"),
        (["reports/o81", "--ranks", "3"], "workers.count: expected as many as there are processes, 3, found 2"),
        (["smoke/host_link", "--ranks", "2"], "host_link: expected none: copies that take time have one worker"),
        (["smoke/hello", "--ranks", "2", "--plant", "tea"], "plant: expected a fault of one rank"),
        (["smoke/hello", "--ranks", "2", "--plant", "late@2"], "expected a rank below 2 and a number from 1 on"),
        (["smoke/hello", "--ranks", "2", "--plant", "late@x"], "expected NAME@RANK:NUMBER, found 'late@x'"),
    ],
)
def test_what_cannot_be_run_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    assert main([*arguments, "--device", "cpu"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert line in told


def test_the_command_tells_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(option in told for option in ("--ranks", "--device", "--timeout", "skipped-sum"))


def test_outputs_beyond_the_tolerance_are_named_by_step() -> None:
    logits = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    own, near, far = (Said.of(4, logits + shift) for shift in (0, 1e-7, 1e-3))
    assert own.logits.shape == (3, 1 + PLACES)
    good, bad = beside([near], [own], torch.float32), beside([far], [own], torch.float32)
    assert (good.rows, good.wrong) == (3, "") and 0 < good.worst < 1
    assert bad.step == 4 and "times the tolerance" in bad.wrong
    assert beside([Said.of(4, logits * torch.nan)], [own], torch.float32).wrong
    assert beside([own], [own, own], torch.float32).wrong == "1 step, one rank has 2"
    assert beside([own], [Said.of(5, logits)], torch.float32).wrong == "other rows than those of one rank"


def test_exit_codes_of_reports() -> None:
    nothing = RankReport(0, "cpu")
    assert exit_code([nothing]) == NOTHING_CHECKED
    assert exit_code([nothing, None]) == BROKEN
    assert exit_code([RankReport(0, "cpu", digest="a", memory_digest="a", alone="b")]) == BROKEN
    assert lines([nothing, None])[1] == "rank 1 of 2: no report"
