"""Measures the cost of a policy in Python compared with the same policy of the registry.

    python benches/python/python_policies.py [REPEATS]

It makes three comparisons of the least CPU seconds of runs, interleaved in one process:

- FIFO in Python over `fifo` on the public Venus trace, 125,303 jobs on 133 servers of 8 GPUs (left
  out if the trace is missing): this is the cost of a decision in Python;
- SRTF in Python, whose preemptive pass is `order.repack`, over `srtf` on 10,000 jobs that contend
  for 64 GPUs;
- a decision of both with 20,000 waiting jobs over one with 1,000: this is the cost of the queue.

Both runs of a pair leave the same log.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from lines import Line, told
from venus_network import shared

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW, MANY = 1_000, 20_000


class Fifo(gl.Policy):
    """Starts jobs in order of arrival; the first job that does not fit blocks all later ones."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        """Start jobs until one does not fit."""
        plan = gl.Plan(view)
        for job in gl.orders.fifo(view):
            if not plan.place(job):
                break
        return plan


class Srtf(gl.Policy):
    """Shortest remaining time first, with preemption."""

    knowledge = "remaining"

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        """Run the jobs with the least remaining work."""
        plan = gl.Plan(view)
        gl.orders.srtf(view).repack(plan)
        return plan


def cpu_s(
    lab: gl.Cluster, jobs: gl.Trace, policy: gl.Policy | str, until_s: float | None = None
) -> tuple[float, gl.Result]:
    """Return the CPU seconds of a run, and the run."""
    began = time.process_time()
    done = gl.simulate(lab, jobs, policy, timeline="off", until_s=until_s)
    return time.process_time() - began, done


def over(name: str, lab: gl.Cluster, jobs: gl.Trace, own: gl.Policy, repeats: int) -> Line:
    """Compare a policy in Python with the same policy of the registry."""
    limit = {"fifo": 15.0, "srtf": 25.0}[name]
    pairs = [(cpu_s(lab, jobs, own), cpu_s(lab, jobs, name)) for _ in range(repeats)]
    (_, mine), (_, theirs) = pairs[-1]
    assert mine.log_hash == theirs.log_hash, f"{name}: the twin leaves another log"
    slow, fast = (min(pair[side][0] for pair in pairs) for side in (0, 1))
    decisions = mine.summary["decisions"]
    note = f"{slow:.3g} / {fast:.3g} CPU s, {1e6 * slow / decisions:.1f} us a decision"
    what = f"{name} in Python, {len(jobs.table):,} jobs: CPU over {name}"
    return Line(what, slow / fast, limit, f"{note}, {mine.summary['preemptions']:,} preemptions")


def queue(waiting: int, longer: float) -> tuple[gl.Trace, float]:
    """Return jobs that all arrive at once, then a stream of jobs at the rate of service.

    The first jobs are longer than those of the stream by a factor. Under SRTF the jobs of the
    stream overtake them, and under FIFO one job arrives when one ends, so the queue stays about
    equally long. The result also has the instant at which the stream has arrived.
    """
    rng = np.random.default_rng(1)
    stream, each_s = 10_000, 3600.0
    at = np.cumsum(rng.exponential(each_s / 64, stream)) + 1.0
    table = pa.table(
        {
            "job_id": [f"{n}" for n in range(waiting + stream)],
            "arrival_s": np.concatenate([np.zeros(waiting), at]),
            "gpus": pa.array(np.ones(waiting + stream), pa.int32()),
            "duration_s": np.concatenate(
                [
                    longer * rng.exponential(each_s, waiting) + longer,
                    rng.exponential(each_s, stream) + 1.0,
                ]
            ),
        }
    )
    return gl.Trace.from_arrow(table), float(at[-1])


def growth(name: str, own: gl.Policy, longer: float, repeats: int) -> Line:
    """Compare a decision with many waiting jobs with a decision with few."""
    lab = gl.Cluster.homogeneous(servers=8, gpus=8)
    worlds = [queue(waiting, longer) for waiting in (FEW, MANY)]
    starts, runs = [float("inf")] * 2, [float("inf")] * 2
    asked = [0, 0]
    for _ in range(repeats + 1):
        for side, (jobs, until_s) in enumerate(worlds):
            start_s, first = cpu_s(lab, jobs, own, until_s=0.5)
            run_s, last = cpu_s(lab, jobs, own, until_s=until_s)
            starts[side], runs[side] = min(starts[side], start_s), min(runs[side], run_s)
            asked[side] = last.summary["decisions"] - first.summary["decisions"]
    best = [1e6 * (runs[side] - starts[side]) / asked[side] for side in (0, 1)]
    what = f"{name} in Python: a decision with {MANY:,} over one with {FEW:,} waiting"
    return Line(what, best[1] / best[0], 1.5, f"{best[1]:.1f} / {best[0]:.1f} us")


def main(repeats: int) -> Iterator[Line]:
    """Make all three comparisons."""
    folder = shared()
    if folder is None:
        print("skipped: the public traces (shared/) are not here", file=sys.stderr)
    else:
        path = folder / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
        lab = gl.Cluster.homogeneous(servers=133, gpus=8)
        yield over("fifo", lab, gl.read_trace(path), Fifo(), repeats)
    jobs = gl.synth.pai(jobs=10_000, seed=1, max_gpus=16)
    yield over("srtf", gl.Cluster.preset("pollux-64"), jobs, Srtf(), repeats)
    yield growth("fifo", Fifo(), 1.0, repeats)
    yield growth("srtf", Srtf(), 1e4, repeats)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)))
