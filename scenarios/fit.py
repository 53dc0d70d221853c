"""Whether a request can be served at all, asked of an engine before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from model.builds import Build
from model.config import EngineConfig, RequestSpec
from model.engine import Engine
from model.events import EventLog
from model.tokens import Segment


class Fit:
    """Engines that only answer whether a single request is too large for them, one for each build of a scenario."""

    def __init__(self, configs: Mapping[str, tuple[EngineConfig, Build]]) -> None:
        self._engines = {
            name: Engine(config, build.rules, EventLog(False)) for name, (config, build) in configs.items()
        }

    def problem(self, prompt: int, output: int) -> str | None:
        """Why a request of ``prompt`` and ``output`` tokens can never run on one of the builds, or ``None``."""
        spec = RequestSpec(0, (Segment(0, prompt),), output, 0)
        for name, engine in self._engines.items():
            why = engine.refusal(spec)
            if why is not None:
                why = why.removeprefix("request 0 ")
                return f"expected a request that build {name} can serve, found {prompt} + {output} tokens: it {why}"
        return None
