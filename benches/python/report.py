"""Measures the cost of a report beyond its runs (eight policies, 100,000 jobs), and its size.

python benches/python/report.py [REPEATS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lines import Line, told

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias", "easy", "ssf")
TRACE = "synth:philly?jobs=100000&seed=1&max_gpus=16&cluster_gpus=64&load=1.0"
LIMIT_S, LIMIT_BYTES = 3.0, 1_000_000


def main(repeats: int) -> Iterator[Line]:
    """Write the page a few times, always for a new comparison, which has no drawings yet."""
    trace = gl.read_trace(TRACE)
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            # with segments, as `gangline compare --html` runs them
            runs = gl.compare("pollux-64", trace, POLICIES, restart_s=60.0, segments=True)
            began = time.process_time()
            page = gl.report.write(runs, Path(folder) / f"{number}.html")
            taken.append(time.process_time() - began)
        size = page.stat().st_size
    name = "report of eight policies on 100,000 jobs"
    note = f"least of {repeats}, the first {taken[0]:.2f}"
    yield Line(f"{name}: CPU s beyond the runs", min(taken), LIMIT_S, note)
    yield Line(f"{name}: bytes", size, LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(told(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
