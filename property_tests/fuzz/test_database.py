"""A database that several machines share: a Redis server on the loopback, spoken to over a socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Thread

import pytest
from fakeredis import TcpFakeServer

from model.faults import resolve_build
from property_tests.cli.conftest import Command, kvtwin
from property_tests.fuzz.database import open_database
from property_tests.fuzz.machines.base import machine_on, run_machine
from property_tests.fuzz.machines.engine import EngineMachine
from scenarios.errors import InputError

__all__ = ["kvtwin"]  # the fixture


@pytest.fixture
def address() -> Iterator[str]:
    """A server of its own."""
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{server.server_address[1]}/0"
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_fails_on_one_machine_is_tried_on_another(address: str) -> None:
    def machine() -> type[EngineMachine]:
        return machine_on(EngineMachine, resolve_build("fault:target-cursor"))

    assert run_machine(machine(), 1, 1, database=open_database(address), saved=True) is None, "nothing is saved yet"
    here = run_machine(machine(), 0, 40, database=open_database(address))
    there = run_machine(machine(), 1, 1, database=open_database(address), saved=True)
    assert here is not None and there is not None
    assert (there.violation, there.program.ops) == (here.violation, here.program.ops)


def test_a_campaign_goes_with_a_server(kvtwin: Command, address: str) -> None:
    order = ("fuzz", "--machine", "cache", "--build", "unified", "--examples", "4", "--workers", "1")
    assert kvtwin(*order, "--database", address, "--json").json()["examples"] == 4


@pytest.mark.parametrize("where", ["redis://127.0.0.1:1", "redis://127.0.0.1:port", "redis://127.0.0.1:6379/?db=x"])
def test_a_server_that_does_not_answer_is_one_line(kvtwin: Command, where: str) -> None:
    answer = kvtwin("fuzz", "--machine", "engine", "--examples", "1", "--workers", "1", "--database", where)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"kvtwin: --database: expected a Redis server at {where}, found: ")


def test_without_the_client_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InputError, match=r"^--database: expected the package redis"):
        open_database("redis://127.0.0.1:1")
