"""Weights that come with this package: their home, their hashes, and how a training becomes one of them. No torch."""
