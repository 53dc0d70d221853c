"""Which function runs the shards of an order, and which one hunts for a fault."""

from __future__ import annotations

from model.builds import Build
from property_tests.fuzz import engine_shards, machine_shards
from property_tests.fuzz.campaign import RunShard
from property_tests.fuzz.engine_shards import Hunt
from property_tests.fuzz.order import Order
from scenarios.errors import InputError

MACHINE = "engine"  # that a blind drill drives


def runner(order: Order) -> RunShard:
    """The function for the driver and the layer of ``order``; :class:`InputError` where there is none."""
    if order.driver == "machine" or (order.driver, order.machine) == ("swarm", "cache"):
        return machine_shards.run_shard
    if order.machine == "engine":
        return engine_shards.run_shard
    layers = "engine or cache" if order.driver == "swarm" else "engine"
    raise InputError("--machine", 0, "", f"expected {layers} for the driver {order.driver}, found {order.machine}")


def hunt(build: Build, driver: str, budget: int, seed: int) -> Hunt:
    """Look for what is wrong with ``build`` by a driver of the engine; what it finds is shrunk."""
    if driver == "machine":
        return machine_shards.hunt(build, MACHINE, budget, seed, shrinks=True)
    return engine_shards.hunt(build, driver, budget, seed, shrinks=True)
