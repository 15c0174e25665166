"""Reports and Gantt charts of runs: one HTML page that loads nothing, one file for Perfetto.

Examples
--------
>>> import gangline as gl
>>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
>>> table = gl.compare(lab, "synth:philly?jobs=40&seed=3&max_gpus=8", ["fifo", "srtf"])
>>> gl.report.write(table, "page.html").name
'page.html'
"""

from __future__ import annotations

from gangline.report._intervals import Bar, Interval, intervals
from gangline.report.digest import Digest, digest
from gangline.report.output import check_target, write
from gangline.report.page import render
from gangline.report.perfetto import write_gantt
from gangline.report.plain import write_tables
from gangline.report.saved import choose, load_runs

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
