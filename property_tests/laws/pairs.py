"""Random pairs: a prefill and a decode worker with a link that delivers late, loses and is cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from model.builds import BUILDS
from model.config import PoolSize, RequestSpec
from model.linkops import Abort, Arrive, Send
from model.ops import At, Cancel, Dispatch, Fail, Op, Settle, Shrink, Submit, Suspend
from model.pair import Pair
from property_tests.laws.worlds import CALM, PATIENCE, Rates, fitted, random_config, random_specs


class PairDriver:
    """Drives a pair at random; ``rates`` disturb each worker, and the link when there are any."""

    def __init__(self, pair: Pair, specs: Sequence[RequestSpec], rng: Random, rates: Rates) -> None:
        self.pair, self.rng, self.rates = pair, rng, rates
        self.todo = list(specs)
        self.sent: list[RequestSpec] = []
        self.encores = len(specs)

    def run(self) -> bool:
        """Run until no work is left, then drain; whether it came to an end."""
        for _ in range(PATIENCE):
            if not self.todo and not self.pair.has_work():
                break
            self.turn()
        self.pair.drain()
        return not self.todo and not self.pair.has_work()

    def turn(self) -> None:
        """One turn: perhaps a submission and disturbances, then the link, then a step of each worker."""
        rng, pair = self.rng, self.pair
        if self.todo and (rng.random() < 0.4 or not pair.has_work()):
            self._submit(self.todo.pop(0))
        for worker in (0, 1):
            self._disturb(worker)
        self._link()
        for worker in (0, 1):
            self._step(worker)
        over = [spec for spec in self.sent if not self._knows(spec.request_id)]
        if over and self.encores and rng.random() < self.rates.again:
            self.encores -= 1
            spec = rng.choice(over)
            self._submit(replace(spec, output_seed=spec.output_seed + 1000))

    def _knows(self, request_id: int) -> bool:
        return request_id in self.pair.transfers or any(request_id in world.engine.live for world in self.pair.workers)

    def _submit(self, spec: RequestSpec) -> None:
        if self.pair.apply(Submit(spec)).applied:
            self.sent.append(spec)

    def _disturb(self, worker: int) -> None:
        rng, rates, world = self.rng, self.rates, self.pair.workers[worker]
        live = list(world.engine.live)
        ops: list[tuple[float, Op]] = [(rates.skip, Dispatch(skip=True)), (rates.fail, Fail())]
        if live:
            ops += [(rates.suspend, Suspend(rng.choice(live))), (rates.cancel, Cancel(rng.choice(live)))]
        if rates.shrink:
            ops.append((rates.shrink, Shrink(rng.choice(list(world.engine.twin.pools)), rng.randint(0, 6))))
        for chance, op in ops:
            if rng.random() < chance:
                self.pair.apply(At(worker, op))

    def _link(self) -> None:
        rng, pair = self.rng, self.pair
        for request_id in pair.ready():
            if rng.random() < 0.5:
                pair.apply(Send(request_id))
        for request_id in list(pair.transfers):
            chance = rng.random()
            if chance < 0.25:
                pair.apply(Arrive(request_id))
            elif chance < 0.28 and self.rates.cancel:
                pair.apply(Abort(request_id, recompute=rng.random() < 0.5))

    def _step(self, worker: int) -> None:
        rng, engine = self.rng, self.pair.workers[worker].engine
        if rng.random() < 0.2:
            return
        room = engine.in_flight <= engine.config.limits.run_ahead
        early = engine.in_flight and rng.random() < self.rates.early
        applied = not early and room and self.pair.apply(At(worker, Dispatch())).applied
        if engine.in_flight and not applied:
            rows = engine.plans[0].generation
            self.pair.apply(At(worker, Settle(tuple(rng.randint(1, row.width) for row in rows))))


def random_pair(seed: int, build: str, *, check: str = "exhaustive") -> tuple[Pair, PairDriver]:
    """The pair and the driver of ``seed`` on ``build``; every other one has pools of hardly more than one needs."""
    rng = Random(seed)
    config = random_config(rng)
    specs = random_specs(rng, 8)
    rates = Rates() if rng.random() < 0.7 else CALM
    slack = rng.randint(0, 3) if seed % 2 else rng.choice((3, 8, 20, 60))
    config = fitted(config, BUILDS[build], specs, slack)
    more = rng.choice((0, 0, 5))
    larger = {name: PoolSize(size.device_pages + more, size.host_pages) for name, size in config.pools.items()}
    configs = (config, replace(config, pools=larger))
    pair = Pair(configs, BUILDS[build], drafts=rng.random() < 0.6, check=check, record_ops=True)
    return pair, PairDriver(pair, specs, rng, rates)
