"""Replay of a world's stream on a device: its own tables, lengths, bases and tags, compared with the tagged memory."""
