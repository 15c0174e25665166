"""Measures the cost of delay scheduling, relative to Tiresias, on the Venus trace with a network.

    python benches/python/venus_network.py [REPEATS]

The cluster has 133 servers of 8 GPUs in racks of 8. All 125,303 jobs run, with models in the shares
of `synth:dally-batch`. The links are `pcie-25g` and compute times are unscaled (BERT-large takes
0.5 s, our own choice). The load is that of the trace, and twice that load, at which jobs queue. For
each load and policy the script prints the least CPU seconds of interleaved runs in one process, and
counts that depend on no machine.

The links and compute times `dally-2024` are not used. With them, gangs of MobileNetV3 and ResNet18
keep 0.5 and 3.5 % of their speed across racks, so two days become 400 and 57 days. The cluster is
then overloaded many times: under tiresias the 194 days of the trace end after 1,869 days, under
dally even later, and most events are ends of leases while no job arrives. Such a run measures the
length of the tail, not the cost of an event.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lines import Line, told

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tiresias", {}),
    ("tiresias", {"skew": "oracle"}),
    ("dally", {}),
)
LIMIT = 4.0


def shared() -> Path | None:
    """Return the folder of the public traces."""
    places = [Path(os.environ.get("GANGLINE_SHARED", "")), ROOT.parent / "shared", ROOT / "shared"]
    return next((place for place in places if (place / "traces").is_dir()), None)


def cluster() -> gl.Cluster:
    """Return racks of eight servers with 25 Gb/s Ethernet."""
    bert = {"compute_s": 0.5, "grad_bytes": 562e6, "buckets": 66, "overlap": 0.693}
    return gl.Cluster.from_dict(
        {
            "name": "venus in racks of 8",
            "gpu_types": [{"name": "V100", "memory_gb": 32}],
            "servers": [{"count": 133, "gpu": "V100", "gpus": 8, "rack": "fill:8"}],
            "network": {
                "preset": "pcie-25g",
                "compute": "unscaled",
                "models": {"BERT-large": bert},
            },
        }
    )


def trace(folder: Path, rescale: float) -> gl.Trace:
    """Return the jobs of Venus, each with a model."""
    path = folder / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
    table = gl.read_trace(path, rescale=rescale).table
    models = gl.synth.dally_batch(jobs=len(table), seed=0).table["model"]
    if "model" in table.column_names:
        table = table.drop_columns(["model"])
    return gl.Trace.from_arrow(table.append_column("model", models))


def main(repeats: int) -> Iterator[Line]:
    """Measure the policies at both loads."""
    folder = shared()
    if folder is None:
        print("skipped: the public traces (shared/) are not here", file=sys.stderr)
        return
    for rescale in (1.0, 0.5):
        jobs, lab = trace(folder, rescale), cluster()
        taken: list[list[float]] = [[] for _ in POLICIES]
        summaries: list[dict[str, Any]] = [{} for _ in POLICIES]
        for _ in range(repeats):
            for at, (name, params) in enumerate(POLICIES):
                began = time.process_time()
                done = gl.simulate(lab, jobs, name, params=params, timeline="off")
                taken[at].append(time.process_time() - began)
                summaries[at] = done.summary
        base_s = min(taken[0])
        for (name, params), times, summary in zip(POLICIES, taken, summaries, strict=True):
            label = " ".join([name, *params.values()])
            note = (
                f"{min(times):.2f} / {base_s:.2f} CPU s, {summary['events']:,} events, "
                f"{summary['preemptions']:,} preemptions, "
                f"last finish after {summary['makespan_s'] / 86400:.1f} days"
            )
            what = f"{label}, Venus at {1 / rescale:.0f} times its load: CPU relative to tiresias"
            limit = LIMIT if name == "dally" else None
            yield Line(what, min(times) / base_s, limit, note)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
