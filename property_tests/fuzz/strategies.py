"""Hypothesis strategies over the generators: the same engines and requests, drawn choice by choice."""

from __future__ import annotations

from hypothesis import strategies as st

from model.builds import BUILDS, DEFAULT_BUILD, Build
from model.config import Drafter, EngineConfig, Limits, RequestSpec
from model.geometry import Lifecycle
from property_tests.fuzz.choices import Drawn
from property_tests.fuzz.generate import engine
from property_tests.fuzz.generate.mix import Mix
from property_tests.fuzz.generate.setup import Setup, setup
from property_tests.fuzz.generate.workload import workload


@st.composite
def drafters(draw: st.DrawFn, mix: Mix | None = None) -> Drafter:
    """Drafters of every kind: K from 1 to 7, windows from 1 to 12 tokens or none."""
    return engine.drafter(Drawn(draw), mix or Mix())


@st.composite
def geometries(draw: st.DrawFn, mix: Mix | None = None) -> tuple[int, tuple[Lifecycle, ...], tuple[Lifecycle, ...]]:
    """Page sizes with the layers of a target and of its drafter."""
    choices, mix = Drawn(draw), mix or Mix()
    page = engine.page_size(choices)
    return page, *engine.lifecycles(choices, mix, engine.drafter(choices, mix), page)


@st.composite
def limits(draw: st.DrawFn, page: int = 4, drafts: int = 2, mix: Mix | None = None) -> Limits:
    """Limits of engines with pages of ``page`` tokens and ``drafts`` drafts a step."""
    return engine.limits(Drawn(draw), mix or Mix(), drafts, page)


@st.composite
def engines(draw: st.DrawFn, mix: Mix | None = None) -> EngineConfig:
    """Engines of toy sizes; their pools are roomy."""
    return engine.engine(Drawn(draw), mix or Mix())


@st.composite
def workloads(draw: st.DrawFn, config: EngineConfig, mix: Mix | None = None) -> tuple[RequestSpec, ...]:
    """Two to six requests whose prompts repeat, share starts and part at the edges of ``config``."""
    return workload(Drawn(draw), mix or Mix(), config)


@st.composite
def setups(draw: st.DrawFn, build: Build | None = None, mix: Mix | None = None) -> Setup:
    """Engines or workers with pools that fit their requests, a warm-up, and weights of disturbances."""
    return setup(Drawn(draw), build or BUILDS[DEFAULT_BUILD], mix or Mix())
