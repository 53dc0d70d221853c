"""Tests of the scenarios room."""
