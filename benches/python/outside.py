"""Measures the cost of a run outside its event loop: reading, converting and writing tables.

    python benches/python/outside.py TRACE.parquet CLUSTER.toml POLICY OUT REPEATS

Prints one JSON line with the medians. The loop is ``wall_s`` of the summary; everything else from
the trace file to the result on disk is outside. CPU seconds are judged, because Arrow reads and
writes with more than one thread, and wall seconds would include other work of the machine.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from pathlib import Path

import gangline as gl


def once(trace_path: str, cluster: gl.Cluster, policy: str, out: Path) -> dict[str, float]:
    """Return the wall and CPU seconds of the parts of one run."""
    marks = [(time.perf_counter(), time.process_time())]
    trace = gl.read_trace(trace_path)
    marks.append((time.perf_counter(), time.process_time()))
    result = gl.simulate(cluster, trace, policy)
    marks.append((time.perf_counter(), time.process_time()))
    result.save(out)
    marks.append((time.perf_counter(), time.process_time()))
    wall = [after[0] - before[0] for before, after in itertools.pairwise(marks)]
    cpu = [after[1] - before[1] for before, after in itertools.pairwise(marks)]
    loop_s = float(result.summary["wall_s"])
    around_s = wall[1] - loop_s
    return {
        "read_s": wall[0],
        "loop_s": loop_s,
        "around_loop_s": around_s,
        "save_s": wall[2],
        "loop_cpu_s": cpu[1] - around_s,
        "outside_cpu_s": cpu[0] + around_s + cpu[2],
    }


def main() -> int:
    """Run the command line."""
    trace_path, cluster_path, policy, out, repeats = sys.argv[1:]
    cluster = gl.Cluster.from_toml(cluster_path)
    runs = [
        once(trace_path, cluster, policy, Path(out) / str(run)) for run in range(int(repeats) + 1)
    ][1:]
    print(json.dumps({key: statistics.median(run[key] for run in runs) for key in runs[0]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
