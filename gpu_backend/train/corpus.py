"""The corpus: Python source text of the standard library and of installed packages under an allowed licence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from gpu_backend.shipped.card import digest_of
from gpu_backend.train.files import make_folder, write_whole
from gpu_backend.train.licences import licence_of
from scenarios.errors import InputError
from scenarios.jsonfile import load_mapping

LEAST_BYTES, MOST_BYTES, LONGEST_MEAN_LINE = 400, 1_500_000, 200
SEPARATOR = b"\0"  # between files; Python sources hold none
TRAIN, HELD, MANIFEST = "train.txt", "held.txt", "manifest.json"
DIGESTS = {TRAIN: "sha256", HELD: "held_out_sha256"}  # in the manifest
# Standard-library modules that nothing is trained on. Folders and files of these names are left out everywhere else,
# since a copy may be among the packages.
_NAMES = (
    *("argparse", "asyncio", "concurrent", "configparser", "ctypes", "curses", "dataclasses", "difflib", "doctest"),
    *("email", "fractions", "ftplib", "http", "idlelib", "imaplib", "inspect", "json", "logging", "mailbox"),
    *("multiprocessing", "optparse", "pdb", "pickle", "plistlib", "socketserver", "statistics", "subprocess"),
    *("tarfile", "turtle", "typing", "unittest", "xml", "zipfile"),
)
HELD_OUT = frozenset(_NAMES)
STDLIB = "the standard library"
# Copies of other packages have licences of their own, which their host's metadata does not tell.
COPIES = frozenset({"_vendor", "_vendored", "vendor", "vendored", "extern", "externals", "third_party"})


@dataclass(slots=True)
class Source:
    """One package: its files, and what was taken of them."""

    name: str
    version: str
    licence: str
    root: Path
    files: list[Path]
    taken: int = 0
    size: int = 0
    held: int = 0


@dataclass(slots=True)
class Corpus:
    """Texts in the order of their content's hash; names are ``PACKAGE/PATH``."""

    train: list[bytes] = field(default_factory=list)
    held: list[tuple[str, bytes]] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def installed() -> tuple[list[Source], list[str]]:
    """The standard library and the packages of this Python; the names of those whose licence is not allowed."""
    found = [standard_library()]
    refused = set()
    packages = {str(package.metadata["Name"]).lower(): package for package in distributions()}
    for _, package in sorted(packages.items()):
        name, licence = str(package.metadata["Name"]), licence_of(package)
        if licence is None:
            refused.add(f"{name} {package.version}")
        else:
            own = Path(str(package.locate_file("")))
            found.append(Source(name, package.version, licence, own, _files_of(package, own)))
    return found, sorted(refused)


def standard_library() -> Source:
    """The standard library of this Python."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.parts]
    files = [path for path in files if "dist-packages" not in path.parts and not COPIES & set(path.parts)]
    return Source(STDLIB, platform.python_version(), "PSF-2.0", root, files)


def held_texts() -> Iterator[tuple[str, bytes]]:
    """Names and texts of the standard library's files that are held out, each content once."""
    source, seen = standard_library(), set[bytes]()
    for _, path, text in _texts([source], held=True):
        if text not in seen:
            seen.add(text)
            yield str(path.relative_to(source.root)), text


def _files_of(package: Distribution, root: Path) -> list[Path]:
    paths = [root / str(file) for file in package.files or [] if str(file).endswith(".py")]
    return sorted(path for path in paths if ".." not in path.parts and not COPIES & set(path.parts))


def gather(sources: list[Source], refused: list[str]) -> Corpus:
    """Read ``sources``; files of the same content count once. Held-out ones come first, wherever they lie, so that no
    copy of them under another name is trained on."""
    corpus = Corpus(sources=sources, refused=refused)
    seen: set[bytes] = set()
    kept: list[tuple[bytes, bytes]] = []
    for source, path, text in _texts(sources, held=True):
        digest = hashlib.sha256(text).digest()
        if digest not in seen and source.name == STDLIB:
            source.held += 1
            corpus.held.append((f"{path.relative_to(source.root)}", text))
        seen.add(digest)
    for source, _, text in _texts(sources, held=False):
        digest = hashlib.sha256(text).digest()
        if digest not in seen:
            seen.add(digest)
            source.taken += 1
            source.size += len(text)
            kept.append((digest, text))
    corpus.train = [text for _, text in sorted(kept)]
    return corpus


