"""Draw the figure of the README from runs: completion times of the bundled trace by policy.

    .venv/bin/python scripts/figure.py

Needs a build; the runs take a moment. The picture depends on the trace and the policies alone.
"""

from __future__ import annotations

from pathlib import Path

import gangline as gl
from gangline.report import _svg, digest
from gangline.report.charts import charts, style_of

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "traces" / "mini" / "philly.parquet"
PICTURE = ROOT / "docs" / "_static" / "jct.svg"
CLUSTER = "pollux-64"
POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "las", "tiresias")
LINE_HEIGHT = 15


def legend() -> str:
    """Return one line of the legend per policy, drawn like its line."""
    parts = []
    for i, name in enumerate(POLICIES):
        colour, dash = style_of(i)
        y = 26 + LINE_HEIGHT * i
        pattern = " ".join(map(str, dash)) or "none"
        parts.append(
            f'<path d="M70 {y}h24" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{pattern}"/><text x="100" y="{y + 4}">{name}</text>'
        )
    return "".join(parts)


def main() -> None:
    """Run every policy and write the picture."""
    cluster, trace = gl.Cluster.preset(CLUSTER), gl.read_trace(TRACE)
    runs = [digest(gl.simulate(cluster, trace, name)) for name in POLICIES]
    chart = _svg.draw(charts(runs)["jct_s"])
    opening, _, rest = chart.partition(">")
    opening = opening.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#222" ', 1)
    paper = '<rect width="100%" height="100%" fill="white"/>'
    text = f"{opening}>{paper}{rest.removesuffix('</svg>')}{legend()}</svg>\n"
    PICTURE.write_text(text, encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {len(trace)} jobs on {CLUSTER}")


if __name__ == "__main__":
    main()
