"""The example database of the machines: a folder that hypothesis shares between processes, or a Redis server."""

from __future__ import annotations

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from scenarios.errors import InputError

REDIS = "redis://"
CONNECT_S = 10.0  # seconds within which a server answers


def open_database(where: str) -> ExampleDatabase | None:
    """The database at ``where``: a folder, or ``redis://HOST:PORT/N``; ``None`` if it is empty.

    Redis is for workers on several machines that share no folder; it needs the package ``redis`` beside kvtwin.
    Raises :class:`InputError` where that is missing, and where no server answers.
    """
    if not where:
        return None
    if not where.startswith(REDIS):
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
