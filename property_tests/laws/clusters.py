"""Random fleets and rank groups, and a driver that gives them no rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from model.builds import BUILDS
from model.cluster import At, Cluster
from model.config import EngineConfig, PoolSize, RequestSpec
from model.fleet import Fleet
from model.ops import Cancel, Dispatch, Fail, Op, Settle, Shrink, Submit, Suspend, Warmup
from model.ranks import RankGroup
from property_tests.laws.worlds import CALM, PATIENCE, Rates, fitted, random_config, random_specs


class ClusterDriver:
    """Drives a cluster at random: submits, dispatches for all, settles rank by rank, and disturbs by ``rates``."""

    def __init__(self, cluster: Cluster, specs: Sequence[RequestSpec], rng: Random, rates: Rates) -> None:
        self.cluster, self.rng, self.rates = cluster, rng, rates
        self.fleet = isinstance(cluster, Fleet)
        self.todo = list(specs)

    def run(self) -> bool:
        """Run until no work is left, then drain; whether it came to an end."""
        for _ in range(PATIENCE):
            if not self.todo and not self.cluster.has_work():
                break
            self.turn()
        self.cluster.drain()
        return not self.todo and not self.cluster.has_work()

    def turn(self) -> None:
        """One turn: perhaps a submission and disturbances, then a dispatch or a settle of some rank."""
        rng, cluster = self.rng, self.cluster
        if self.todo and (rng.random() < 0.5 or not cluster.has_work()):
            cluster.apply(self._at(Submit(self.todo.pop(0))))
        self._disturb()
        if cluster.in_flight and rng.random() < self.rates.early:
            self._settle()
            return
        room = cluster.in_flight <= cluster.config.limits.run_ahead
        if not (room and cluster.apply(Dispatch()).applied) and cluster.in_flight:
            self._settle()

    def _at(self, op: Op) -> At | Op:
        return At(self.rng.randrange(len(self.cluster.workers)), op) if self.fleet else op

    def _settle(self) -> None:
        flying = [rank for rank, world in enumerate(self.cluster.workers) if world.in_flight]
        rank = self.rng.choice(flying) if self.fleet else 0
        rows = self.cluster.workers[rank].engine.plans[0].generation
        settle = Settle(tuple(self.rng.randint(1, row.width) for row in rows))
        self.cluster.apply(At(rank, settle) if self.fleet else settle)

    def _disturb(self) -> None:
        rng, rates, cluster = self.rng, self.rates, self.cluster
        for chance, op in ((rates.skip, Dispatch(skip=True)), (rates.fail, Fail())):
            if rng.random() < chance:
                cluster.apply(op)
        rank = rng.randrange(len(cluster.workers))
        engine = cluster.workers[rank].engine
        live = list(engine.live)
        ops: list[tuple[float, Op]] = []
        if live:
            ops += [(rates.suspend, Suspend(rng.choice(live))), (rates.cancel, Cancel(rng.choice(live)))]
        for chance, op in ops:
            if rng.random() < chance:
                cluster.apply(At(rank, op) if self.fleet else op)
        if rng.random() < rates.shrink:  # a single rank of a group may lose pages, too
            cluster.apply(At(rank, Shrink(rng.choice(list(engine.twin.pools)), rng.randint(0, 6))))


def random_cluster(seed: int, build: str, kind: type[Cluster], *, tight: bool = False) -> ClusterDriver:
    """The driver of ``seed`` on ``build``: two or three workers whose pools differ by a few pages."""
    rng = Random(seed)
    config = random_config(rng)
    limits = replace(config.limits, graph_batches=rng.choice(((), (1, 2, 4), (3, 8))))
    config = replace(config, limits=limits)
    specs = random_specs(rng, 8)
    rates = Rates() if rng.random() < 0.7 else CALM
    slack = rng.randint(4, 7) if tight else rng.choice((8, 20, 60))
    config = fitted(config, BUILDS[build], specs, slack)
    configs = [_uneven(config, rng) for _ in range(rng.choice((2, 2, 3)))]
    cluster = kind(configs, BUILDS[build], check="exhaustive", record_ops=True)
    if rng.random() < 0.5:
        cluster.apply(Warmup(rng.randint(1, limits.max_batch), rng.randint(1, limits.max_seq_len)))
    return ClusterDriver(cluster, specs, rng, rates)


def _uneven(config: EngineConfig, rng: Random) -> EngineConfig:
    pools = {
        name: PoolSize(size.device_pages + rng.randint(0, 3), size.host_pages and size.host_pages + rng.randint(0, 3))
        for name, size in config.pools.items()
    }
    return replace(config, pools=pools)


CLUSTERS: tuple[type[Cluster], ...] = (Fleet, RankGroup)
