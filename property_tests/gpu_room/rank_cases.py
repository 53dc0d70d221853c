"""Started by torch's launcher: every process runs each case as its rank, and writes what it reports as JSON lines.

``python -m torch.distributed.run --nproc-per-node N -m property_tests.gpu_room.rank_cases FOLDER DEVICE CASE...``; a
case is ``SCENARIO,BUILD,PLANT,PATIENCE,DTYPE`` with an empty BUILD for the scenario's own and an empty PLANT for none;
the dtype may be left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gpu_backend.parallel.__main__ import DTYPES
from gpu_backend.parallel.meeting import Meeting
from gpu_backend.parallel.plants import Plant
from gpu_backend.parallel.session import run_rank
from scenarios import catalog
from sim.rulespec import find


def main(folder: Path, kind: str, cases: list[str]) -> None:
    """Run ``cases`` one after the other. Their meetings have names of their own, so none hears of the one before."""
    torch.set_num_threads(1)
    place = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", place) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    with (folder / f"rank{os.environ['RANK']}.jsonl").open("w") as out:
        for number, case in enumerate(cases):
            name, build, plant, patience, *dtype = case.split(",")
            scenario = catalog.load(name)
            meeting = Meeting.joined(device, float(patience), f"case {number}")
            fault = Plant.parsed(plant, meeting.ranks) if plant else None
            found = run_rank(
                scenario,
                find(build or scenario.build),
                meeting,
                device,
                fault,
                DTYPES[dtype[0] if dtype else "float32"],
            )
            out.write(found.encoded() + "\n")
            out.flush()
            if number + 1 < len(cases):
                dist.destroy_process_group()
    os._exit(0)  # a collective that hangs holds up every orderly end


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
