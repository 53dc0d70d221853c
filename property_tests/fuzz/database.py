"""The example database of the machines: a folder that hypothesis shares between processes, or a Redis server."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from scenarios.errors import InputError, quote, reason_of

REDIS = "redis://"
CONNECT_S = 10.0  # seconds within which a server answers


def open_database(where: str) -> ExampleDatabase | None:
    """The database at ``where``: a folder, or ``redis://HOST:PORT/N``; ``None`` if it is empty.

    Redis is for workers on several machines that share no folder; it needs the package ``redis`` beside kvtwin.
    Raises :class:`InputError` where that is missing, where no server answers, and for a folder that cannot be made or
    written.
    """
    if not where:
        return None
    if not where.startswith(REDIS):
        try:
            Path(where).mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=where).close()  # hypothesis would go on in silence without a folder to write to
        except OSError as error:
            problem = f"expected a folder to write to, found {quote(where)}: {reason_of(error)}"
            raise InputError("--database", 0, "", problem) from error
        return DirectoryBasedExampleDatabase(where)
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ImportError as error:
        problem = f"expected the package redis, which a database at {REDIS} needs: pip install redis"
        raise InputError("--database", 0, "", problem) from error
    try:
        server = redis.Redis.from_url(where, socket_connect_timeout=CONNECT_S)
        server.ping()
    except (redis.RedisError, ValueError, OSError) as error:
        problem = f"expected a Redis server at {where}, found: {' '.join(str(error).split())}"
        raise InputError("--database", 0, "", problem) from error
    return RedisExampleDatabase(server)
