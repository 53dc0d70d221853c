"""The nightly: a suite of stages, their figures held to a baseline, and one verdict."""
