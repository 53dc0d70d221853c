"""The docket names each broken law once per request, and an id that is used again is another request."""

from __future__ import annotations

import pytest

from model.invariants import Docket, Violation
from property_tests.laws.healthy import FIRST, finish, healthy, step


def broken(request: int, code: str = "KEY") -> Violation:
    return Violation(code, "a law is broken", request, "target")


def test_a_law_is_reported_once_while_its_request_lives() -> None:
    docket = Docket()
    docket.submitted(3)
    for violation in (broken(3), broken(3), broken(3, "PUB"), broken(4)):
        docket.report(violation)
    assert [(violation.code, violation.request) for violation in docket.violations] == [
        ("KEY", 3),
        ("PUB", 3),
        ("KEY", 4),
    ]


def test_the_next_request_of_the_same_id_is_judged_anew() -> None:
    docket = Docket()
    docket.submitted(3)
    docket.report(broken(3))
    first = docket.life(3)
    docket.submitted(3)
    assert docket.broken(3, first)
    assert not docket.broken(3, docket.life(3))
    for _ in range(2):
        docket.report(broken(3))
    assert len(docket.violations) == 2
    assert docket.broken(3, docket.life(3))


def test_workers_agree_on_which_request_has_an_id() -> None:
    whole = Docket()
    here, there = whole.of_worker(0), whole.of_worker(1)
    here.submitted(3)
    there.report(broken(3))
    here.submitted(3)
    there.report(broken(3))
    assert [violation.worker for violation in whole.violations] == [1, 1]
    assert here.life(3) == there.life(3) == 1


@pytest.mark.parametrize("check", ["incremental", "exhaustive"])
def test_a_half_suspended_request_is_noticed_though_nobody_counted_it(check: str) -> None:
    world = healthy("paired-22", check=check)
    owner = world.engine.live[FIRST].owner
    world.engine.twin.target.sequences[owner].suspend()
    step(world)
    assert [(violation.code, violation.request) for violation in world.violations[:1]] == [("REF", FIRST)]
    assert world.violations[0].message == "one pool of a request is locked, the other is not"
    finish(world)
