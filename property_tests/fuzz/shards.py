"""Which function runs the shards of an order."""

from __future__ import annotations

from property_tests.fuzz import engine_shards
from property_tests.fuzz.campaign import RunShard
from property_tests.fuzz.order import Order
from scenarios.errors import InputError


def runner(order: Order) -> RunShard:
    """The function for the driver and the layer of ``order``; :class:`InputError` where there is none."""
    if order.driver in ("swarm", "bytes") and order.machine == "engine":
        return engine_shards.run_shard
    raise InputError("driver", 0, "", f"expected swarm or bytes, found {order.driver!r}")
