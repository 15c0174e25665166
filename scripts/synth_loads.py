"""Measures how far the load of drawn traces is from `load=`, and writes the guide's table.

    .venv/bin/python scripts/synth_loads.py [--seeds 1000]

The table is in docs/guides/synthetic-traces.md between two comments. Each row draws a workload with
every seed and counts the GPU-seconds of its jobs one by one. The jobs of `hadar` have a rate on
each GPU type, so `gangline.offered_load` divides them among the types. The script takes some
minutes.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import gangline as gl

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/guides/synthetic-traces.md"
TABLE = re.compile(r"(?<=<!-- loads: scripts/synth_loads.py -->\n).*?(?=<!-- -->)", re.S)
LOAD, GPUS, DAY_S = 1.1, 64, 86400
IN_CORE = ("philly", "helios", "pai", "uniform")
WORLDS = {
    **{
        (shape, cut): f"{shape}?jobs=1000&max_gpus=16&cluster_gpus={GPUS}&load={LOAD}"
        + (f"&max_duration_s={cut}" if cut else "")
        for shape in IN_CORE
        for cut in (None, DAY_S)
    },
    ("hadar", None): f"hadar?arrivals=poisson&load={LOAD}",
}
"""What is drawn, by generator and longest duration."""


def offered(trace: gl.Trace) -> float:
    """Return the load of a trace, by a plain count if no job has iterations."""
    if "iterations" in trace.columns:
        load = gl.offered_load("hadar-60", trace).load
        assert load is not None
        return load
    gpus, seconds, arrivals = (
        trace.column(name).to_pylist() for name in ("gpus", "duration_s", "arrival_s")
    )
    work = 0.0
    for job, count in enumerate(gpus):
        work += count * seconds[job]
    span_s: float = arrivals[-1] - arrivals[0]
    return work / (GPUS * span_s)


def deviation(world: tuple[str, int | None], seeds: range) -> float:
    """Return the largest relative distance of a drawn trace from the requested load."""
    return max(
        abs(offered(gl.read_trace(f"synth:{WORLDS[world]}&seed={seed}")) / LOAD - 1.0)
        for seed in seeds
    )


def table(seeds: int) -> str:
    """Return the table in Markdown."""
    lines = ["| generator | longest job | draws | largest deviation |", "|---|---|---|---|"]
    for world in WORLDS:
        name, cut = world
        longest = "as drawn" if cut is None else f"{cut:,} s"
        share = deviation(world, range(seeds))
        lines.append(f"| `{name}` | {longest} | {seeds:,} | {100.0 * share:.2g} % |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    rows = table(parser.parse_args().seeds)
    PAGE.write_text(TABLE.sub(lambda _: rows, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
