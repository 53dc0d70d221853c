"""Scenarios: their files, schema and loader, presets, workload generators and importers of public traces."""

from __future__ import annotations
