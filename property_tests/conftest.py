"""Hypothesis in this suite: a machine that is busy with other things is no reason for a test to fail."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("hypothesis") is not None:  # the Python of a GPU may come without it
    from hypothesis import settings

    settings.register_profile("suite", parent=settings(), deadline=None)  # all else stays, on a CI too
    settings.load_profile("suite")
