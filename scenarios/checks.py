"""Rules that tie several fields of a scenario together; each refusal names the field to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from model.config import EngineConfig
from model.request import Totals
from scenarios.engine_build import unknown
from scenarios.errors import FieldError
from scenarios.expect import Promise
from scenarios.names import check_build, check_law
from scenarios.ops_schema import ShrinkOp
from scenarios.workers_schema import AttentionDp

if TYPE_CHECKING:
    from scenarios.schema import Scenario

TOTALS = frozenset(field.name for field in fields(Totals))


def check(scenario: Scenario) -> None:
    """Raise ``FieldError`` or ``InputError`` for the first rule that ``scenario`` breaks."""
    _check_names(scenario)
    config = scenario.engine_config()
    scenario.topology()
    _check_acceptance(scenario, config)
    _check_workers(scenario)
    requests = _requests(scenario)
    _check_disturbances(scenario, config, requests)
    _check_ops(scenario, config)
    _check_expectations(scenario, config, requests)


def _check_names(scenario: Scenario) -> None:
    check_build(scenario.build, ("build",))
    for place, build in enumerate(scenario.builds):
        check_build(build, ("builds", place))
    for build in scenario.expect.by_build:
        check_build(build, ("expect", "by_build", build))
    for location, promise in _promises(scenario):
        for key in ("violations", "may"):
            for place, code in enumerate(getattr(promise, key) or ()):
                check_law(code, (*location, key, place))


def _promises(scenario: Scenario) -> Iterator[tuple[tuple[str | int, ...], Promise]]:
    """The expectations of all builds, and of each one that has its own, with their locations."""
    yield ("expect",), scenario.expect
    for name, promise in scenario.expect.by_build.items():
        yield ("expect", "by_build", name), promise


def _requests(scenario: Scenario) -> int | None:
    """Number of requests, or ``None`` where only a trace file knows it."""
    if scenario.trace_file is not None:
        return None
    ops = scenario.ops()
    if ops is not None:
        return 1 + max((op.request for op in scenario.op_specs or () if op.op == "submit"), default=-1)
    if scenario.workload_spec is not None and scenario.workload_spec.trace is not None:
        return None
    return scenario.workload().requests


def _check_workers(scenario: Scenario) -> None:
    count = scenario.workers.count if scenario.workers is not None else 0
    for field, specs in (("ops", scenario.op_specs or ()), ("disturbances", scenario.disturbances)):
        for place, spec in enumerate(specs):
            if spec.worker is not None and spec.worker >= count:
                wanted = f"a worker below {count}" if count else "worker only where a scenario has several"
                raise FieldError((field, place, "worker"), f"expected {wanted}, found {spec.worker}")
    for place, session in enumerate((scenario.workload_spec and scenario.workload_spec.sessions) or ()):
        fleet = count if isinstance(scenario.workers, AttentionDp) else 0
        if session.worker is not None and session.worker >= fleet:
            wanted = f"a rank below {fleet}" if fleet else "worker only where a fleet serves the sessions"
            raise FieldError(("workload", "sessions", place, "worker"), f"expected {wanted}, found {session.worker}")


def _check_acceptance(scenario: Scenario, config: EngineConfig) -> None:
    acceptance, most = scenario.acceptance, config.drafter.drafts + 1
    schedules = [(("acceptance", "forced"), acceptance.forced or [])]
    schedules += [(("acceptance", "requests", key), counts) for key, counts in acceptance.requests.items()]
    for location, counts in schedules:
        if counts and max(counts) > most:
            raise FieldError(location, f"expected at most K + 1 = {most} tokens a step, found {max(counts)}")
    if acceptance.length is not None and acceptance.length > most:
        raise FieldError(("acceptance", "length"), f"expected at most K + 1 = {most}, found {acceptance.length:g}")
    for name in ("bernoulli", "coverage"):
        rates = getattr(acceptance, name)
        if isinstance(rates, list) and len(rates) not in (1, config.drafter.drafts):
            problem = f"expected one rate or {config.drafter.drafts} (K), found {len(rates)}"
            raise FieldError(("acceptance", name), problem)


def _check_disturbances(scenario: Scenario, config: EngineConfig, requests: int | None) -> None:
    for place, disturbance in enumerate(scenario.disturbances):
        location = ("disturbances", place)
        if scenario.workload_spec is None:
            raise FieldError(location, "expected disturbances only beside a workload, found one beside ops")
        if disturbance.pool is not None and disturbance.pool not in config.pools:
            raise FieldError((*location, "pool"), unknown("a pool", disturbance.pool, config.pools))
        _check_request(disturbance.request, requests, (*location, "request"))


def _check_ops(scenario: Scenario, config: EngineConfig) -> None:
    for place, spec in enumerate(scenario.op_specs or ()):
        if isinstance(spec, ShrinkOp) and spec.pool not in config.pools:
            raise FieldError(("ops", place, "pool"), unknown("a pool", spec.pool, config.pools))


def _check_expectations(scenario: Scenario, config: EngineConfig, requests: int | None) -> None:
    for location, promise in _promises(scenario):
        for request in promise.by_request():
            _check_request(request, requests, (*location, "requests"))
        for total in promise.totals or ():
            if total not in TOTALS:
                raise FieldError((*location, "totals", total), unknown("a counter", total, TOTALS))
        for pool in promise.peak_pages or ():
            if pool.partition("@")[0] not in config.pools:
                raise FieldError((*location, "peak_pages", pool), unknown("a pool", pool, config.pools))


def _check_request(request: int | None, requests: int | None, location: tuple[str | int, ...]) -> None:
    if request is not None and requests is not None and request >= requests:
        raise FieldError(location, f"expected the id of one of {requests} requests (from 0), found {request}")
