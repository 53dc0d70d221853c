"""``kvtwin capacity``: what builds make of a rank's memory."""

from __future__ import annotations

from typing import Any

from property_tests.cli.conftest import Command


def pools(answer: Any, scenario: int = 0) -> dict[tuple[str, str], Any]:
    return {(row["build"], row["pool"]): row for row in answer["scenarios"][scenario]["pools"]}


def test_the_split_of_the_seeds_is_shown_by_pool_and_tier(kvtwin: Command) -> None:
    """X1, X2, X4 and S6 in one table."""
    answer = kvtwin("capacity", "s06_tp2", "s06_tp4", "--json")
    assert answer.code == 0
    document = answer.json()
    found = pools(document)
    assert found["paired-22", "draft"]["page_bytes"] == 655_360
    assert {key: row["device_pages"] for key, row in found.items()} == {
        ("paired-22", "target"): 38_178,
        ("paired-22", "draft"): 30_008,
        ("unified", "target"): 43_094,
        ("unified", "draft"): 6_082,
    }
    host = {build: found[build, "target"]["host_bytes"] / 2**30 for build in ("paired-22", "unified")}
    assert {build: round(size, 2) for build, size in host.items()} == {"paired-22": 64.57, "unified": 82.89}
    assert (document["scenarios"][0]["rows"], document["scenarios"][0]["columns"]) == (177, 8_193)
    assert pools(document, 1)["unified", "draft"]["page_bytes"] == 327_680
    for row in found.values():
        assert row["device_tokens"] == 128 * row["device_pages"]
        assert row["device_bytes"] == row["page_bytes"] * row["device_pages"]
    memory = document["scenarios"][0]["device"]
    spent = sum(row["device_bytes"] for key, row in found.items() if key[0] == "unified")
    assert 0 <= memory - spent < 3_189_548 + 655_360


def test_layouts_without_a_drafters_pool_of_its_own_are_told_apart(kvtwin: Command) -> None:
    found = pools(kvtwin("capacity", "s06_tp2", "--builds", "sglang-fused,vllm-drop-last,target-21", "--json").json())
    assert found["sglang-fused", "target"]["device_pages"] == found["sglang-fused", "draft"]["device_pages"]
    assert ("vllm-drop-last", "draft") not in found
    assert found["vllm-drop-last", "target"]["groups"] == ["target: all tokens", "draft: window 4,096"]
    assert found["target-21", "draft"]["host_pages"] == 0
    assert {row["layout"] for row in found.values()} == {"fused", "shared", "separate"}


def test_a_scenario_in_pages_has_pages_and_no_memory(kvtwin: Command) -> None:
    answer = kvtwin("capacity", "hello", "--builds", "unified")
    assert answer.code == 0
    assert "pools given in pages" in answer.out
    assert "window 8" in answer.out


def test_what_cannot_be_shown_is_one_line(kvtwin: Command) -> None:
    assert kvtwin("capacity").code == 2
    unknown = kvtwin("capacity", "s06_tp2", "--builds", "unifed")
    assert unknown.code == 2
    assert "did you mean 'unified'" in unknown.err
    missing = kvtwin("capacity", "s06_tp9")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
