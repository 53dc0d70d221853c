"""Toy sizes with every check after every operation, as fuzzing runs them; run by ``make bench``."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from model.builds import BUILDS
from model.engine import Engine
from model.events import EventLog
from model.invariants.base import Docket
from model.invariants.reference import ReferenceLaw
from model.invariants.sequences import SequenceLaws
from model.ops import Dispatch, Settle, World
from model.request import Request, State
from property_tests.benchmarking import CLOCK, US, best_of
from property_tests.model_core.helpers import arrived, config, spec, submit, world

pytestmark = pytest.mark.benchmark(timer=CLOCK)

PROMPT = list(range(10, 40))


class CacheLayer:
    """The managers of one toy engine with every law of the cache layer after each operation."""

    def __init__(self, build: str) -> None:
        self.engine = Engine(config(pages=40, draft_pages=40), BUILDS[build].rules, EventLog())
        self.twin = self.engine.twin
        self.docket = Docket()
        self.references = ReferenceLaw(self.twin, self.docket, lambda owner: owner)
        self.sequences = SequenceLaws(self.engine, self.docket)
        self.operations = 0
        self.requests = [
            arrived(self.twin, owner, [*PROMPT[: owner % 24], *range(100 * owner, 100 * owner + 11)], 12)
            for owner in range(1, 26)
        ]

    def checked(self) -> None:
        """One operation was carried out: references, pairs of pools and shapes of all that live."""
        self.operations += 1
        self.references.check(self.operations)
        self.references.check_pairs(self.operations)
        self.sequences.shapes(self.engine.owners.values(), self.operations)

    def run(self) -> None:
        """One request after the other, each with the one before it still there."""
        for request in self.requests:
            self.serve(request)

    def serve(self, request: Request) -> None:
        """One request from its claim to its end, in about 20 operations."""
        twin, owners, owner = self.twin, self.engine.owners, request.owner
        owners[owner] = request
        request.claim = twin.claim(request, self.engine.totals)
        request.cursor = request.claim.tokens
        self.checked()
        for end in (request.cursor + 8, request.context_length):
            last = end == request.context_length
            assert twin.grow_context(request, end, last)
            self.checked()
            twin.advance(request, end, last)
            request.cursor = end
            self.checked()
        request.started, request.state, request.generated = True, State.GENERATION, 1
        for row in range(6):
            assert twin.grow_generation(request)
            self.checked()
            request.generated += 1 + row % 3
            twin.settle_generation(request, 1 + row % 3)
            self.checked()
        twin.suspend_all(request)
        self.checked()
        assert twin.resume(request)
        self.checked()
        self.engine.recorder.take()
        if owner > 1:
            owners.pop(owner - 1)
            for manager in twin.managers:
                manager.free(owner - 1)
            self.checked()


@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_an_operation_of_the_cache_layer_takes_60_us_with_every_check(benchmark: BenchmarkFixture, build: str) -> None:
    """Target: 60 us for a claim, growth, publication, settle, suspension, resume or release, with its laws."""

    layers: list[CacheLayer] = []

    def setup() -> None:
        layers[:] = [CacheLayer(build)]

    def run() -> None:
        layers[0].run()

    trial = CacheLayer(build)
    trial.run()
    assert trial.operations > 450
    best_of(benchmark, run, rounds=10, target_s=60 * US, parts=trial.operations, setup=setup)
    assert layers[0].docket.violations == []


ITERATIONS = 10


def eight_requests(build: str) -> World:
    """Eight requests in generation on the toy engine: 64 pages, which they nearly fill."""
    serving = world(config(max_batch=8, max_num_tokens=128), build)
    submit(serving, *[spec(number, [*PROMPT[: number % 4], 200 + number], 60) for number in range(8)])
    while any(request.state is not State.GENERATION for request in serving.engine.live.values()):
        iterate(serving, 1)
    return serving


def iterate(serving: World, count: int) -> None:
    for turn in range(count):
        plan = serving.apply(Dispatch()).plan
        assert plan is not None
        serving.apply(Settle(tuple([1 + (turn + place) % 3 for place in range(len(plan.generation))])))


@pytest.mark.parametrize("build", ["unified", "paired-22"])
def test_dispatch_and_settle_of_eight_requests_take_400_us_with_every_check(
    benchmark: BenchmarkFixture, build: str
) -> None:
    """Target: 400 us for an iteration of eight verify rows of 1 + 3 tokens, every law evaluated in full."""
    worlds: list[World] = []

    def setup() -> None:
        worlds[:] = [eight_requests(build) for _ in range(6)]

    def run() -> None:
        for serving in worlds:
            iterate(serving, ITERATIONS)

    best_of(benchmark, run, rounds=10, target_s=400 * US, parts=6 * ITERATIONS, setup=setup)
    for serving in worlds:
        assert serving.violations == []
        assert serving.engine.totals.decode_rows >= 8 * ITERATIONS
        assert serving.engine.totals.preemptions + serving.engine.totals.suspensions == 0
