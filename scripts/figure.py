"""Draw the figure of the README from runs: completion times of the bundled trace by policy.

    .venv/bin/python scripts/figure.py

Needs a build; the runs take a moment. The picture depends on the trace and the policies alone.
"""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

import gangline as gl
from gangline import _svg

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "traces" / "mini" / "philly.parquet"
PICTURE = ROOT / "docs" / "_static" / "jct.svg"
CLUSTER = "pollux-64"
POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias")
POINTS = 200


def curve(result: gl.Result) -> list[tuple[float, float]]:
    """Return the share of jobs that are done within a time, at evenly spread shares."""
    times = np.sort(result.jobs["jct_s"].to_numpy())
    shares = np.linspace(0.0, 1.0, POINTS)
    picked = times[np.minimum((shares * len(times)).astype(int), len(times) - 1)]
    return [(float(max(x, 1.0)), 100.0 * float(y)) for x, y in zip(picked, shares, strict=True)]


def legend() -> str:
    """Return one line of the legend per policy."""
    return "".join(
        f'<text x="72" y="{42 + 15 * i}" fill="{_svg.colour(i)}" font-weight="bold">'
        f"{html.escape(name)}</text>"
        for i, name in enumerate(POLICIES)
    )


def main() -> None:
    """Run every policy and write the picture."""
    cluster, trace = gl.Cluster.preset(CLUSTER), gl.read_trace(TRACE)
    series = [(name, curve(gl.simulate(cluster, trace, name))) for name in POLICIES]
    title = "job completion time in seconds (logarithmic)"
    chart = _svg.lines(series, x_title=title, y_title="% of jobs done", log_x=True)
    paper = '<rect width="100%" height="100%" fill="white"/>'
    opening, _, rest = chart.partition(">")
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    text = f"{opening}>{paper}{rest.removesuffix('</svg>')}{legend()}</svg>\n"
    PICTURE.write_text(text, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(trace)} jobs on {CLUSTER}")


if __name__ == "__main__":
    main()
