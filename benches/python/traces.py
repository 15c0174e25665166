"""CPU seconds of policies on a public trace, with whichever gangline is on PYTHONPATH.

    python benches/python/traces.py TRACE REPEATS POLICY ...

TRACE is `philly`, `venus` or `pai`: the trace on a cluster like its own, of which it uses 15, 48
and 7 percent; with `-full` behind the name arrivals are compressed until they ask for all of it.
Prints a JSON line per policy: the least CPU seconds of a run, without reading and writing, and
counts that no machine changes. It uses only what every revision has: `benches/against.py` runs it
on two of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import gangline as gl

ROOT = Path(__file__).resolve().parents[2]
# file, cluster, share of the cluster that the trace uses
TRACES = {
    "philly": ("philly-sia/philly.csv.gz", "philly", 0.150),
    "venus": ("helios-venus-gpu/helios_trace.csv.gz", "venus", 0.485),
    "pai": ("pai2020-gpu-sub/alibaba_trace_sub.csv.gz", "pai", 0.067),
}
COUNTS = ("events", "decisions", "preemptions", "jct_mean_s")


def shared() -> Path | None:
    """Where the public traces are."""
    places = [Path(os.environ.get("GANGLINE_SHARED", "")), ROOT.parent / "shared", ROOT / "shared"]
    return next((place for place in places if (place / "traces").is_dir()), None)


def main(name: str, repeats: int, policies: list[str]) -> None:
    """Measure each policy."""
    folder = shared()
    if folder is None:
        print("traces skipped: the public traces (shared/) are not here", file=sys.stderr)
        return
    base, _, is_full = name.partition("-")
    place, preset, used = TRACES[base]
    path = folder / "traces" / place
    trace = gl.read_trace(path, rescale=used if is_full else 1.0)
    cluster = gl.Cluster.preset(preset)
    gl.simulate(cluster, trace, "fifo", on_infeasible="drop")  # what is loaded once
    for policy in policies:
        taken = []
        for _ in range(repeats):
            began = time.process_time()
            result = gl.simulate(cluster, trace, policy, on_infeasible="drop")
            taken.append(time.process_time() - began)
        counts = [result.summary[key] for key in COUNTS]
        print(json.dumps({"policy": policy, "cpu_s": min(taken), "counts": counts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
