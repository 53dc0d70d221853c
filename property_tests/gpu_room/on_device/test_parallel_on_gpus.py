"""Tensor parallelism over two GPUs through NCCL: equal memories, outputs of one rank, and ranks that part."""

from __future__ import annotations

import pytest

from gpu_backend.parallel.report import BROKEN, FINE, RankReport, exit_code, lines
from property_tests.gpu_room.rank_runs import reports

SOUND = {
    name: f"{name},,,120"
    for name in ("smoke/hello", "smoke/host_tier", "smoke/two_windows", "smoke/disturbed", "reports/o81")
} | {"bfloat16": "smoke/host_tier,,,120,bfloat16"}
PARTED = {
    "own host size": "reports/o81,fault:host-rank-divergent,,120",
    "own losses": "reports/o75,fault:existence-on-one-rank,,120",
    "fewer pages": "smoke/host_tier,,fewer-pages,120",
    "skipped op": "smoke/hello,,skipped-op@0:9,120",
    "skipped sum": "smoke/hello,,skipped-sum,8",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[RankReport]]:
    return reports(tmp_path_factory.mktemp("ranks"), "cuda", SOUND | PARTED)


@pytest.mark.parametrize("case", SOUND)
def test_every_gpu_has_the_memory_and_the_outputs_of_a_single_one(
    found: dict[str, list[RankReport]], case: str
) -> None:
    ranks = found[case]
    assert exit_code(ranks) == FINE, lines(ranks)
    assert [report.device for report in ranks] == ["cuda:0", "cuda:1"]
    for report in ranks:
        assert report.equal and report.sums > report.steps > 0
        assert report.outputs.rows > 0 and report.outputs.worst <= 1


@pytest.mark.parametrize("case", PARTED)
def test_a_gpu_that_parts_from_the_others_is_named_and_none_hangs(
    found: dict[str, list[RankReport]], case: str
) -> None:
    ranks = found[case]
    assert exit_code(ranks) == BROKEN
    for report in ranks:
        assert report.stopped and {violation.code for violation in report.violations} == {"RANK"}
