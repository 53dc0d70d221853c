"""Decisions of a server that pairs two KV pools, and their memory of them: pure, deterministic, no clock, no I/O."""

from __future__ import annotations
