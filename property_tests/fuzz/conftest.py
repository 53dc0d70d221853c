"""Profiles of hypothesis for this room: ``--hypothesis-profile=crosshair`` explores the arithmetic path by path."""

from __future__ import annotations

import importlib.util

from hypothesis import HealthCheck, settings

if importlib.util.find_spec("hypothesis_crosshair_provider") is not None:  # the extra `crosshair`
    settings.register_profile(
        "crosshair",
        backend="crosshair",
        max_examples=200,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
