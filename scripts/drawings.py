"""Draws the pictures that explain mechanisms: loop, rounds, placement, delays, prices, pairs.

    .venv/bin/python scripts/drawings.py

Needs a build. Rounds, placement and pairs are real runs of a few jobs. The other pictures follow
the text of the page that shows them.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pyarrow as pa

import gangline as gl
from gangline._support.look import COLOURS

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "_static" / "drawings"
WIDTH = 420  # the width of a phone, on which the letters stay legible
INK, PALE = "#222", "#dde3ea"
Rows = list[dict[str, Any]]


def text(x: float, y: float, words: str, anchor: str = "middle", **more: str) -> str:
    """Return a line of text."""
    extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{extra}>{html.escape(words)}</text>'


def box(x: float, y: float, wide: float, high: float, fill: str, *words: str) -> str:
    """Return a box with centred lines of text."""
    ink = "white" if fill in COLOURS else INK
    top = y + high / 2 + 4.5 - 7.5 * (len(words) - 1)
    lines = [text(x + wide / 2, top + 15 * at, line, fill=ink) for at, line in enumerate(words)]
    shape = f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="3" fill="{fill}"/>'
    return shape + "".join(lines)


def arrow(path: str, colour: str = INK) -> str:
    """Return a line that ends in an arrow."""
    return f'<path d="{path}" fill="none" stroke="{colour}" marker-end="url(#tip)"/>'


def rule(path: str, dash: str = "none") -> str:
    """Return a thin line."""
    return f'<path d="{path}" fill="none" stroke="#777" stroke-dasharray="{dash}"/>'


def write(name: str, title: str, high: float, *parts: str, folder: Path | None = None) -> None:
    """Write a picture."""
    folder = folder or PICTURES
    tip = (
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        f'<path d="M0 0L7 3L0 6z" fill="{INK}"/></marker></defs>'
    )
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high:g}" width="{WIDTH}" '
        f'height="{high:g}" role="img" font-family="sans-serif" font-size="12.5" fill="{INK}">'
        f"<title>{html.escape(title)}</title>{tip}"
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def lanes(segments: Rows, gpus: list[str], top: float, end_s: float, left: float = 62) -> str:
    """Draw which job holds each GPU over time; two jobs on a GPU get half of the lane each."""
    scale, parts = (WIDTH - left - 12) / end_s, []
    jobs = sorted({row["job_id"] for row in segments})
    for lane, label in enumerate(gpus):
        y = top + 30 * lane
        parts.append(text(left - 6, y + 17, label, "end"))
        wide = end_s * scale
        parts.append(f'<rect x="{left}" y="{y}" width="{wide:g}" height="26" fill="{PALE}"/>')
        for row in segments:
            if not row["gpu_mask"] >> lane & 1:
                continue
            x, long = left + row["start_s"] * scale, (row["end_s"] - row["start_s"]) * scale
            half = row["co_runner"] not in (None, "") if "co_runner" in row else False
            at, high = (y + 13 * (jobs.index(row["job_id"]) % 2), 12.5) if half else (y, 26.0)
            colour = COLOURS[jobs.index(row["job_id"])]
            parts.append(
                f'<rect x="{x:g}" y="{at:g}" width="{long:g}" height="{high:g}" fill="{colour}" '
                'stroke="white" stroke-width=".8"/>'
            )
            size = "11" if half else "12.5"
            middle = at + high / 2 + 4.2
            if long > 9:
                parts.append(
                    text(x + long / 2, middle, row["job_id"], fill="white", font_size=size)
                )
    return "".join(parts)


def trace(*jobs: tuple[str, float, int, float]) -> gl.Trace:
    """Return a trace of (name, arrival, GPUs, duration)."""
    names = ("job_id", "arrival_s", "gpus", "duration_s")
    return gl.Trace.from_arrow(pa.table(dict(zip(names, zip(*jobs, strict=True), strict=True))))


def loop() -> None:
    """Draw the steps of the engine at an instant."""
    blue, red, green = COLOURS[0], COLOURS[1], COLOURS[2]
    write(
        "loop", "Events of an instant are applied, the policy answers, the plan is checked", 300,
        box(20, 14, 180, 92, PALE, "next instant:", "completions, capacity,",
            "arrivals, timers,", "a round; all applied"),
        arrow("M200 60H254"), text(227, 52, "view"),
        box(260, 30, 140, 60, blue, "the policy decides,", "once"),
        arrow("M330 90V150"), text(322, 124, "plan: start, stop, move", "end", font_size="11"),
        box(260, 156, 140, 60, PALE, "the whole plan", "is checked"),
        arrow("M260 186H206"), text(232, 178, "fine"),
        box(20, 156, 180, 60, green, "all of it happens,", "at this instant"),
        arrow("M110 156V112"), text(104, 138, "the clock goes on", "end", font_size="11"),
        arrow("M330 216V246"), text(322, 236, "a rule is broken", "end", font_size="11"),
        box(260, 252, 140, 36, red, "PlanError"),
        text(20, 266, "Nothing of it happened; the error", "start", font_size="11"),
        text(20, 281, "names job, server, rule and time.", "start", font_size="11"),
    )  # fmt: skip


def rounds() -> None:
    """Draw three jobs that take turns on two GPUs, by a real run."""
    jobs = trace(("A", 0.0, 1, 1800.0), ("B", 0.0, 1, 1800.0), ("C", 0.0, 1, 1500.0))
    lab = gl.Cluster.homogeneous(servers=1, gpus=2, gpu="V100")
    run = gl.simulate(lab, jobs, gl.policies.GavelLas(round_s=360.0), segments=True)
    end = 360.0 * 8
    scale = (WIDTH - 74) / end
    lines = [rule(f"M{62 + 360 * at * scale:g} 30V102", "3 3") for at in range(9)]
    marks = [text(62 + 360 * at * scale, 118, f"{6 * at}", font_size="11") for at in range(9)]
    shown = [text(16, 20, "share of each job: 2/3 of its time", "start")]
    write(
        "rounds", "Three jobs take turns on two GPUs, in rounds of six minutes", 144, *shown,
        lanes(run.segments.to_pylist(), ["GPU 0", "GPU 1"], 36, end), *lines, *marks,
        text(62 + end * scale / 2, 136, "minutes; a dashed line begins a round", font_size="11"),
    )  # fmt: skip


class _Fill(gl.Policy):
    """Fills slots by hand, then places the gang N by a rule."""

    def __init__(self, rule_name: Any) -> None:
        self.rule_name = rule_name

    def decide(self, view: gl.View, _: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        names = {view.name_of(job): job for job in view.waiting.job}
        for name, server, gpus in (("a", 1, 1), ("b", 2, 2), ("c", 3, 1)):
            if name in names:
                plan.start(names[name], {server: gpus})
        if "N" in names:
            plan.place(names["N"], self.rule_name)
        return plan


def placement() -> None:
    """Draw where rules place a gang of five, by real runs."""
    lab = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": "V100", "memory_gb": 16}],
            "servers": [{"count": 4, "gpu": "V100", "gpus": 4, "rack": "fill:2"}],
        }
    )
    jobs = trace(("a", 0, 1, 9), ("b", 0, 2, 9), ("c", 0, 1, 9), ("N", 1, 5, 5))
    rules = ["consolidate", "yarn", "whole_servers", "spread", "random", "count"]
    parts = [text(150 + 70 * at, 16, f"server {at}", font_size="11") for at in range(4)] + [
        text(185, 32, "rack 0", font_size="11"),
        text(325, 32, "rack 1", font_size="11"),
    ]
    for row, name in enumerate(rules):
        y = 42 + 30 * row
        run = gl.simulate(lab, jobs, _Fill(name), segments=True)
        held = [one for one in run.segments.to_pylist() if one["start_s"] <= 1 < one["end_s"]]
        parts.append(text(108, y + 16, name, "end"))
        if not any(one["job_id"] == "N" for one in held):
            parts.append(text(391, y + 15, "waits", "start", font_size="10"))
        for server in range(4):
            for slot in range(4):
                of = [
                    o["job_id"] for o in held if o["server"] == server and o["gpu_mask"] >> slot & 1
                ]
                fill = COLOURS[1] if of == ["N"] else "#80868F" if of else PALE
                x = 120 + 70 * server + 15 * slot
                parts.append(f'<rect x="{x}" y="{y}" width="13" height="22" rx="2" fill="{fill}"/>')
    y = 42 + 30 * len(rules) + 12
    for x, colour, words in (
        (120, COLOURS[1], "the gang of 5"),
        (226, "#80868F", "in use"),
        (296, PALE, "free"),
    ):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="13" height="13" rx="2" fill="{colour}"/>')
        parts.append(text(x + 18, y + 1, words, "start", font_size="11"))
    write("placement", "Where placement rules put a gang of five", y + 14, *parts)


def delays() -> None:
    """Draw the levels that a waiting job of dally may use over time."""
    left, scale = 110, 290 / 16
    rows = (
        ("one server", 0, COLOURS[2]),
        ("one rack", 6, COLOURS[0]),
        ("several racks", 12, COLOURS[1]),
    )
    parts = []
    for at, (label, opens, colour) in enumerate(rows):
        y, x = 20 + 36 * at, left + opens * scale
        parts.append(text(left - 8, y + 17, label, "end"))
        parts.append(f'<rect x="{left}" y="{y}" width="290" height="26" fill="{PALE}"/>')
        parts.append(f'<rect x="{x:g}" y="{y}" width="{400 - x:g}" height="26" fill="{colour}"/>')
        if opens:
            parts.append(text((left + x) / 2, y + 17, "does not take it", font_size="11"))
        words = "takes it" if opens == 12 else "takes it where there is room"
        parts.append(text((x + 400) / 2, y + 17, words, fill="white", font_size="11"))
    parts += [rule(f"M{left + h * scale:g} 14V124", "3 3") for h in (6, 12)]
    marks = ((0, "arrival"), (6, "rack_delay"), (12, "network_delay"))
    parts += [text(left + h * scale, 140, words, font_size="11") for h, words in marks]
    parts += [text(left + h * scale, 155, f"{h} leases", font_size="11") for h, _ in marks[1:]]
    write("delays", "The longer a job waits, the wider a place it takes", 166, *parts)


def prices() -> None:
    """Draw the price of a GPU over the occupancy of its server."""
    left, right, top, bottom, low, high = 62, 400, 24, 190, 1.0, 32.0

    def place(part: float) -> tuple[float, float]:
        price = low * (high / low) ** part
        return left + part * (right - left), bottom - (price / high) * (bottom - top)

    curve = "L".join("{:.1f} {:.1f}".format(*place(at / 60)) for at in range(61))
    parts = [
        rule(f"M{left} {top}V{bottom}H{right}"),
        f'<path d="M{curve}" fill="none" stroke="{COLOURS[0]}" stroke-width="3"/>',
        text(left - 6, bottom + 1, "U_min", "end", font_size="11"),
        text(left - 6, top + 6, "U_max", "end", font_size="11"),
        text(left, bottom + 17, "all free", "start", font_size="11"),
        text(right, bottom + 17, "all given out", "end", font_size="11"),
        text((left + right) / 2, bottom + 17, "GPUs of a server", font_size="11"),
        text(left + 8, top - 6, "price of one GPU", "start"),
    ]
    for part, words, colour in (
        (0.55, "a job worth little pays up to", COLOURS[1]),
        (0.9, "a job worth much pays up to", COLOURS[2]),
    ):
        x, y = place(part)
        parts.append(
            f'<path d="M{left} {y:.1f}H{x:.1f}V{bottom}" fill="none" stroke="{colour}" '
            'stroke-dasharray="5 3" stroke-width="1.6"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        parts.append(text(left + 8, y - 6, words, "start", font_size="11", fill=colour))
    write(
        "prices",
        "The price of a GPU rises with the GPUs of its server that are given out",
        220,
        *parts,
    )


def pairs() -> None:
    """Draw two jobs that share a GPU or do not, by real runs."""
    jobs = trace(("A", 0.0, 1, 100.0), ("B", 0.0, 1, 140.0))
    parts, y = [], 8
    for xi in (1.25, 1.8):
        cluster = {
            "gpu_types": [{"name": "V100", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "V100", "gpus": 1}],
            "sharing": {"xi": xi},
        }
        parts.append(text(12, y + 13, f"xi = {xi}", "start", font_weight="bold"))
        for label, policy in (("in turn", "sjf"), ("shared", "sjf-ffs")):
            run = gl.simulate(cluster, jobs, policy, segments=True)
            mean = run.summary["jct_mean_s"]
            parts.append(lanes(run.segments.to_pylist(), [label], y + 20, 320.0))
            end = 62 + run.summary["makespan_s"] * (WIDTH - 74) / 320.0
            parts.append(
                text(min(end + 5, 344), y + 37, f"mean {mean:.0f} s", "start", font_size="11")
            )
            y += 32
        y += 34
    write("pairs", "Two jobs on one GPU, in turn and shared, at two slowdowns", y, *parts)


def main() -> None:
    """Draw all pictures."""
    for draw in (loop, rounds, placement, delays, prices, pairs):
        draw()
        print(f"{draw.__name__}.svg")


if __name__ == "__main__":
    main()
