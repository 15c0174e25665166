"""Measures rounds of pollux in a running simulation: 1,000 elastic jobs on 4,096 GPUs.

    python benches/python/pollux_rounds.py [JOBS] [GPUS]

It prints the CPU milliseconds of deciding and of carrying out each of about thirty rounds. Jobs
grow from one GPU on, pass phases of gradient noise, end, and are replaced by others.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from lines import Line, told

import gangline as gl
from gangline import _core
from gangline.policies.registry import make
from gangline.runs.options import CheckedOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 30
LIMIT_MS = 50.0
MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "yolov3")
SAMPLES = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "yolov3": 8}


def world(jobs: int, gpus: int) -> tuple[gl.Cluster, gl.Trace]:
    """Return servers of four GPUs, and jobs of hours to days, of which a tenth arrive later."""
    draw = np.random.default_rng(0)
    data = gl.Cluster.homogeneous(servers=gpus // 4, gpus=4, gpu="T4").to_dict()
    models = gl.Cluster.from_dict({**data, "elastic": {"preset": "pollux-fits"}}).to_dict()
    for model in models["elastic"]["models"].values():
        scale = model.pop("noise_scale") / model["init_batch"]
        ends = np.linspace(0.0, 0.95, 20)
        model["noise"] = [[float(at), 1.0, float(scale * (0.2 + 2.0 * at))] for at in ends]
    count = jobs + jobs // 10
    labels = draw.choice(MODELS, count).tolist()
    arrival = np.where(np.arange(count) < jobs, 0.0, draw.uniform(0.0, 60.0 * ROUNDS, count))
    order = np.argsort(arrival, kind="stable")
    table = pa.table(
        {
            "job_id": [str(at) for at in range(count)],
            "arrival_s": arrival[order],
            "gpus": pa.array(np.ones(count), pa.int32()),
            "duration_s": 10.0 ** draw.uniform(3.7, 6.0, count),
            "model": labels,
            "batch_size": pa.array([SAMPLES[label] for label in labels], pa.int32()),
        }
    )
    return gl.Cluster.from_dict(models), gl.Trace.from_arrow(table)


def measured(jobs: int, gpus: int) -> list[float]:
    """Return the CPU milliseconds of each round."""
    cluster, trace = world(jobs, gpus)
    options = CheckedOptions(restart_s=30.0, first_start_s=30.0, skip_rounds=False, timeline="off")
    simulation = _core.Simulation(
        cluster.to_core(),
        trace.to_core(cluster),
        options.to_core(cluster, [], None),
        "pollux",
        make("pollux", None).params(),
    )
    taken = []
    while len(taken) < ROUNDS and simulation.advance() == "decision":
        begin = time.process_time()
        simulation.decide()
        taken.append(1e3 * (time.process_time() - begin))
        active = len(simulation.running()) + len(simulation.waiting())
        assert active >= 0.9 * jobs, "too few jobs are left"
    assert len(taken) == ROUNDS, "the run is over too soon"
    moves = simulation.output().summary()["migrations"]
    assert moves > jobs, f"the rounds have little to do: {moves} moves"
    return taken


def main(jobs: int = 1_000, gpus: int = 4_096) -> Iterator[Line]:
    """Measure the rounds."""
    found = measured(jobs, gpus)
    note = f"median {statistics.median(found):.2f}, all: {' '.join(f'{ms:.1f}' for ms in found)}"
    name = f"pollux, {jobs:,} elastic jobs on {gpus:,} GPUs: CPU ms of the longest round"
    yield Line(name, max(found), LIMIT_MS, note)


if __name__ == "__main__":
    sys.exit(told(main(*map(int, sys.argv[1:]))))
