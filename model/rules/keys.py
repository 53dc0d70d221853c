"""Rule *keys*: what a page is keyed on, and how a drafter's lookahead D enters a match.

With raw keys every match is trimmed by D: the trailing D matched tokens are evidence for the cells before them. That
is not enough where two prompts part exactly at a page end: both share the node, but the last D cells of its page were
computed with the publisher's next tokens. So a page remembers those (``behind``) and a reader who differs may not
claim the cells that depend on them.

With the shifted stream (18093) item ``i`` of the key stream is token ``i + D`` and the first one digests tokens
``0..D``, so that a match needs no trimming and the last D positions have no key at all. Both claim ``max(c - D, 0)``
of a common prefix of ``c`` tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from model.config import Scope
from model.tokens import TokenStream, mix64, mix64_array, named_seed


class KeyView:
    """Keys of one prompt in one manager: ``items`` (memoryview of int64) and a 64-bit key for each full block."""

    __slots__ = (
        "_shift",
        "_stream",
        "ahead",
        "checks_evidence",
        "covers_lookahead",
        "draft",
        "evidence",
        "items",
        "keeps_evidence",
        "keyed",
        "keys",
        "length",
        "mask",
        "page_size",
        "partial",
        "prompt_length",
        "seed",
    )

    def __init__(self, stream: TokenStream, length: int, shift: int, evidence: int, page_size: int, seed: int) -> None:
        self._stream = stream
        self._shift = shift
        self.ahead = shift  # tokens behind a block that its key depends on
        self.evidence = evidence  # tokens trimmed off every match
        self.draft: KeyView | None = None  # the drafter's own view, where it is another one
        self.checks_evidence = evidence > 0
        self.keeps_evidence = True  # a limit set by the partner leaves the evidence behind it
        self.covers_lookahead = shift > 0  # keys that see the following tokens need no evidence beside them
        self.keyed = length  # leading tokens that the keys are made of
        self.prompt_length = length
        self.length = max(0, length - shift)
        self.page_size = page_size
        self.partial = True  # whether a block may match in part
        self.seed = seed
        self.mask = (1 << 64) - 1  # bits of a key that are kept
        tokens = stream.tokens(shift, length).astype(np.int64)
        if shift and self.length:
            tokens[0] = np.int64(np.uint64(stream.sums(shift, shift + 1)[0]).astype(np.int64))
        self.items = memoryview(tokens)
        ends = stream.sums(0, length)[shift + page_size - 1 :: page_size]
        self.keys: list[int] = mix64_array(ends ^ np.uint64(seed)).tolist()

    def key(self, block: int, items: int) -> int:
        """Key of ``block`` when it holds ``items`` key items."""
        if items == self.page_size:
            return self.keys[block]
        last = block * self.page_size + items - 1 + self._shift
        return mix64(int(self._stream.sums(last, last + 1)[0]) ^ self.seed) & self.mask

    def block_items(self, block: int, items: int) -> bytes:
        """The first ``items`` key items of ``block`` as int64 bytes."""
        begin = block * self.page_size
        return self.items[begin : begin + items].tobytes()

    def behind(self, block: int, items: int, span: int) -> bytes:
        """Up to ``span`` key items (int64 bytes) that follow the first ``items`` of ``block``.

        A page's last ``span`` drafter cells were computed with these: whoever claims them has to agree on them.
        """
        if not span or self.covers_lookahead:
            return b""
        begin = block * self.page_size + items
        return self.items[begin : min(self.length, begin + span)].tobytes()

    def lookup(self, limit: int | None) -> int:
        """Key items to look up so that the claim is at most ``limit`` and the last prompt token is computed."""
        length = min(self.length, self.prompt_length - 1 + self.evidence)
        behind = self.evidence if self.keeps_evidence else 0
        return length if limit is None else min(length, limit + behind if limit > 0 else 0)

    def trim(self, matched: int) -> int:
        """Tokens that may be claimed when ``matched`` key items agree."""
        return max(0, matched - self.evidence)


class KeysRule(Protocol):
    """Builds the key view of a prompt."""

    @property
    def name(self) -> str:
        """Name of the answer."""
        ...

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        """Keys of the first ``length`` tokens of ``stream`` for a drafter with this lookahead."""
        ...


def scope_seed(kind: str, scope: Scope) -> int:
    """Root of the key space of a scope; typed, so an adapter and a salt of one name stay apart."""
    return named_seed(kind, scope.adapter, "salt", scope.salt, "target", scope.target_weights, scope.draft_weights)


@dataclass(frozen=True, slots=True)
class MatchBackoff:
    """Raw prompt tokens; a match is trimmed by D (merged upstream)."""

    name: str = "match-backoff"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        return KeyView(stream, length, 0, lookahead, page_size, scope_seed("raw", scope))


@dataclass(frozen=True, slots=True)
class TrimOnly:
    """Wrong where prompts part at a page end: trims by D, but trusts a page whose publisher went on differently."""

    name: str = "trim-only"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, lookahead, page_size, scope_seed("raw", scope))
        view.checks_evidence = False
        return view


@dataclass(frozen=True, slots=True)
class NarrowKeys:
    """Wrong: keys of ``bits`` bits, and no token is compared when one is found."""

    name: str = "narrow-keys"
    bits: int = 12

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, lookahead, page_size, scope_seed("raw", scope))
        view.mask = (1 << self.bits) - 1
        view.keys = [key & view.mask for key in view.keys]
        return view


@dataclass(frozen=True, slots=True)
class TargetTrims:
    """Wrong: only the target's matches are trimmed by D; the drafter's manager knows no back-off."""

    name: str = "target-trims"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, lookahead, page_size, scope_seed("raw", scope))
        view.draft = KeyView(stream, length, 0, 0, page_size, scope_seed("raw", scope))
        return view


@dataclass(frozen=True, slots=True)
class EvidenceCut:
    """Wrong: a partner's limit cuts the lookup without the D tokens of evidence behind it, and they come off again."""

    name: str = "evidence-cut"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, lookahead, page_size, scope_seed("raw", scope))
        view.keeps_evidence = False
        return view


