"""Logs that other programs wrote, read as streams and judged by what they say alone: no engine runs."""
