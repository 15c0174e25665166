"""Draws the figure of the README: completion times of the bundled trace by policy.

    .venv/bin/python scripts/figure.py

It needs a build, and the runs take a moment. The picture depends on the trace and the policies
alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import gangline as gl
from gangline.analysis.report import _svg, digest
from gangline.analysis.report.charts import charts

ROOT = Path(__file__).resolve().parent.parent
TRACE = "mini:philly"
PICTURE = ROOT / "docs" / "_static" / "jct.svg"
CLUSTER = "pollux-64"
POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias")


def main() -> None:
    """Run every policy and write the picture."""
    cluster, trace = gl.Cluster.preset(CLUSTER), gl.read_trace(TRACE)
    runs = [digest(gl.simulate(cluster, trace, name)) for name in POLICIES]
    chart = _svg.draw(charts(runs)["jct_s"])
    opening, _, rest = chart.partition(">")
    # this attribute is for the script of a page
    opening = re.sub(' data-chart="[^"]*"', "", opening)
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#222" ', 1)
    paper = '<rect width="100%" height="100%" fill="white"/>'
    text = f"{opening}>{paper}{rest}\n"
    PICTURE.write_text(text, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(trace)} jobs on {CLUSTER}")


if __name__ == "__main__":
    main()
