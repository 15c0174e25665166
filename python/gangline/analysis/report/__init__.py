"""Writes reports and Gantt charts of runs: a self-contained HTML page, or a file for Perfetto.

Examples
--------
>>> import gangline as gl
>>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
>>> table = gl.compare(lab, "synth:philly?jobs=40&seed=3&max_gpus=8", ["fifo", "srtf"])
>>> gl.report.write(table, "page.html").name
'page.html'
"""

from __future__ import annotations

from gangline.analysis.report._intervals import Bar, Interval, intervals
from gangline.analysis.report.digest import Digest, digest
from gangline.analysis.report.output import check_target, write
from gangline.analysis.report.page import render
from gangline.analysis.report.perfetto import write_gantt
from gangline.analysis.report.plain import write_tables
from gangline.analysis.report.saved import choose, load_runs

__all__ = [
    "Bar",
    "Digest",
    "Interval",
    "check_target",
    "choose",
    "digest",
    "intervals",
    "load_runs",
    "render",
    "write",
    "write_gantt",
    "write_tables",
]
