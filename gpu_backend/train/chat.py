"""Prompts of an instruct model: a user asks for something about a piece of source text (ChatML)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_backend.train.files import TOKENS, read_json, write_json
from gpu_backend.train.session import Texts
from scenarios.errors import InputError

CHAT = "chat.json"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # as the model's own template begins
USER, ASSISTANT = "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
OPENING = f"<|im_start|>system\n{SYSTEM}{USER}"
ASKED = {  # what stands before and behind the source text
    "explain": ("Explain step by step what this Python code does.\n\n```python\n", "\n```"),
    "rewrite": ("Rewrite this Python code with type hints. Answer with the code alone.\n\n```python\n", "\n```"),
    "bugs": ("Find the bugs in this Python code and show the corrected version.\n\n```python\n", "\n```"),
    "tests": ("Here is some Python code.\n\n```python\n", "\n```\n\nWrite unit tests for it."),
}


@dataclass(frozen=True, slots=True)
class Chat:
    """Frames as ids: before and behind the text of a first prompt, by kind; of a later turn; ids that no text has."""

    kinds: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    turn: tuple[tuple[int, ...], tuple[int, ...]]
    control: tuple[int, ...]


def write_chat(folder: Path, tokenizer: Any) -> Chat:
    """Leave the frames, as ``tokenizer`` encodes them, in ``folder``."""

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    kinds = tuple((ids(OPENING + before), ids(behind + ASSISTANT)) for before, behind in ASKED.values())
    control = tuple(sorted(tokenizer.get_added_tokens_decoder()))
    chat = Chat(kinds, (ids(USER), ids(ASSISTANT)), control)
    write_json(folder / TOKENS / CHAT, {"kinds": chat.kinds, "turn": chat.turn, "control": chat.control})
    return chat


def read_chat(folder: Path) -> Chat:
    """The frames in ``folder``."""
    told = read_json(folder / TOKENS / CHAT, "tokenizer")
    try:
        kinds = tuple((tuple(before), tuple(behind)) for before, behind in told["kinds"])
        before, behind = told["turn"]
        return Chat(kinds, (tuple(before), tuple(behind)), tuple(told["control"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            str(folder / TOKENS / CHAT), 0, "", "expected kinds, turn and control of a dialogue"
        ) from error


class Requests:
    """A user's requests about crops of a training text, in the place of the crops themselves."""

    def __init__(self, chat: Chat, texts: Texts) -> None:
        self.chat, self.texts, self.device = chat, texts, texts.ids.device
        self.kinds = [tuple(torch.tensor(frame, device=self.device) for frame in kind) for kind in chat.kinds]
        self.control = torch.tensor(chat.control, device=self.device)

    def identity(self) -> dict[str, str]:
        """What requests are made of, by its SHA-256."""
        frames = repr((self.chat.kinds, self.chat.control)).encode()
        return self.texts.identity() | {"frames": hashlib.sha256(frames).hexdigest()}

    def crops(self, count: int, length: int, seed: int) -> torch.Tensor:
        """``count`` prompts int64 ``[count, length]``, as many of each kind, around texts that ``seed`` draws."""
        found = []
        for number, (before, behind) in enumerate(self.kinds):
            own = len(range(number, count, len(self.kinds)))
            text = self._text(own, length - len(before) - len(behind), seed * len(self.kinds) + number)
            found.append(torch.cat([before.expand(own, -1), text, behind.expand(own, -1)], 1))
        return torch.cat(found)

    def _text(self, count: int, length: int, seed: int) -> torch.Tensor:
        """Crops of single files, as far as there are enough among twice as many."""
        drawn = self.texts.crops(2 * count, length, seed)
        mixed = torch.isin(drawn, self.control).any(1)
        return drawn[mixed.int().argsort(stable=True)[:count]]


def cut_requests(chat: Chat, held: dict[str, np.ndarray], length: int, count: int) -> list[dict[str, Any]]:
    """At most ``count`` prompts of ``length`` tokens about held-out files, kind by kind in turn: the head of each file,
    then second pieces, and so on. The last ``end`` ids of a prompt stand behind its text."""
    widest = length - max(len(before) + len(behind) for before, behind in chat.kinds)
    if widest < 1:
        raise InputError("chat", 0, "eval_prompt", f"expected room for a text in {length} tokens, found none")
    found: list[dict[str, Any]] = []
    control = np.array(chat.control)
    for piece in range(max(map(len, held.values())) // widest):
        for name in sorted(held):
            before, behind = chat.kinds[len(found) % len(chat.kinds)]
            own = length - len(before) - len(behind)
            text = held[name][1 + piece * own : 1 + (piece + 1) * own]  # behind the id that ends the file before
            if len(text) < own or len(found) == count or np.isin(text, control).any():
                continue
            ids = [*before, *text.tolist(), *behind]
            name_of = hashlib.sha256(np.array(ids).astype("<u2").tobytes()).hexdigest()[:16]
            found.append({"name": name_of, "file": name, "first": 1 + piece * own, "ids": ids, "end": len(behind)})
    return found
