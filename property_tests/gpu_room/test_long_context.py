"""A long prompt behind a windowed drafter without reuse: the drafter's pool holds a window, never the prompt."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.long_context import main, pages_of_window, windowed


def test_the_drafters_pool_holds_no_more_than_window_trail_and_chunk(device: torch.device) -> None:
    short, long = (windowed(length, 32, 4, 64, device.type) for length in (256, 512))
    assert short.fine and long.fine
    assert long.prefilled == 512 and long.steps > short.steps
    assert short.peak == long.peak, "twice the prompt needs no more pages"
    assert long.peak > 32 // 4, "the bound is one of a pool that is in use"


def test_a_mirror_that_follows_the_prompt_holds_more(device: torch.device) -> None:
    found = windowed(512, 32, 4, 64, device.type, build="mirror-legacy")
    assert found.peak > found.bound == pages_of_window(32, 64, 4) and not found.fine


def test_the_command_says_each_length(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--lengths", "256", "--window", "32", "--page", "4", "--chunk", "64", "--device", device.type]
    assert main(words) == 0
    assert "256 tokens in" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["--page 0", "--window 0", "--lengths x"])
def test_sizes_that_cannot_be_are_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", *words.split()])
    assert ended.value.code == 2
    assert "expected a whole number of at least 1" in capsys.readouterr().err
