"""A long prompt that is claimed answers as a cold run does, and not if a page early in it is another one."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.needle import asked, main


def test_a_hit_gives_the_bits_of_a_cold_run(device: torch.device) -> None:
    sound = asked(512, 16, 128, 64, device.type, spoil=False)
    assert (sound.exit_code, sound.error, sound.codes) == (0, 0.0, ())
    assert sound.cached >= 512 - 16, "the hit was one"


def test_a_replaced_page_early_in_the_prompt_changes_the_answer(device: torch.device) -> None:
    assert asked(512, 16, 128, 64, device.type, spoil=True).error > 0


def test_the_command_says_both(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--lengths", "256", "--page", "16", "--chunk", "64", "--window", "32", "--device", device.type]
    assert main(words) == 0
    assert "logits err by 0, with a page replaced by" in capsys.readouterr().out
