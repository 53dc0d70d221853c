"""Fuzzing: generators, drivers of two kinds, a shrinker, machines, the naive oracle, and campaigns over them."""
