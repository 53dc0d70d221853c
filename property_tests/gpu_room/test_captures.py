"""What a graph's capture forbids: a collection in its midst, which may free an older graph and ends the process."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

import pytest

from gpu_backend.device import uncollected

ROOT = Path(__file__).parents[2]


class Held:
    """Part of a cycle; ``freed`` says whether a collection found it."""

    def __init__(self, freed: list[str]) -> None:
        self.freed, self.itself = freed, self

    def __del__(self) -> None:
        self.freed.append("freed")


def test_a_cycle_that_nobody_holds_outlives_a_capture() -> None:
    freed: list[str] = []
    before = gc.get_threshold()
    try:
        with uncollected():
            Held(freed)
            gc.set_threshold(1)
            assert [[] for _ in range(5000)] and not freed
        assert [[] for _ in range(5000)] and freed == ["freed"]
    finally:
        gc.set_threshold(*before)


def test_collections_go_on_as_they_were_also_behind_an_error() -> None:
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_nothing_is_collected_in_any_capture() -> None:
    guarded = bare = 0
    for path in [*ROOT.glob("gpu_backend/**/*.py"), *ROOT.glob("property_tests/gpu_room/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.With):
                opened = [ast.unparse(item.context_expr) for item in node.items]
                captures = [place for place, one in enumerate(opened) if one.startswith("torch.cuda.graph(")]
                guarded += sum("uncollected()" in opened[:place] for place in captures)
                bare += sum("uncollected()" not in opened[:place] for place in captures)
    assert guarded and not bare
