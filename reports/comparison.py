"""Comparisons: what is compared, its words, and its plain values."""

from __future__ import annotations

from reports.compared import Comparison, compare
from reports.comparison_document import document
from reports.comparison_words import NONE, markdown, readable, sentence, shown

__all__ = ["NONE", "Comparison", "compare", "document", "markdown", "readable", "sentence", "shown"]