@dataclass(frozen=True, slots=True)
class ShiftedStream:
    """The stream shifted by D with a leading digest (18093); the last D positions are never published."""

    name: str = "shifted-stream"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        kind = "raw" if lookahead == 0 else f"shifted-{lookahead}"
        return KeyView(stream, length, lookahead, 0, page_size, scope_seed(kind, scope))


@dataclass(frozen=True, slots=True)
class PaddedShift:
    """Wrong: the last D items of the shifted stream, whose tokens do not exist yet, are made of zeros and published."""

    name: str = "padded-shift"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        zeros = np.zeros(lookahead, dtype=np.uint32)
        padded = TokenStream(np.concatenate((stream.tokens(0, length), zeros)), lambda start, count: zeros[:0])
        kind = "raw" if lookahead == 0 else f"shifted-{lookahead}"
        return KeyView(padded, length + lookahead, lookahead, 0, page_size, scope_seed(kind, scope))


@dataclass(frozen=True, slots=True)
class LookaheadHash:
    """A block's hash also covers the D tokens behind it (vLLM): whole blocks only, hashed once those tokens exist."""

    name: str = "lookahead-hash"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, 0, page_size, scope_seed(f"ahead-{lookahead}", scope))
        ends = stream.sums(0, length)[lookahead + page_size - 1 :: page_size]
        view.keys = mix64_array(ends ^ np.uint64(view.seed)).tolist()
        view.length = len(view.keys) * page_size
        view.partial = False
        view.covers_lookahead = True
        view.ahead = lookahead
        return view


@dataclass(frozen=True, slots=True)
class WholeBlocks:
    """Raw tokens of whole blocks, no partial match and no lookahead in the key (vLLM without lookahead hashes)."""

    name: str = "whole-blocks"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        view = KeyView(stream, length, 0, 0, page_size, scope_seed("raw", scope))
        view.partial = False
        return view


@dataclass(frozen=True, slots=True)
class RawKeys:
    """Wrong for D > 0: raw tokens and no trimming, so a drafter cell is shared past the evidence for it."""

    name: str = "raw-keys"

    def view(self, stream: TokenStream, length: int, scope: Scope, lookahead: int, page_size: int) -> KeyView:
        return KeyView(stream, length, 0, 0, page_size, scope_seed("raw", scope))
