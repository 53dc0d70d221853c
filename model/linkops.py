"""Ops of a link between two workers: a transfer starts, arrives, or is lost."""

from __future__ import annotations

from typing import NamedTuple


class Send(NamedTuple):
    """The decode worker admits a prefilled request and its pages begin to travel."""

    request_id: int


class Arrive(NamedTuple):
    """A transfer ends: all its bytes are written."""

    request_id: int


class Abort(NamedTuple):
    """A transfer ends: it is lost and writes no more. The request can be sent again, or is prefilled anew."""

    request_id: int
    recompute: bool = False


LinkOp = Send | Arrive | Abort
