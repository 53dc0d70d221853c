"""The room's front door for the command line."""

from gpu_backend.al.session import measure
from gpu_backend.replay.drills import drill
from gpu_backend.replay.session import replay

__all__ = ["drill", "measure", "replay"]