def is_held(path: Path) -> bool:
    """Whether a folder or the file itself has the name of a held-out module, or is its test."""
    names = [*path.parts[:-1], path.stem]
    return any(name.lower().removeprefix("test_").strip("_") in HELD_OUT for name in names)


def _texts(sources: list[Source], *, held: bool) -> Iterator[tuple[Source, Path, bytes]]:
    """Files of held-out names, or the others, that read like source text: neither fragments, nor tables, nor in
    another encoding."""
    for source, path in ((one, path) for one in sources for path in one.files):
        if is_held(path.relative_to(source.root)) != held:
            continue
        try:
            text = path.read_bytes()
            if not LEAST_BYTES <= len(text) <= MOST_BYTES or SEPARATOR in text:
                continue
            wide = text.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(wide) <= LONGEST_MEAN_LINE * (wide.count("\n") + 1):
            yield source, path, text


def build(folder: Path, *, most_files: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Write the corpus of this Python to ``folder``; returns its manifest. ``most_files`` takes so many of
    each package by chance, and as many held-out ones.

    ``InputError`` for texts in ``folder`` that are not those of its manifest: they are somebody else's.
    """
    require_own(folder)
    sources, refused = installed()
    if most_files is not None:
        draw = random.Random(seed)
        for source in sources:
            kinds: tuple[list[Path], list[Path]] = ([], [])
            for path in source.files:
                kinds[is_held(path.relative_to(source.root))].append(path)
            source.files = sorted(path for kind in kinds for path in draw.sample(kind, min(most_files, len(kind))))
    corpus = gather(sources, refused)
    if not corpus.train or not corpus.held:
        raise InputError(str(folder), 0, "corpus", "expected texts to train on and texts held out, found too few")
    return write(folder, corpus)


def write(folder: Path, corpus: Corpus) -> dict[str, Any]:
    """Write ``corpus`` to ``folder``, in the place of one that is there; returns its manifest."""
    held = (part for name, text in corpus.held for part in (name.encode(), text))
    texts = {TRAIN: SEPARATOR.join(corpus.train), HELD: SEPARATOR.join(held)}
    manifest = manifest_of(corpus, {DIGESTS[name]: hashlib.sha256(text).hexdigest() for name, text in texts.items()})
    make_folder(folder)
    for name in texts:
        (folder / name).unlink(missing_ok=True)
    # Ahead of the texts, so that whatever a kill leaves of them is the manifest's.
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    for name, text in texts.items():
        write_whole(folder / name, text)
    return manifest


def require_own(folder: Path) -> None:
    """``InputError`` for a file of texts in ``folder`` that is not the one its manifest tells by its SHA-256."""
    told: dict[str, Any] = {}
    with contextlib.suppress(InputError):  # none, or none of this stage's
        told = load_mapping(folder / MANIFEST)
    for name, key in DIGESTS.items():
        path = folder / name
        if path.exists() and digest_of(path) != told.get(key):
            problem = f"expected the file on {MANIFEST}, or none: `kvtwin train corpus` replaces only what it wrote"
            raise InputError(str(path), 0, "", problem)


def manifest_of(corpus: Corpus, digests: dict[str, str]) -> dict[str, Any]:
    """Packages with versions, licences, files and bytes; what was held out and what was refused; ``digests``."""
    return {
        "python": platform.python_version(),
        "files": len(corpus.train),
        "bytes": sum(map(len, corpus.train)),
        **digests,
        "held_out_modules": sorted(HELD_OUT),
        "held_out_files": len(corpus.held),
        "held_out_bytes": sum(len(text) for _, text in corpus.held),
        "packages": [
            {"name": one.name, "version": one.version, "licence": one.licence, "files": one.taken, "bytes": one.size}
            for one in corpus.sources
            if one.taken
        ],
        "refused": corpus.refused,
    }
