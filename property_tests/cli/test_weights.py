"""``kvtwin weights``: a training becomes a folder that is shipped, and no damaged file of it is opened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpu_backend.shipped.card import TARGET, card_of
from gpu_backend.shipped.pack import MOST_FILE, MOST_PAIR, require_sizes
from property_tests.cli.conftest import Command
from scenarios.errors import InputError

TINY = Path(__file__).parents[1] / "gpu_room" / "tiny_pair"


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A folder as a training leaves it: the tiny pair with the course of its losses, and a tokenizer."""
    folder = tmp_path / "training"
    shutil.copytree(TINY, folder)
    (folder / "tokens" / "tokenizer.json").write_text("{}")
    curve = {"columns": ["step", "seconds", "loss"], "curve": [[1, 0.1, 6.0], [50, 2.0, 3.5]]}
    for part in ("target", "drafter"):
        (folder / part / "progress.json").write_text(json.dumps(curve))
    return folder


def test_a_training_is_shipped_whole_and_can_be_shipped_again(kvtwin: Command, training: Path, tmp_path: Path) -> None:
    for source in (training, tmp_path / "t9"):
        answer = kvtwin("weights", source, "--out", tmp_path / ("t9" if source == training else "again"))
        assert answer.code == 0, answer.err
        assert "target/model.safetensors" in answer.out and "as on the card" in answer.out
    shipped = tmp_path / "t9"
    told = kvtwin("weights", shipped, "--json").json()
    assert told["files"].keys() == card_of(shipped)["sha256"].keys() == card_of(tmp_path / "again")["sha256"].keys()
    assert {"tokens/tokenizer.json", "drafter/config.json"} <= told["files"].keys()
    assert not list(shipped.rglob("progress.json")), "the course of the losses is a picture"
    assert (shipped / "curves.png").read_bytes().startswith(b"\x89PNG")
    names = json.loads((shipped / "tokens" / "prompt_names.json").read_text())
    assert names["prompts"][0].keys() == {"name", "file", "first"} and names["python"] == "3.11.7"
    page = (shipped / "README.md").read_text()
    assert page.startswith("# Weights of tier T9") and "| annotated-doc | 0.0.7 | MIT | 1 |" in page
    assert all(f"| {name} | `{digest}` |" in page for name, digest in told["sha256"].items())
    assert "another recipe" not in page


def test_the_page_tells_runs_of_another_recipe_and_a_target_of_others_has_no_losses(
    kvtwin: Command, training: Path, tmp_path: Path
) -> None:
    card = json.loads((training / "card.json").read_text())
    runs = [{"steps": 3718, "recipe": {"raw": 0.5, "paths": False}}, {"steps": 2, "recipe": {}}, {"steps": 9}]
    card["drafter"]["runs"] = runs
    (training / "card.json").write_text(json.dumps(card))
    (training / "target/progress.json").write_text('{"model": "of a wheel"}')
    assert kvtwin("weights", training, "--out", tmp_path / "t9").code == 0
    page = (tmp_path / "t9/README.md").read_text()
    assert "* run 1 of drafter, 3,718 steps, had another recipe: raw 0.5, paths False\n" in page
    assert page.count("another recipe") == 1
    (training / "drafter/progress.json").write_text("{")
    answer = kvtwin("weights", training, "--out", tmp_path / "again")
    assert answer.code == 2 and "drafter/progress.json: is not JSON" in answer.err and not (tmp_path / "again").exists()


@pytest.mark.parametrize("part", ["target", "drafter"])
@pytest.mark.parametrize("command", [("weights",), ("al", "--device", "cpu", "--weights")])
def test_a_damaged_file_is_one_line(
    kvtwin: Command, training: Path, tmp_path: Path, command: tuple[str, ...], part: str
) -> None:
    shipped = tmp_path / "t9"
    assert kvtwin("weights", training, "--out", shipped).code == 0
    path = shipped / part / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    answer = kvtwin(*command, shipped)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert f"{part}/model.safetensors: expected the file on card.json, SHA-256 " in answer.err
    content[-1] ^= 1
    path.write_bytes(content)
    other = path.with_name("model-00001-of-00001.safetensors")
    shutil.copy(path, other)
    answer = kvtwin(*command, shipped)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert f"{other}: expected no weights beside those on card.json" in answer.err
    other.unlink()
    path.unlink()
    answer = kvtwin(*command, shipped)
    assert answer.code == 2 and f"{part}/model.safetensors: cannot be read: " in answer.err


def test_what_is_no_training_is_one_line(kvtwin: Command, training: Path, tmp_path: Path) -> None:
    assert "expected a folder with card.json in it" in kvtwin("weights", tmp_path / "nowhere").err
    (training / "tokens" / "tokenizer.json").unlink()
    answer = kvtwin("weights", training, "--out", tmp_path / "t9")
    assert answer.code == 2 and "tokens/tokenizer.json: expected what `kvtwin train` writes" in answer.err
    (training / "card.json").write_text('{"sha256": []}')
    answer = kvtwin("weights", training)
    assert answer.code == 2 and "card.json: sha256: expected a mapping from files to their SHA-256" in answer.err
    assert not (tmp_path / "t9").exists()


def test_files_that_are_too_large_are_not_shipped(tmp_path: Path) -> None:
    half = MOST_PAIR // 2
    require_sizes(tmp_path, {"target/a": MOST_FILE, "drafter/b": MOST_FILE, "drafter-mtp/c": 1})
    with pytest.raises(InputError, match="target/a: expected at most 15,728,640 bytes a file, found 15,728,641"):
        require_sizes(tmp_path, {"target/a": MOST_FILE + 1})
    pair = {f"{TARGET}/{part}": half // 2 for part in "ab"} | {f"drafter/{part}": half // 2 for part in "ab"}
    require_sizes(tmp_path, pair)
    with pytest.raises(InputError, match="at most 40,000,000 bytes of target and drafter, found 40,000,001"):
        require_sizes(tmp_path, pair | {"drafter/c": 1})
    more = {f"drafter-mtp/{part}": MOST_FILE for part in "ab"}
    with pytest.raises(InputError, match="at most 56,000,000 bytes of all weights"):
        require_sizes(tmp_path, pair | more)


def test_a_card_that_passes_over_weights_is_refused(kvtwin: Command, training: Path, tmp_path: Path) -> None:
    shipped = tmp_path / "t9"
    assert kvtwin("weights", training, "--out", shipped).code == 0
    card = card_of(shipped)
    told = {
        "drafter/model.safetensors": "expected no weights beside those on card.json",
        "target/config.json": "expected a configuration that is on card.json, found one that is not",
    }
    for name, problem in told.items():
        hashes = {file: digest for file, digest in card["sha256"].items() if file != name}
        (shipped / "card.json").write_text(json.dumps(card | {"sha256": hashes}))
        for command in (("weights",), ("al", "--device", "cpu", "--weights")):
            answer = kvtwin(*command, shipped)
            assert (answer.code, answer.err) == (2, f"kvtwin: {shipped / name}: {problem}\n")
    hashes = {file: digest for file, digest in card["sha256"].items() if not file.startswith("drafter/")}
    (shipped / "card.json").write_text(json.dumps(card | {"sha256": hashes}))
    assert told["drafter/model.safetensors"] in kvtwin("weights", shipped).err, "nor may a whole drafter be left out"
    for part in ("target", "drafter"):
        shutil.rmtree(shipped / part)
    (shipped / "card.json").write_text('{"sha256": {}}')
    assert "card.json: sha256: expected files of weights, found none" in kvtwin("weights", shipped).err
