"""The stage that trains a drafter of any kind: on what its target writes, and on as much raw text."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch.nn import functional as F

from gpu_backend.modules.loader import drafter_config_of, load_target, target_config_of
from gpu_backend.modules.target import Target, place_for_inference
from gpu_backend.modules.weights import read_weights
from gpu_backend.shipped.card import DRAFTERS
from gpu_backend.train.chat import Requests, read_chat
from gpu_backend.train.dense import Passes
from gpu_backend.train.files import PROGRESS, TARGET, TOKENS, read_bytes, recover
from gpu_backend.train.fit import device_fits, target_fits, tokens_fit
from gpu_backend.train.kinds import KINDS
from gpu_backend.train.kinds.base import Kind
from gpu_backend.train.optimiser import Optimiser, rate_at
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import Order, Say, Session, Texts, reduced, seed_of
from gpu_backend.train.tokens import IDS, load_ids
from gpu_backend.train.written import sequences
from scenarios.errors import InputError

COLUMNS = ("step", "seconds", "loss", "token_loss", "teacher_forced_length")


def train(order: Order, recipe: Recipe, say: Say, name: str = "dflash") -> dict[str, Any]:
    """Train the drafter of kind ``name`` for the order's time and leave the weights; returns the progress."""
    kind = KINDS[name]
    session = Session(DRAFTERS[name], order, COLUMNS, say)
    tokens_fit(order.folder, recipe)
    texts = Texts(load_ids(order.folder), order.device, order.folder / TOKENS / IDS)
    recover(order.folder / TARGET)
    read_bytes(order.folder / TARGET / PROGRESS, "target")
    target_fits(order.folder, target_config_of(order.folder / TARGET), recipe)
    target = load_target(order.folder / TARGET, kind.config(recipe).taps)
    wide = order.device.type != "cuda"  # where nothing is reduced, both compute in the drafter's dtype
    place_for_inference(target, order.device, torch.float32 if wide else target.config.dtype)
    drafter, more = begin(session, kind, recipe, target)
    device_fits(order.device, recipe)
    drafter = drafter.to(order.device)
    prompts = Requests(read_chat(order.folder), texts) if recipe.instruct else texts
    written = sequences(target, prompts, session, recipe)
    passes = Passes.on(order.device)
    loss_of = torch.compile(loss_behind) if order.device.type == "cuda" else loss_behind
    optimiser = Optimiser(drafter, recipe.muon, recipe.drafter_adam)
    peak = recipe.again if session.number and order.schedule is None else 1.0
    interrupted = False
    try:
        while not session.over():
            ids, own = batch(written, texts, recipe, order.seed, session.number, kind.joined(recipe))
            with reduced(order.device):
                slots = kind.slots(target, drafter, ids, own, recipe, passes)
                loss, *told = loss_of(*slots, recipe.distillation, recipe.slots)
            loss.backward()
            optimiser.step(peak * rate_at(session.progress, recipe.drafter_shape))
            values = (loss, *told)
            session.stepped(recipe.log_every, lambda values=values: tuple(value.item() for value in values))
    except KeyboardInterrupt:
        if session.steps == 0:
            raise
        interrupted = True  # what was learnt is kept
    left = session.leave(
        drafter, kind.config(recipe), recipe.told(), kind=name, on_policy_sequences=len(written), **more
    )
    if interrupted:
        raise KeyboardInterrupt
    return left


def begin(session: Session, kind: Kind, recipe: Recipe, target: Target) -> tuple[Any, dict[str, Any]]:
    """The drafter that an earlier run left, or a new one, on the CPU; and what is to be told of its first weights."""
    config = kind.config(recipe)
    drafter = kind.module(config)
    if session.find():
        found = drafter_config_of(session.folder, target.config)
        if found != config:
            raise InputError(str(session.folder), 0, "config.json", "expected the shape of this --size, found another")
        drafter.load_state_dict(read_weights(session.folder, drafter.state_dict(), torch.float32))
        return drafter, {name: session.past[name] for name in ("began_with",) if name in session.past}
    return drafter, kind.begin(drafter, target, session.order.folder, session.order.seed)


def batch(
    written: torch.Tensor, texts: Texts, recipe: Recipe, seed: int, step: int, joined: int = 1
) -> tuple[torch.Tensor, int]:
    """Rows int64 ``[rows, length]``, and how many of them, the first ones, are the target's own writing; the others are
    raw text.

    ``joined`` sequences stand in a row. They begin a little later now and then, so that a grid of anchors meets every
    place.
    """
    rows, length = recipe.drafter_rows // joined, written.shape[1] - recipe.stride
    own = rows - round(rows * recipe.raw)
    draw = torch.Generator(device=written.device).manual_seed(seed_of(seed, step, 2))
    chosen = torch.randint(0, len(written), (own * joined,), device=written.device, generator=draw)
    first = random.Random(seed_of(seed, step, 4)).randrange(recipe.stride)
    ids = written[chosen, first : first + length].long().view(own, joined * length)
    return torch.cat([ids, texts.crops(rows - own, joined * length, seed_of(seed, step, 3))]), own


def loss_behind(
    hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, wanted: torch.Tensor, distilled: float, slots: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of :class:`~gpu_backend.train.kinds.base.Slots`, its share by the token alone, and the acceptance length
    behind true tokens.

    Slot k weighs ``exp(-(k - 1) / slots)``: it counts only where those before it were accepted.
    """
    likely = F.linear(hidden, head.to(hidden.dtype)).float().log_softmax(-1)
    by_token = -likely.gather(-1, labels[..., None])[..., 0]
    wide = wanted.float()
    by_target = -(wide.softmax(-1) * likely).sum(-1)
    weight = torch.exp(-torch.arange(labels.shape[-1], device=hidden.device) / slots)
    weight = weight / weight.sum()
    agreed = (likely.argmax(-1) == wide.argmax(-1)).float().cumprod(-1).sum(-1).mean() + 1
    loss = (((1 - distilled) * by_token + distilled * by_target) * weight).sum(-1).mean()
    return loss, (by_token.detach() * weight).sum(-1).mean(), agreed.detach()
