"""The stage that trains the target: next-token prediction on the corpus."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from gpu_backend.modules.loader import load_target
from gpu_backend.modules.target import Target
from gpu_backend.train.dense import Passes, run_target
from gpu_backend.train.files import TARGET, TOKENS
from gpu_backend.train.fit import device_fits, target_fits, tokens_fit
from gpu_backend.train.optimiser import Optimiser, rate_at, start
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import Order, Say, Session, Texts, reduced, seed_of
from gpu_backend.train.tokens import HELD_IDS, IDS, load_ids

HELD_ROWS, HELD_BATCH = 32, 8


def train(order: Order, recipe: Recipe, say: Say) -> dict[str, Any]:
    """Train for the order's time and leave the weights; returns the progress."""
    session = Session(TARGET, order, ("step", "seconds", "loss"), say)
    tokens_fit(order.folder, recipe)
    texts = Texts(load_ids(order.folder), order.device, order.folder / TOKENS / IDS)
    held = Texts(load_ids(order.folder, HELD_IDS), order.device, order.folder / TOKENS / HELD_IDS)
    target = begin(session, recipe).to(order.device)
    device_fits(order.device, recipe)
    passes = Passes.on(order.device)
    loss_of = torch.compile(head_loss) if order.device.type == "cuda" else head_loss
    optimiser = Optimiser(target, recipe.muon, recipe.target_adam, recipe.target_decay)
    interrupted = False
    try:
        while not session.over():
            seed = seed_of(order.seed, session.number, 0)
            crops = texts.crops(recipe.target_rows, recipe.target_length + 1, seed)
            with reduced(order.device):
                states, _ = run_target(target, crops[:, :-1], passes)
                loss = loss_of(target, states, crops[:, 1:].flatten())
            loss.backward()
            optimiser.step(rate_at(session.progress, recipe.target_shape))
            session.stepped(recipe.log_every, lambda loss=loss: (loss.item(),))
    except KeyboardInterrupt:
        if session.steps == 0:
            raise
        interrupted = True  # what was learnt is kept
    loss = round(held_loss(target, held, recipe), 4)
    left = session.leave(target, recipe.target, recipe.told(of_target=True), held_out_loss=loss)
    if interrupted:
        raise KeyboardInterrupt
    say(f"target: held-out loss {left['held_out_loss']:g} after {left['steps']} step{'s' * (left['steps'] != 1)}")
    return left


def begin(session: Session, recipe: Recipe) -> Target:
    """The target that an earlier run left, or a new one."""
    if not session.find():
        target = Target(recipe.target)
        start(target, recipe.target.layers, session.order.seed)
        return target
    found = load_target(session.folder)
    target_fits(session.order.folder, found.config, recipe)
    return found.requires_grad_(True).train()


def head_loss(target: Target, states: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of ``wanted`` int64 ``[tokens]`` behind raw ``states`` ``[tokens, hidden]``."""
    (logits,) = target.head(target.model.norm(states))
    return F.cross_entropy(logits.float(), wanted)


@torch.no_grad()
def held_loss(target: Target, held: Texts, recipe: Recipe) -> float:
    """Loss on held-out text, the same crops each time."""
    length = min(recipe.target_length, len(held.ids) - 2)
    crops = held.crops(HELD_ROWS, length + 1, 0)
    losses = []
    for part in crops.split(HELD_BATCH):
        with reduced(part.device):
            states, _ = run_target(target, part[:, :-1], Passes())
            losses.append(head_loss(target, states, part[:, 1:].flatten()).item())
    return sum(losses) / len(losses)
