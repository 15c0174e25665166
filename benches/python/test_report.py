"""A report of eight policies on 100,000 jobs: what it costs beyond the runs, and how large it is.

python -m pytest benches/python/test_report.py --benchmark-only
"""

from __future__ import annotations

import gangline as gl

POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias", "easy", "ssf")
MOST_BYTES = 6_000_000
TRACE = "synth:philly?jobs=100000&seed=1&max_gpus=16&cluster_gpus=64&load=1.0"


def test_report_of_eight_policies(benchmark, tmp_path):
    trace = gl.read_trace(TRACE)

    def runs():
        return (
            gl.compare("pollux-64", trace, POLICIES, restart_s=60.0),
            tmp_path / "page.html",
        ), {}

    page = benchmark.pedantic(gl.report.write, setup=runs, rounds=3, warmup_rounds=1)
    size = page.stat().st_size
    benchmark.extra_info["bytes"] = size
    assert size < MOST_BYTES
