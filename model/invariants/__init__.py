"""Invariants: separate judges that recompute from tables and memory what must hold."""

from __future__ import annotations

from model.invariants.base import INVARIANTS, Docket, Law, Violation

__all__ = ["INVARIANTS", "Docket", "Law", "Violation"]
