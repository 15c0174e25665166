"""Ranks policies on a frozen suite of worlds; only policies with the same knowledge compete.

The project's folder `benches` is unrelated: it measures the speed of gangline itself.

Examples
--------
>>> import gangline as gl, tempfile
>>> done = gl.bench.bench(["fifo", "srtf"], quick=True, out=tempfile.mkdtemp(), workers=1)
>>> [row["policy"] for row in done.rows if row["run"] and row["knowledge"] == "durations"]
['srtf']
"""

from gangline.studies.bench.run import Bench, bench
from gangline.studies.bench.submission import Verified, verify, write_row
from gangline.studies.bench.suite import Suite, load_suite, suites

__all__ = ["Bench", "Suite", "Verified", "bench", "load_suite", "suites", "verify", "write_row"]
