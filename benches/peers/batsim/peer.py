"""Lets schedulers of pybatsim 3.2.1 decide a run of gangline by Batsim's protocol.

Batsim itself is not run, because its packages are for Nix and its dependencies are built from
source. Its schedulers are a package of the Python index and run unchanged in the peers' own
environment. They need one number for each GPU, and gangs on consecutive numbers.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import workload

import gangline as gl

if TYPE_CHECKING:
    from pathlib import Path

JOBS, SERVERS, GPUS_PER_SERVER = 300, 4, 4
TIMEOUT_S = 60.0


class World(NamedTuple):
    """A scheduler of pybatsim, a policy of gangline, and the jobs for both."""

    scheduler: str
    policy: str
    widest: int
    """GPUs of the widest gang; wider ones are cut."""
    load: float
    """Of jobs whose gangs are not cut."""


WORLDS = (
    World("schedFcfs", "fifo", 1, 4.0),
    World("easyBackfill", "easy", 1, 4.0),
    World("easyBackfill", "easy", 16, 0.9),
)


def jobs(world: World) -> gl.Trace:
    """Return the jobs; pybatsim does not start a job at 0 s, so the first arrives at 10 s."""
    drawn = workload.philly_like(JOBS, SERVERS * GPUS_PER_SERVER, world.load).whole_seconds()
    columns = {
        "job_id": np.arange(JOBS).astype(str),
        "arrival_s": drawn.arrival_ns / 1e9 + 9.0,
        "gpus": np.minimum(drawn.gpus, world.widest),
        "duration_s": drawn.duration_ns / 1e9,
    }
    return gl.Trace.from_arrow(pa.table(columns))


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def compare(world: World, python: Path) -> dict[str, Any]:
    """Run both sides; `python` is the interpreter of the peers' environment."""
    cluster = gl.Cluster.homogeneous(servers=SERVERS, gpus=GPUS_PER_SERVER)
    trace = jobs(world)
    address = f"127.0.0.1:{free_port()}"
    command = [str(python.with_name("pybatsim")), world.scheduler, "-s", f"tcp://{address}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with (
        tempfile.TemporaryDirectory() as folder,  # pybatsim writes a log into its working folder
        subprocess.Popen(command, cwd=folder, **quiet) as scheduler,
    ):
        try:
            theirs = gl.serve_batsim(
                gl.Simulation(cluster, trace), address, knowledge="remaining", timeout_s=TIMEOUT_S
            )
        finally:
            scheduler.kill()
    ours = gl.simulate(cluster, trace, world.policy, params={"placement": "count"})
    starts = [one.jobs["first_start_s"].to_numpy() for one in (theirs, ours)]
    gangs = "jobs of one GPU" if world.widest == 1 else f"gangs of up to {world.widest}"
    same = int((starts[0] == starts[1]).sum())
    return {
        "peer": "pybatsim 3.2.1",
        "theirs": world.scheduler,
        "ours": world.policy,
        "world": f"{JOBS} {gangs}, {SERVERS * GPUS_PER_SERVER} GPUs",
        "measure": "mean wait",
        "values": [one.summary["wait_mean_s"] for one in (theirs, ours)],
        "same": f"{same} of {JOBS} starts",
        "times_cpu": None,
        "as_expected": world.widest > 1 or same == JOBS,
    }
