"""Workers on other machines: a Dask cluster as a crew. Only this file knows Dask."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

from scenarios.errors import InputError, quote

CONNECT_S = 10  # seconds within which a scheduler answers
TELL_S, WORKERS_S = 3.0, 60.0  # without any worker, until that is told and until it is given up
LOOK_S = 0.2
SCHEMES = ("tcp", "tls", "ws", "wss", "ucx")


class Cluster:
    """The workers of the scheduler at ``address``, such as ``tcp://host:8786``.

    Raises :class:`InputError` where Dask is not installed or nobody answers. A worker that dies loses nothing: the
    scheduler hands its shard to another.
    """

    def __init__(self, address: str) -> None:
        scheme, found, rest = address.partition("://")
        host, colon, port = (rest if found else address).rpartition(":")
        if (found and scheme not in SCHEMES) or not colon or not host or not port.isdigit():
            problem = f"expected the address of a scheduler, tcp://HOST:PORT, found {quote(address)}"
            raise InputError("--cluster", 0, "", problem)
        self.address = address
        self.here = False
        self.fate = ""
        try:
            import distributed
        except ImportError as error:
            problem = "expected Dask, which --cluster needs: pip install 'kvtwin[cluster]'"
            raise InputError("--cluster", 0, "", problem) from error
        self._distributed = distributed
        for name in ("distributed.client", "distributed.comm", "distributed.batched"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what it tells of a lost scheduler is told here
        try:
            self._client = self._connect()
            self._executor: Executor = self._client.get_executor(pure=False)
            self._count_lanes()
        except OSError as error:
            raise self._silent() from error

    def await_workers(self, note: Callable[[str], None]) -> None:
        """Wait until one worker is there at least; ``note`` is told that this takes long.

        Raises :class:`InputError` where none comes, and where the scheduler goes.
        """
        began, told = time.monotonic(), False
        try:
            while not self._threads():
                waited = time.monotonic() - began
                if waited > WORKERS_S:
                    problem = f"expected a worker within {WORKERS_S:g} s, found none at the scheduler {self.address}"
                    raise InputError("--cluster", 0, "", problem)
                if waited > TELL_S and not told:
                    note(f"the scheduler at {self.address} has no workers; waiting {WORKERS_S:g} s for one")
                    told = True
                time.sleep(LOOK_S)
        except OSError as error:
            raise self._silent() from error

    def ask(self, lack: Callable[..., str], *arguments: object) -> None:
        """Call ``lack`` on every worker that is there: a sentence on what one lacks is an :class:`InputError`."""
        try:
            answers = self._client.run(lack, *arguments, on_error="return")
        except OSError as error:
            raise self._silent() from error
        for worker, answer in sorted(answers.items()):
            if isinstance(answer, BaseException):
                answer = f"expected a worker that can run kvtwin, found {type(answer).__name__}: {answer}"
            if answer:
                raise InputError("--cluster", 0, f"worker {worker}", answer)

    def _silent(self) -> InputError:
        return InputError("--cluster", 0, "", f"expected a scheduler at {self.address}, found none that answers")

    @property
    def executor(self) -> Executor:
        """The cluster as an executor."""
        return self._executor

    @property
    def lanes(self) -> int:
        """Threads of all workers that are there now; one at least, so that work waits for the first worker."""
        try:
            return self._count_lanes()
        except OSError:
            return 1  # lost: its futures tell

    @property
    def deserted(self) -> bool:
        """Whether there is no worker at all."""
        try:
            return not self._threads()
        except OSError:
            return False  # lost, which is another matter

    @property
    def unreachable(self) -> bool:
        """Whether the scheduler does not answer."""
        try:
            self._threads()
        except OSError:
            return True
        return False

    def drop(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel them, also those that run."""
        for future in futures:
            future.cancel()

    def kill(self) -> None:
        """The processes are not ours to end."""

    def renew(self) -> None:
        """Connect again; OSError, in words, where the scheduler is gone."""
        self._close(1)
        try:
            self._client = self._connect()
        except OSError as error:
            raise OSError(f"the cluster at {self.address} is gone") from error
        self._executor = self._client.get_executor(pure=False)

    def leave(self, at_once: bool) -> None:
        """Close the connection; the cluster is not ours to end."""
        self._close(1 if at_once else CONNECT_S)

    def _close(self, seconds: float) -> None:
        """Close the client; one whose scheduler died may fail at that, which changes nothing for what comes after."""
        with suppress(OSError, RuntimeError):
            self._client.close(timeout=seconds)

    def _connect(self) -> Any:
        return self._distributed.Client(self.address, timeout=CONNECT_S, set_as_default=False)

    def _count_lanes(self) -> int:
        return max(1, self._threads())

    def _threads(self) -> int:
        """Threads of all workers; OSError where the scheduler does not answer, which may be a matter of seconds."""
        ask = self._client.scheduler.ncores  # what Client.nthreads asks, which would wait for ever
        return sum(self._client.sync(ask, workers=None, callback_timeout=CONNECT_S).values())
