"""What one program runs on: an engine or several workers, the requests to come, and what disturbs them how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.builds import Build
from model.cluster import Cluster
from model.config import EngineConfig, PoolSize, RequestSpec
from model.ops import Warmup, World
from model.topology import Topology
from property_tests.fuzz.choices import Choices
from property_tests.fuzz.generate import pools
from property_tests.fuzz.generate.engine import LONGEST, engine, realistic
from property_tests.fuzz.generate.mix import WORKERS, Mix
from property_tests.fuzz.generate.workload import workload

# Kinds of ops that a driver chooses among, and how often each comes in a thousand turns where it can come at all.
USUAL = {"go on": 480, "submit": 160, "settle": 60, "land": 90, "send": 80, "arrive": 80}
DISTURBING = {
    "skip": 28,
    "fail": 28,
    "cancel": 22,
    "suspend": 34,
    "shrink": 30,
    "again": 30,
    "lose": 30,
    "abort": 30,
}
OFF = 30  # percent of the disturbing kinds that one program does without
STRENGTHS = (3, 1, 10)  # weight of a kind in one program


@dataclass(frozen=True, slots=True)
class Setup:
    """One program before its first op. ``weights``: kinds of ops, in the order in which they are drawn; ``turns``:
    how many ops are drawn before what is left is drained; ``greed``: how acceptance counts are drawn."""

    config: EngineConfig
    workers: Topology | None
    specs: tuple[RequestSpec, ...]
    warmup: Warmup | None
    weights: tuple[tuple[str, int], ...]
    turns: int
    greed: int

    def open(self, build: Build, check: str = "exhaustive") -> World | Cluster:
        """The worker or the workers on ``build``, recording their ops."""
        if self.workers is None:
            return World(self.config, build, check=check, record_ops=True)
        return self.workers.open(build, check=check, record_ops=True)


def setup(choices: Choices, build: Build, mix: Mix) -> Setup:
    """A program's surroundings."""
    kind = WORKERS[choices.weighted(mix.workers)]
    large = not kind and choices.chance(mix.realistic)
    config = realistic(choices, mix) if large else engine(choices, mix)
    if kind:
        config = replace(config, asynchronous_copies=False)
    specs = workload(choices, mix, config)
    longest = max(sum(run.length for run in spec.prompt) + spec.max_new_tokens for spec in specs)
    if not large:
        brink = choices.chance(mix.brink)
        config = replace(config, limits=replace(config.limits, max_seq_len=longest if brink else LONGEST))
        config = _pooled(choices, mix, config, build, specs, kind)
    workers = _workers(choices, mix, config, specs, kind) if kind else None
    warms = (kind or config.limits.graph_batches) and kind != "disaggregated" and choices.chance(mix.warmup)
    bounds = config.limits
    warmup = None
    if warms:
        tokens = choices.pick((min(2 * bounds.page_size, longest), longest, choices.between(1, longest)))
        warmup = Warmup(choices.between(1, bounds.max_batch), tokens)
    turns = 12 + choices.below(48)
    return Setup(config, workers, specs, warmup, _weights(choices, mix), turns, choices.weighted((3, 2, 1)))


def _pooled(
    choices: Choices, mix: Mix, config: EngineConfig, build: Build, specs: tuple[RequestSpec, ...], kind: str
) -> EngineConfig:
    if choices.chance(mix.memory):
        split = pools.from_bytes(choices, config, build)
        if split is not None:
            return split
    need = pools.needs(config, build, specs, kind == "attention_dp")
    tight = choices.chance(mix.tight)
    short = choices.chance(mix.short)
    slack = {
        name: pools.slack(choices, tight and not choices.chance(30), short and choices.chance(50))
        for name in config.pools
    }
    return pools.fitted(config, need, slack)


def _workers(choices: Choices, mix: Mix, config: EngineConfig, specs: tuple[RequestSpec, ...], kind: str) -> Topology:
    """Several workers on ``config``; what they have of each pool may differ by a few pages."""
    count = 2 if kind == "disaggregated" else choices.pick((2, 2, 2, 3))
    configs = [config]
    for _ in range(count - 1):
        more = choices.pick((0, 1, 3)) if config.memory is None else 0
        hosted = choices.pick((0, 1, 4, 12)) if config.memory is None else 0
        uneven = {
            name: PoolSize(size.device_pages + more, size.host_pages and size.host_pages + hosted)
            for name, size in config.pools.items()
        }
        configs.append(replace(config, pools=uneven))
    options: tuple[tuple[str, int], ...] = ()
    if kind == "attention_dp" and choices.chance(mix.gate):
        options = (("gate", choices.between(1, len(specs))),)
    if kind == "disaggregated":
        options = (("drafts", int(not choices.chance(35))),)
    return Topology(kind, tuple(configs), options)


def _weights(choices: Choices, mix: Mix) -> tuple[tuple[str, int], ...]:
    """Weights of the kinds of ops: some disturbances off, the others rare, usual or frequent."""
    weights = {name: 3 * weight for name, weight in USUAL.items()}
    calm = choices.chance(mix.calm)
    for name, weight in DISTURBING.items():
        on = not choices.chance(OFF)
        weights[name] = weight * choices.pick(STRENGTHS) if on and not calm else 0
        if name in mix.stirred:
            weights[name] = weight * STRENGTHS[-1]
    for name in ("submit", "settle", "land", "send", "arrive"):
        weights[name] = weights[name] * choices.pick(STRENGTHS) // 3
    return tuple(weights.items())
