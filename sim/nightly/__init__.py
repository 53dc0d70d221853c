"""Figures of runs held to those of earlier ones: which must be equal, and when a noisy one is worse."""
