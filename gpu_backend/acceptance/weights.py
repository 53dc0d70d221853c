"""A pair on disk behind a replay: which scenario it serves, and its modules over the replay's pools.

A folder holds ``target`` and ``drafter``, each with ``config.json`` and safetensors: what ``kvtwin train`` leaves, or a
Qwen3 or Llama checkpoint and its DFlash drafter as they are published, moved or linked there. Drafters of other kinds
lie beside it, in folders of their own names. Vocabulary, K, the drafter's window and the range of positions belong to
the weights: a scenario takes them over. Files that a card beside them names have to be those on the card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from gpu_backend.modules.config import DrafterConfig, TargetConfig
from gpu_backend.modules.loader import drafter_config_of, load_pair, target_config_of
from gpu_backend.replay.modelled import Models, content_of, require_served
from gpu_backend.shipped.card import DRAFTERS, TARGET, checked, kinds_in
from model.config import EngineConfig
from scenarios.errors import InputError
from scenarios.schema import Scenario

DFLASH = "dflash"
BLOCKS = {"dflash", "dspark"}  # kinds that draft in blocks


@dataclass(frozen=True, slots=True)
class Pair:
    """The configurations of a folder's target and of its drafter of one kind; ``sha256`` of what a card names."""

    folder: Path
    target: TargetConfig
    drafter: DrafterConfig
    kind: str = DFLASH
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Path, Path]:
        """The folders of both."""
        return self.folder / TARGET, self.folder / DRAFTERS[self.kind]

    @property
    def window(self) -> int | None:
        """The drafter's window in tokens, one for all its layers."""
        return self.drafter.window(0)


def kind_in(folder: Path, kind: str) -> str:
    """The kind by whose name the drafter of a scenario of ``kind`` lies in ``folder``: its own, else DFlash's, where a
    published drafter of any kind may lie."""
    return kind if kind in DRAFTERS and (folder / DRAFTERS[kind]).is_dir() else DFLASH


def open_pair(folder: Path, kind: str = DFLASH) -> Pair:
    """The pair in ``folder`` with the drafter of one kind; InputError, in one line, for a folder or a file that holds
    none that can be run, or that is not the one on its card."""
    parts = (TARGET, DRAFTERS[kind])
    for part in parts:
        if not (folder / part).is_dir():
            problem = f"expected a folder with {' and '.join(parts)} in it, found no {part}"
            if part != TARGET:
                problem += _others(folder, part)
            raise InputError(str(folder), 0, "weights", problem)
    hashes = checked(folder, parts)
    target = target_config_of(folder / parts[0])
    drafter = drafter_config_of(folder / parts[1], target)
    file = str(folder / parts[1] / "config.json")
    if len(drafter.groups) > 1:
        windows = _windows([group.window for group in drafter.groups])
        raise InputError(file, 0, "layer_types", f"expected one window for all layers of the drafter, found {windows}")
    for name, found, wanted in (
        ("num_key_value_heads", drafter.kv_heads, target.kv_heads),
        ("head_dim", drafter.head_dim, target.head_dim),
    ):
        if found != wanted:
            problem = f"expected the target's {wanted}, since K/V of both lie in pages of one layout, found {found}"
            raise InputError(file, 0, name, problem)
    return Pair(folder, target, drafter, kind, hashes)


def _others(folder: Path, part: str) -> str:
    """Where drafters of other kinds than the missing ``part`` lie in ``folder``, or where one was looked for."""
    if there := [DRAFTERS[kind] for kind in kinds_in(folder)]:
        return f" beside {' and '.join(there)}"
    *rest, last = (name for name in DRAFTERS.values() if name != part)
    return f", nor {', '.join(rest)} or {last}"


def fitted(scenario: Scenario, pair: Pair) -> Scenario:
    """``scenario`` with what belongs to the weights: vocabulary, K, the drafter's window, and no longer sequences.

    An engine keeps K cells behind what it knows. A block whose anchor predicts nothing has K + 1: one token of headroom
    more, without which the block's last mask is invisible to the others wherever a page ends before it.
    DFlash and DSpark keep the same context, so that weights of the one serve scenarios of the other. InputError where
    the scenario has a drafter of another kind; prompts or limits that no longer go together are refused by the scenario
    itself, with their line.
    """
    config = scenario.engine_config()
    asked, kind = config.drafter.kind, pair.drafter.kind
    if asked != kind and not {asked, kind} <= BLOCKS and asked in DRAFTERS:
        problem = f"expected a drafter of kind {asked} in {DRAFTERS[asked]}, found {kind}"
        raise InputError(str(pair.folder), 0, "weights", problem)
    require_served(config, vocabulary=pair.target.vocabulary)
    most = min(config.limits.max_seq_len, pair.target.positions)
    headroom = config.limits.extra_tokens + pair.drafter.block - pair.drafter.drafts
    own = {"kind": kind, "drafts": pair.drafter.drafts, "window": pair.window, "chain": pair.drafter.depth}
    drafter = scenario.drafter.model_copy(update=own)
    return scenario.replace(
        geometry=scenario.geometry.model_copy(update={"vocabulary": pair.target.vocabulary}),
        drafter=drafter,
        limits=scenario.limits.model_copy(update={"max_seq_len": most, "extra_tokens": headroom}),
    )


def replaced(scenario: Scenario, config: EngineConfig) -> list[str]:
    """What :func:`fitted`, which gave ``config``, changed of ``scenario``, in a line each."""
    before = scenario.engine_config()
    pairs = (
        ("the drafter's kind", before.drafter.kind, config.drafter.kind),
        ("vocabulary", before.vocabulary, config.vocabulary),
        ("drafts", before.drafter.drafts, config.drafter.drafts),
        ("the drafter's window", before.drafter.window, config.drafter.window),
        ("max_seq_len", before.limits.max_seq_len, config.limits.max_seq_len),
        ("extra_tokens", before.limits.extra_tokens, config.limits.extra_tokens),
    )
    return [f"{name} {new} of the weights, not the scenario's {old}" for name, old, new in pairs if old != new]


def models_of(config: EngineConfig, pair: Pair, device: torch.device, *, exact: bool) -> Models:
    """The pair's modules, ready on ``device``, for a scenario that was :func:`fitted`; on a CPU in float32.

    InputError where the lifecycles of ``config`` are not those of the weights.
    """
    require_served(config)
    told = str(pair.folder / TARGET / "config.json")
    groups, lives = [group.window for group in pair.target.groups], [life.window for life in config.target]
    if groups != lives:
        problem = f"expected the target's windows {_windows(lives)}, as the scenario has them, found {_windows(groups)}"
        raise InputError(told, 0, "layer_types", problem)
    if config.draft[0].window != pair.window:
        problem = (
            f"expected the window {config.draft[0].window} of the scenario's own draft layers, found {pair.window}"
        )
        raise InputError(str(pair.parts[1] / "config.json"), 0, "sliding_window", problem)
    dtype = None if device.type == "cuda" else torch.float32
    modules = load_pair(*pair.parts, device, exact=exact, dtype=dtype)
    return Models(*modules, content_of(modules[0].config, modules[1].config), exact)


def _windows(windows: list[int | None]) -> str:
    return ", ".join("full attention" if window is None else str(window) for window in windows)
