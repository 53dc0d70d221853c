"""The rules of a build, one file per rule: the question it answers, today's answer, the historical and wrong ones."""

from __future__ import annotations
