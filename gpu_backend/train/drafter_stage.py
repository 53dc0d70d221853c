"""The stage that trains the drafter: on what its target writes, and on as much raw text."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from gpu_backend.modules.drafter import Drafter
from gpu_backend.modules.loader import drafter_config_of, load_target, target_config_of
from gpu_backend.modules.target import Target, place_for_inference
from gpu_backend.modules.weights import read_weights
from gpu_backend.train.dense import Passes, anchors_of, run_blocks, run_target
from gpu_backend.train.files import DRAFTER, PROGRESS, TARGET, TOKENS, read_bytes, recover
from gpu_backend.train.fit import target_fits, tokens_fit
from gpu_backend.train.generate import generate
from gpu_backend.train.optimiser import Optimiser, rate_at, start
from gpu_backend.train.recipe import Recipe
from gpu_backend.train.session import Order, Say, Session, Texts, reduced, seed_of
from gpu_backend.train.tokens import IDS, load_ids
from scenarios.errors import InputError

# Shares of a run's time: after the first no further round of generation begins, after the second the one at work ends.
WRITING, WRITTEN = 0.25, 0.5


def train(order: Order, recipe: Recipe, say: Say) -> dict[str, Any]:
    """Train for the order's time and leave the weights; returns the progress."""
    session = Session(DRAFTER, order, ("step", "seconds", "loss", "token_loss", "teacher_forced_length"), say)
    tokens_fit(order.folder, recipe)
    texts = Texts(load_ids(order.folder), order.device, order.folder / TOKENS / IDS)
    recover(order.folder / TARGET)
    read_bytes(order.folder / TARGET / PROGRESS, "target")
    target_fits(order.folder, target_config_of(order.folder / TARGET), recipe)
    target = load_target(order.folder / TARGET, recipe.drafter.taps)
    place_for_inference(target, order.device, target.config.dtype)
    drafter = begin(session, recipe, target).to(order.device)
    written = write(target, texts, session, recipe)
    passes = Passes.on(order.device)
    loss_of = torch.compile(loss_behind) if order.device.type == "cuda" else loss_behind
    optimiser = Optimiser(drafter, recipe.muon, recipe.drafter_adam)
    interrupted = False
    try:
        while not session.over():
            ids = batch(written, texts, recipe, order.seed, session.number)
            with reduced(order.device):
                hidden, labels, wanted = forward(target, drafter, ids, recipe, passes)
                loss, *told = loss_of(hidden, target.head_weight, labels, wanted, recipe.distillation, recipe.slots)
            loss.backward()
            optimiser.step(rate_at(session.progress, recipe.drafter_shape))
            values = (loss, *told)
            session.stepped(recipe.log_every, lambda values=values: tuple(value.item() for value in values))
    except KeyboardInterrupt:
        if session.steps == 0:
            raise
        interrupted = True  # what was learnt is kept
    left = session.leave(drafter, recipe.drafter, on_policy_sequences=len(written))
    if interrupted:
        raise KeyboardInterrupt
    return left


def begin(session: Session, recipe: Recipe, target: Target) -> Drafter:
    """The drafter that an earlier run left, or a new one, whose last norm is the target's."""
    drafter = Drafter(recipe.drafter)
    if session.find():
        found = drafter_config_of(session.folder, target.config)
        if found != recipe.drafter:
            raise InputError(str(session.folder), 0, "config.json", "expected the shape of this --size, found another")
        drafter.load_state_dict(read_weights(session.folder, drafter.state_dict(), torch.float32))
        return drafter
    start(drafter, recipe.drafter.layers, session.order.seed)
    with torch.no_grad():
        drafter.norm.weight.copy_(target.model.norm.weight)
    return drafter


def write(target: Target, texts: Texts, session: Session, recipe: Recipe) -> torch.Tensor:
    """On-policy sequences int32 ``[sequences, length]``, in rounds; a later run writes others.

    ``length`` is prompt + new. Where time is short, the first round ends with fewer tokens or sequences; a later one
    that does is left out.
    """
    order, rounds = session.order, []
    degrees = torch.tensor(recipe.temperatures, device=order.device)
    temperature = degrees.repeat(recipe.on_policy // len(degrees) + 1)[: recipe.on_policy]
    for number in range(recipe.rounds):
        if rounds and session.spent(WRITING):
            break
        seed = seed_of(order.seed, session.number + number, 1)
        prompts = texts.crops(recipe.on_policy, recipe.prompt, seed)
        found = generate(
            target, prompts, recipe.new, temperature, seed,
            over=lambda: session.spent(WRITTEN), every=recipe.stride,  # lengths are multiples of it
        ).int()  # fmt: skip
        if rounds and found.shape != rounds[0].shape:
            break
        rounds.append(found)
        own = found.shape[1] - recipe.prompt
        session.say(f"drafter: {sum(map(len, rounds))} sequences with {own} tokens of the target's own")
    return torch.cat(rounds)


def batch(written: torch.Tensor, texts: Texts, recipe: Recipe, seed: int, step: int) -> torch.Tensor:
    """Sequences int64 ``[rows, length]``: one half the target's own, the other raw text."""
    raw = recipe.drafter_rows // 2
    draw = torch.Generator(device=written.device).manual_seed(seed_of(seed, step, 2))
    chosen = torch.randint(0, len(written), (recipe.drafter_rows - raw,), device=written.device, generator=draw)
    return torch.cat([written[chosen].long(), texts.crops(raw, written.shape[1], seed_of(seed, step, 3))])


def forward(
    target: Target, drafter: Drafter, ids: torch.Tensor, recipe: Recipe, passes: Passes
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States of the drafting slots ``[rows, anchors, K, hidden]``, their labels, and the target's logits for these."""
    config, (rows, length) = drafter.config, ids.shape
    anchor = anchors_of(drafter, length, recipe.stride, ids.device)
    place = anchor[:, None] + torch.arange(config.block, device=ids.device)
    with torch.no_grad():
        states, features = run_target(target, ids, passes)
        behind = states.unflatten(0, (rows, length))[:, place[:, :-1]]
        (wanted,) = target.head(target.model.norm(behind))
        blocks = ids[:, place]
        tokens = torch.full_like(blocks, config.mask_token)
        tokens[..., 0] = blocks[..., 0]
        embedded = target.embed(tokens).to(features.dtype)
    hidden = run_blocks(drafter, features, embedded, rows, recipe.stride, passes)
    return hidden[:, :, config.logits_start :], blocks[:, :, config.logits_start :], wanted


def loss_behind(
    hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor, wanted: torch.Tensor, distilled: float, slots: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss, its share by the token alone, and the acceptance length behind true tokens.

    Slot k weighs ``exp(-(k - 1) / slots)``: it counts only where those before it were accepted.
    """
    likely = F.linear(hidden, head.to(hidden.dtype)).float().log_softmax(-1)
    by_token = -likely.gather(-1, labels[..., None])[..., 0]
    wide = wanted.float()
    by_target = -(wide.softmax(-1) * likely).sum(-1)
    weight = torch.exp(-torch.arange(hidden.shape[2], device=hidden.device) / slots)
    weight = weight / weight.sum()
    agreed = (likely.argmax(-1) == wide.argmax(-1)).float().cumprod(-1).sum(-1).mean() + 1
    loss = (((1 - distilled) * by_token + distilled * by_target) * weight).sum(-1).mean()
    return loss, (by_token.detach() * weight).sum(-1).mean(), agreed.detach()
