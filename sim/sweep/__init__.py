"""Exhaustive sweeps where rules compose: named grids of tiny worlds, each run with every law after every step."""

from __future__ import annotations
