"""Tensor parallelism over processes: every rank has an engine, pools and a device of its own."""
