"""``python -m torch.distributed.run --nproc-per-node N -m gpu_backend.parallel SCENARIO``, or ``--ranks N`` without it.

Every process is a rank: an engine, pools and a device of its own, and a share of target and drafter. Rank 0 prints a
line a rank and what is wrong. Exit codes: 0 fine, 1 a law broken or a memory or an output that differs, 2 bad input,
3 nothing was compared, 4 a crash. The launcher of torch makes 1 of every other failure; ``--ranks`` passes codes on.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence

import torch
import torch.distributed as dist

from gpu_backend.parallel.meeting import Meeting
from gpu_backend.parallel.plants import PLANTS, Plant
from gpu_backend.parallel.processes import exchanged, started
from gpu_backend.parallel.report import exit_code, lines
from gpu_backend.parallel.session import configs_of, run_rank
from model.builds import Build
from scenarios import catalog
from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.rulespec import find

USAGE, CRASHED = 2, 4
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(arguments: Sequence[str]) -> int:
    """Be one rank, or start them; an exit code."""
    options = _parser().parse_args(arguments)
    if "RANK" in os.environ:  # a launcher ends all once one has failed: those that live first say what they found
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ranks = int(os.environ.get("WORLD_SIZE", options.ranks or 0))
    rank = int(os.environ.get("RANK", 0))
    try:
        scenario, build, plant = _asked(options, ranks)
        device = _device(options.device, int(os.environ.get("LOCAL_RANK", rank)), ranks)
    except InputError as error:
        if rank == 0:
            print(error, file=sys.stderr)
        return USAGE
    if "RANK" not in os.environ:
        return started(ranks, arguments, options.timeout)
    return _be_rank(scenario, build, plant, device, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_backend.parallel", description="a scenario on tensor-parallel processes")
    parser.add_argument("scenario", help="a scenario's file or name; its workers, if any, are tensor-parallel")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda if there is one")
    parser.add_argument("--build", help="default: the scenario's")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of weights and K/V")
    parser.add_argument("--ranks", type=int, help="start so many processes here (without torch.distributed.run)")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that a rank waits for the others")
    faults = "; ".join(f"{name}: {text}" for name, text in PLANTS.items())
    parser.add_argument("--plant", metavar="NAME[@RANK[:NUMBER]]", help=f"a fault of one rank. {faults}")
    return parser


def _asked(options: argparse.Namespace, ranks: int) -> tuple[Scenario, Build, Plant | None]:
    if ranks < 1:
        raise InputError("ranks", 0, "", "expected --ranks N, or torch.distributed.run, found neither")
    if not options.timeout > 0:
        raise InputError("timeout", 0, "", f"expected seconds above 0, found {options.timeout:g}")
    scenario = catalog.load(options.scenario)
    build = find(options.build or scenario.build)
    configs_of(scenario, build, ranks)
    return scenario, build, None if options.plant is None else Plant.parsed(options.plant, ranks)


def _device(name: str | None, place: int, ranks: int) -> torch.device:
    """The device of the process at ``place`` on its machine."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name is None and not count):
        return torch.device("cpu")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if count < here:
        raise InputError("device", 0, "", f"expected a CUDA device for each of {here} processes, found {count}")
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


def _be_rank(
    scenario: Scenario, build: Build, plant: Plant | None, device: torch.device, options: argparse.Namespace
) -> int:
    if device.type == "cpu":
        torch.set_num_threads(1)
    meeting = Meeting.joined(device, options.timeout)
    try:
        own = run_rank(scenario, build, meeting, device, plant, DTYPES[options.dtype])
    except InputError as error:
        if meeting.rank == 0:
            print(error, file=sys.stderr)
        return USAGE
    except Exception:
        traceback.print_exc()
        return CRASHED
    reports = exchanged(meeting, own)
    code = exit_code([own])
    if reports is not None:
        code = exit_code(reports)
        print("\n".join(lines(reports)), flush=True)
        meeting.store.set("told", "")
    if own.stopped:
        sys.stdout.flush()
        os._exit(code)  # a collective that hangs holds up every orderly end
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
