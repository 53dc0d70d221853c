"""What is made of runs and of their events, by the command line and with its start-up; run by ``make bench``."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from property_tests.benchmarking import best_of

CHECKOUT = Path(__file__).resolve().parents[1]
EVENTS = 1_000_000
FOUR = ("target-only", "paired-22", "unified-page", "unified")


def clock() -> float:
    """Processor time of the processes that were started from here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


pytestmark = pytest.mark.benchmark(timer=clock)


def kvtwin(*arguments: str | Path) -> str:
    """Standard output of a command that ends well."""
    command = [sys.executable, "-m", "kvtwin", *map(str, arguments)]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def agentic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agentic scenario, 531 requests, with its events."""
    folder = tmp_path_factory.mktemp("agentic") / "run"
    kvtwin("run", "agentic", "--out", folder)
    return folder


def test_a_log_of_a_million_events_into_tables(benchmark: BenchmarkFixture, agentic: Path, tmp_path: Path) -> None:
    """Target: 10 s; the log is that of the agentic scenario, again and again."""
    log = tmp_path / "events.jsonl"
    with (agentic / "events.jsonl").open() as file:
        lines = file.readlines()
    with log.open("w") as file:
        file.writelines(islice((line for _ in range(-(-EVENTS // len(lines))) for line in lines), EVENTS))
    said = best_of(benchmark, lambda: kvtwin("tables", log, "--out", tmp_path / "tables"), rounds=2, target_s=10.0)
    assert "1,000,000 events" in said


def test_the_page_map_of_a_step_read_from_a_folder(benchmark: BenchmarkFixture, agentic: Path) -> None:
    """Target: 3 s, of which the start is the greater part; a map itself takes 30 ms."""
    said = best_of(benchmark, lambda: kvtwin("pages", agentic, "--at", "3000"), rounds=2, target_s=3.0)
    assert "when iteration 3000 of 5969 went out" in said


@pytest.fixture(scope="module")
def four_builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The agentic scenario on four builds, without events; one of them breaks the laws that it is there to break."""
    folder = tmp_path_factory.mktemp("builds")
    for build in FOUR:
        command = [sys.executable, "-m", "kvtwin", "run", "agentic", "--build", build, "--no-events"]
        subprocess.run([*command, "--out", folder / build], cwd=CHECKOUT, capture_output=True, check=build == FOUR[-1])
    return [folder / build for build in FOUR]


def test_the_tables_of_four_builds(benchmark: BenchmarkFixture, four_builds: list[Path]) -> None:
    """Runs read, requests lined up, every figure with its interval and ratio. Target: 3 s, a third of it the start."""
    printed = best_of(benchmark, lambda: kvtwin("compare", *four_builds, "--json"), rounds=2, target_s=3.0)
    (comparison,) = json.loads(printed)["comparisons"]
    assert [build["name"] for build in comparison["builds"]] == list(FOUR)
    assert comparison["paired_requests"] == 531
    lengths = {row["build"]: row for row in comparison["rows"] if row["metric"] == "al_step_weighted"}
    assert lengths["unified"]["ratio_low"] > 1


def test_the_page_of_four_builds_of_the_agentic_scenario(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Targets: 15 s for all files of the comparison after its runs, and 6 MB for the page."""
    begun = clock()
    kvtwin("compare", "agentic")
    runs_s = clock() - begun
    out = tmp_path / "agentic"
    said = best_of(benchmark, lambda: kvtwin("compare", "agentic", "--out", out), rounds=1, target_s=15.0 + runs_s)
    page = out / "report.html"
    benchmark.extra_info.update({"runs_s": round(runs_s, 2), "page_bytes": page.stat().st_size})
    assert said.rstrip().splitlines()[-1].strip().startswith(f"written: {page}")
    assert page.stat().st_size < 6e6
