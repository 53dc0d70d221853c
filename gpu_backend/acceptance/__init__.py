"""Acceptance of drafts: the rules, the figures made of it, and the weights and texts that give it a meaning."""
