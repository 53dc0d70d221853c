"""Kinds of drafters, as they are trained: a file each."""

from __future__ import annotations

from gpu_backend.train.kinds.base import Kind
from gpu_backend.train.kinds.dflash import Dflash
from gpu_backend.train.kinds.dspark import Dspark
from gpu_backend.train.kinds.eagle3 import Eagle
from gpu_backend.train.kinds.mtp import MtpChain

KINDS: dict[str, Kind] = {kind.name: kind for kind in (Dflash(), Dspark(), Eagle(), MtpChain())}
