"""Which server drives a world: one for a single worker, others for workers that run apart."""

from __future__ import annotations

from model.cluster import Cluster
from model.fleet import Fleet
from model.ops import World
from model.pair import Pair
from model.ranks import RankGroup
from sim.fleet import FleetServer
from sim.pair import PairServer
from sim.server import Server

SERVERS: dict[type[World] | type[Cluster], type[Server]] = {
    World: Server,
    RankGroup: Server,  # ranks look like one
    Fleet: FleetServer,
    Pair: PairServer,
}


def server_of(world: World | Cluster) -> type[Server]:
    """The class of server for a world or a cluster."""
    return next(SERVERS[base] for base in type(world).__mro__ if base in SERVERS)
