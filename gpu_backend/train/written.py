"""What the target wrote itself: on-policy sequences, kept in the training's folder for the drafters of all kinds.

A round is one array beside a manifest that names target, texts and frames of the prompts by their SHA-256; where one of
them is another, what is kept is thrown away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_backend.modules.target import Target
from gpu_backend.shipped.card import weights_in
from gpu_backend.train.arrays import read_ids, write_ids
from gpu_backend.train.chat import Requests
from gpu_backend.train.files import TARGET, WRITTEN, write_json
from gpu_backend.train.generate import generate
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import Session, Texts, seed_of
from scenarios.errors import InputError

MANIFEST = "written.json"
# Shares of a run's time: after the first no further round begins, after the second the one at work ends.
WRITING, ENDED = 0.25, 0.5


def sequences(target: Target, texts: Texts | Requests, session: Session, recipe: Recipe) -> torch.Tensor:
    """On-policy sequences int32 ``[sequences, length]``, ``length`` is prompt + new: those kept, and new rounds until
    there are as many as the recipe has.

    Where time is short, a first round ends with fewer tokens or sequences and is not kept; a later one that does is
    left out.
    """
    order = session.order
    folder = order.folder / WRITTEN
    manifest = kept(folder, identity(order.folder, texts, recipe), recipe.rounds)
    length = recipe.prompt + recipe.new
    rounds = [
        read_ids(folder / _name(number), "drafter", "sequences", (one.get("sequences"), length))
        for number, one in enumerate(manifest["rounds"])
    ]
    if rounds:
        session.say(f"{session.name}: {sum(map(len, rounds))} sequences of the target's own were there")
    found = [torch.from_numpy(ids.astype(np.int32)).to(order.device) for ids in rounds]
    degrees = torch.tensor(recipe.temperatures, device=order.device)
    temperature = degrees.repeat(recipe.on_policy // len(degrees) + 1)[: recipe.on_policy]
    for number in range(len(rounds), recipe.rounds):
        if found and session.spent(WRITING):
            break
        seed, begun = seed_of(order.seed, number, 1), time.monotonic()
        prompts = texts.crops(recipe.on_policy, recipe.prompt, seed)
        ids = generate(
            target, prompts, recipe.new, temperature, seed,
            over=lambda: session.spent(ENDED), every=recipe.stride,  # lengths are multiples of it
        ).int()  # fmt: skip
        whole = ids.shape == (recipe.on_policy, length)
        if found and not whole:
            break
        found.append(ids)
        content = ids.cpu().numpy()  # waits for the device
        took = round(time.monotonic() - begun, 1)
        own = ids.shape[1] - recipe.prompt
        session.say(f"{session.name}: {len(ids)} sequences with {own} tokens of the target's own in {took:g} s")
        if not whole:
            break
        manifest["rounds"].append({"seed": order.seed, "sequences": len(ids), "seconds": took})
        _keep(folder, manifest, content)
    return torch.cat(found)


def identity(folder: Path, texts: Texts | Requests, recipe: Recipe) -> dict[str, Any]:
    """What sequences are of: the target's weights, what prompts are made of, lengths, temperatures."""
    digest = hashlib.sha256()
    for path in weights_in(folder, [TARGET]):
        digest.update(path.read_bytes())
    return {
        "target": digest.hexdigest(),
        **texts.identity(),
        "prompt": recipe.prompt,
        "new": recipe.new,
        "temperatures": list(recipe.temperatures),
    }


def kept(folder: Path, wanted: dict[str, Any], most: int) -> dict[str, Any]:
    """The manifest in ``folder``, of ``most`` rounds, if it is of ``wanted``; else one without a round."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {**wanted, "rounds": []}
    except (OSError, ValueError) as error:
        raise InputError(str(path), 0, "", "is not JSON") from error
    rounds = found.pop("rounds", None) if isinstance(found, dict) else None
    if found != wanted or not isinstance(rounds, list) or not all(isinstance(one, dict) for one in rounds):
        path.unlink()  # first: what is left is of nothing that is known
        shutil.rmtree(folder, ignore_errors=True)
        return {**wanted, "rounds": []}
    return {**wanted, "rounds": rounds[:most]}


def _name(number: int) -> str:
    return f"round-{number}.npy"


def _keep(folder: Path, manifest: dict[str, Any], ids: np.ndarray) -> None:
    """Write the last round, then the manifest that tells of it."""
    write_ids(folder / _name(len(manifest["rounds"]) - 1), ids)
    write_json(folder / MANIFEST, manifest)
