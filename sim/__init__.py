"""The world with a clock: SimPy clients and servers, cost and acceptance models, runs and what they leave."""

from __future__ import annotations
