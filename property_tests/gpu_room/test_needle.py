"""A long prompt that is claimed answers as a cold run does, and not if a page early in it is another one."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.needle import Answered, asked, main, passed


def test_a_hit_gives_the_bits_of_a_cold_run(device: torch.device) -> None:
    sound = asked(512, 16, 128, 64, device.type, spoil=False)
    assert (sound.exit_code, sound.error, sound.codes) == (0, 0.0, ())
    assert sound.cached >= 512 - 16, "the hit was one"


def test_a_replaced_page_early_in_the_prompt_changes_the_answer(device: torch.device) -> None:
    spoiled = asked(512, 16, 128, 64, device.type, spoil=True)
    assert spoiled.error > 0
    assert (spoiled.exit_code, spoiled.codes) == (1, ("LOSSLESS", "SHADOW"))


@pytest.mark.parametrize("seen", [("LOSSLESS",), ("SHADOW",), ("LOSSLESS", "SHADOW")])
def test_a_law_that_does_not_see_other_bytes_fails_the_command(seen: tuple[str, ...]) -> None:
    sound = Answered(512, 0.0, (), 0)
    assert passed(sound, Answered(512, 0.1, seen, 1)) == (len(seen) == 2)
    assert not passed(sound, Answered(512, 0.1, seen, 0))
    assert not passed(sound, Answered(512, 0.0, seen, 1))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--lengths 256 47", "expected --lengths of at least 3 pages, found 47"),
        ("--lengths 256 --page 0", "argument --page: expected a whole number of at least 1, found '0'"),
        ("--lengths 256 --chunk -1", "argument --chunk: expected a whole number of at least 1"),
    ],
)
def test_sizes_that_cannot_be_are_usage(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--page", "16", "--device", "cpu", *words.split()])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_the_command_says_both(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--lengths", "256", "--page", "16", "--chunk", "64", "--window", "32", "--device", device.type]
    assert main(words) == 0
    assert "logits err by 0, with a page replaced by" in capsys.readouterr().out
