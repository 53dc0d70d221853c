"""Cold against hit: what reuse, sound or broken, costs of the acceptance of a real drafter."""
