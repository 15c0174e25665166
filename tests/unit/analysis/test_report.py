"""Tests reports: numbers by hand, pages with hostile texts, and damaged folders."""

from __future__ import annotations

import dataclasses
import functools
import html
import itertools
import json
import re
import shlex
import unicodedata
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline._support.look import style_of
from gangline.analysis.report import _svg, distance, findings, pairs, tables
from gangline.analysis.report.charts import Chart, Line, charts
from gangline.analysis.report.command import repeat
from gangline.analysis.report.digest import jain, steps
from gangline.cli.app import main
from refusals import refused
from samples.seals import put_sealed

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=1, gpus=2)
# Both arrive at 0 and need both GPUs. fifo: A 0-10, B 10-12. sjf: B 0-2, A 2-12.
JOBS = worlds.jobs("A 0 2 10", "B 0 2 2", user=["ann", "bob"], model=["vgg", "bert"])
VOID = {"br", "img", "input", "link", "meta", "hr", "path", "circle", "rect", "polyline"}
SMALL = ["--trace", "synth:philly?jobs=50&seed=1&max_gpus=8", "--cluster", "pollux-64"]


def digests(*policies: str) -> list[gl.report.Digest]:
    return [made(name) for name in policies]


@functools.cache
def made(policy: str) -> gl.report.Digest:
    return gl.report.digest(gl.simulate(LAB, gl.Trace.from_arrow(JOBS), policy))


@functools.cache
def plain_page() -> Page:
    return Page(gl.report.render(digests("fifo", "sjf")))


class Page(HTMLParser):
    """A strict parser of a page: tags must close in order; it collects cells and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self.scripts: list[str] = []
        self.cells: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"
        assert self.faults == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "td" in self.open or "th" in self.open:
            self.cells[-1] += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_a_digest_by_hand() -> None:
    (run,) = digests("fifo")
    assert run.curves["jct_s"].tolist() == [10.0, 12.0]
    assert run.jct_s.tolist() == [10.0, 12.0]
    assert [(g.name, g.jobs, g.jct_mean_s) for g in run.users] == [
        ("ann", 1, 10.0),
        ("bob", 1, 12.0),
    ]
    assert [(g.name, g.jobs, g.jct_mean_s) for g in run.gangs] == [("2", 2, 11.0)]
    assert run.busy_gpu_s == {"GPU": 24.0}  # two GPUs for twelve seconds
    assert run.lines["jobs_waiting"].mean.tolist() == [1.0, 0.0, 0.0]
    assert run.spec["policy"]["knowledge"] == "online"


def worse_off(rows: int, delayed: int) -> gl.report.Digest:
    """Return a run of jobs that run undisturbed, of which the last `delayed` pairs collide.

    Arrivals are a thousand seconds and a tenth apart: finish - arrival is then 0.2 plus a rounding
    error. In a pair the long job arrives first and the short one waits for it.
    """
    arrival = [1000.1 * i for i in range(rows)]
    gpus, duration_s = [2] * rows, [0.2] * rows
    for i in range(delayed):
        at = arrival[rows - 1 - i]
        arrival += [at + 300.0] * 2
        gpus += [2, 2]
        duration_s += [10.0, 2.0]
    table = {"arrival_s": arrival, "gpus": gpus, "duration_s": duration_s}
    return gl.report.digest(gl.simulate(LAB, gl.Trace.from_arrow(pa.table(table)), "fifo"))


def test_jobs_that_ran_undisturbed_are_not_worse_off() -> None:
    """Of a pair of 10 s and 2 s the second takes 12 s with 22 / 12 active jobs on average.

    Alone on such a share: 2 s x 22 / 12 = 3.7 s, so its rho is 3.3; the first has 10 / 20 = 0.5.
    """
    run = worse_off(6, 1)
    above = run.curves["ftf"] > 1.0
    assert above.sum() > 1, "no rounding error in this world: it shows nothing"
    assert run.worse_off == 1 / 8
    page = Page(gl.report.render([run]))
    assert "12.5 %" in page.cells


def test_the_share_of_jobs_worse_off_is_of_all_jobs_not_of_the_points_drawn() -> None:
    run = worse_off(900, 2)
    assert len(run.curves["ftf"]) < 904
    assert run.worse_off == 2 / 904


def test_fairness_is_averaged_over_the_seeds() -> None:
    one, other = (
        dataclasses.replace(
            made("fifo"), spec={**made("fifo").spec, "seed": seed, "log_hash": str(seed)}
        )
        for seed in (0, 1)
    )
    other = dataclasses.replace(other, worse_off=0.0, jain=1.0)
    assert (one.worse_off, one.jain) == (0.5, pytest.approx(jain(np.array([0.5, 36 / 11]))))
    page = Page(gl.report.render([one, other]))
    assert "25.0 %" in page.cells
    assert f"{(one.jain + 1.0) / 2:.2f}" in page.cells


def test_lines_begin_at_the_first_arrival() -> None:
    """The axis starts there, because a trace on another clock must not shift the charts."""
    rows = worlds.jobs("1000 1 2", "1003 1 2")
    lab = worlds.lab("2x1 g @0", failures={"table": [{"server": 0, "down_s": 10.0, "up_s": 20.0}]})
    run = gl.report.digest(gl.simulate(lab, rows, "fifo"))
    assert run.lines["gpus_busy"].time_s.tolist() == [0.0, 0.0, 0.0, 2.0, 3.0, 5.0]
    assert run.lines["gpus_busy"].mean.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def test_gang_sizes_fall_into_powers_of_two() -> None:
    cluster = gl.Cluster.homogeneous(servers=4, gpus=8)
    rows = worlds.jobs("0 1 1", "0 2 1", "0 3 1", "0 4 1", "0 5 1", "0 9 1")
    run = gl.report.digest(gl.simulate(cluster, rows, "fifo"))
    assert [(g.name, g.jobs) for g in run.gangs] == [
        ("1", 1), ("2", 1), ("3 to 4", 2), ("5", 1), ("9", 1),
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=9, max_size=60),
    st.integers(1, 4),
)
def test_folding_keeps_peaks_and_means(rows: list[tuple[int, int]], buckets: int) -> None:
    rows = sorted({t: (t, v) for t, v in rows}.values())
    if len(rows) < 9:
        rows = [(i, i % 3) for i in range(9)]
    time_s = np.array([t for t, _ in rows], float)
    values = np.array([v for _, v in rows], float)
    folded = steps(time_s, values, buckets=buckets, most=8)
    # The oracle samples the step function on a fine grid.
    width = (time_s[-1] - time_s[0]) / buckets
    for i in range(buckets):
        low, high = time_s[0] + i * width, time_s[0] + (i + 1) * width
        inside = [low, *[t for t in time_s if low < t < high - 1e-9]]
        there = [values[np.searchsorted(time_s, t + 1e-9, "right") - 1] for t in inside]
        ends = [*inside[1:], high]
        area = sum(v * (b - a) for v, a, b in zip(there, inside, ends, strict=True))
        assert folded.low[i] == min(there)
        assert folded.high[i] == max(there)
        assert folded.mean[i] == pytest.approx(area / width, abs=1e-9)


def test_few_points_are_kept() -> None:
    kept = steps(np.array([0.0, 5.0]), np.array([1.0, 2.0]))
    assert (kept.time_s.tolist(), kept.mean.tolist()) == ([0.0, 5.0], [1.0, 2.0])


def test_no_line_has_more_than_2000_points() -> None:
    cluster = gl.Cluster.preset("pollux-64")
    run = gl.report.digest(
        gl.simulate(cluster, "synth:philly?jobs=5000&seed=1&max_gpus=16", "srtf")
    )
    for chart in charts([run]).values():
        for line in chart.lines:
            assert 0 < len(line.x) == len(line.y) <= 2000, chart.key


def test_jain_by_hand() -> None:
    assert jain(np.array([1.0, 3.0])) == pytest.approx(16 / 20)
    assert np.isnan(jain(np.zeros(0)))


def test_gpu_time_adds_up_to_all_of_it() -> None:
    # of the 80 % in use a tenth is lost to restarts, a twentieth to distance, a tenth to co-runners
    row = {
        "gpu_utilization": 0.8, "useful_utilization": 0.6, "overhead_fraction": 0.1,
        "comm_fraction": 0.05, "share_fraction": 0.1, "fragmentation": 0.15,
    }  # fmt: skip
    parts = findings.gpu_time(row)
    assert parts["useful"] == pytest.approx(0.6)
    assert parts["overhead"] == pytest.approx(0.08)
    assert parts["distance"] == pytest.approx(0.04)
    assert parts["co-runner"] == pytest.approx(0.08)
    assert parts["fragment"] == pytest.approx(0.15)
    assert parts["idle"] == pytest.approx(0.05)
    assert sum(parts.values()) == pytest.approx(1.0)
    assert sum(findings.gpu_time({}).values()) == pytest.approx(1.0)


def test_losses_on_shared_gpus_are_scaled_to_the_time_in_use() -> None:
    """On one GPU for 10 s, a job alone has overhead for 1 s, then two lose nothing for 9 s.

    They hold it for 19 s together: the overhead is 1/19 of the time held and 1/10 of that in use.
    Then one second in which one of two makes progress at 2/3 and the other pays an overhead: the
    better off counts. 1/3 of the GPU is lost; of the time held it is 1 of 2 s and 1/3 of 2 s.
    """
    row = {"gpu_utilization": 1.0, "useful_utilization": 0.9, "overhead_fraction": 1 / 19}
    parts = findings.gpu_time(row)
    assert parts["overhead"] == pytest.approx(0.1)
    assert parts["useful"] == pytest.approx(0.9)
    row = {
        "gpu_utilization": 1.0, "useful_utilization": 2 / 3, "overhead_fraction": 1 / 2,
        "share_fraction": 1 / 6,
    }  # fmt: skip
    parts = findings.gpu_time(row)
    assert parts["overhead"] == pytest.approx(1 / 4)
    assert parts["co-runner"] == pytest.approx(1 / 12)
    assert sum(parts.values()) == pytest.approx(1.0)


def test_what_co_runners_cost_is_a_part_of_the_gpu_time() -> None:
    """Two equal jobs share one GPU at xi = 1.5 from start to end, so a third is lost."""
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    jobs = worlds.jobs("0 1 10", "0 1 10")
    run = gl.report.digest(gl.simulate(one, jobs, "toy-share", sharing={"xi": 1.5}))
    assert run.summary["makespan_s"] == 15.0
    if "share_fraction" not in run.summary:  # this engine does not measure it
        used = run.summary["gpu_utilization"]
        by_hand = {"share_fraction": 1 / 3, "useful_utilization": used * 2 / 3}
        run = dataclasses.replace(run, summary={**run.summary, **by_hand})
    parts = findings.gpu_time(run.summary)
    assert parts["co-runner"] == pytest.approx(1 / 3)
    assert parts["useful"] == pytest.approx(2 / 3)
    page = Page(gl.report.render([run]))
    assert "lost to co-runners" in "".join(page.words)
    assert "33.3 %" in page.cells


def test_without_sharing_nothing_is_lost_to_co_runners() -> None:
    (run,) = digests("fifo")
    assert findings.gpu_time(run.summary)["co-runner"] == 0.0
    assert "co-runner" not in "".join(Page(gl.report.render([run])).words)


def test_the_page_says_what_a_person_would_check() -> None:
    page = Page(gl.report.render(digests("fifo", "sjf")))
    said = " ".join("".join(page.words).split())
    assert "sjf cuts the mean time to finish by 36 % against fifo (7 s against 11 s)" in said
    assert "sjf assumes exact durations, which a real scheduler rarely knows." in said
    assert "The best policy that needs no durations is fifo (11 s)." in said
    # The answer comes first and provenance last; a single GPU type has no section.
    assert said.index("cuts the mean") < said.index("Verdict")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", gl.report.render(digests("fifo", "sjf")))
    assert headings == [
        "Verdict", "Why they differ", "Large and small jobs", "The cluster over time", "Fairness",
        "What was compared", "To repeat it",
    ]  # fmt: skip
    assert "By GPUs per job" not in said  # there is one size; the section has the users
    assert "7 s (best)" in page.cells
    assert "11 s" in page.cells
    assert page.count("h1") == 1
    assert not re.search(r"\b(nan|None|inf)\b", said + " ".join(page.cells))


def test_every_chart_is_a_picture_that_tells_its_values() -> None:
    page = Page(gl.report.render(digests("fifo", "sjf")))
    pictures = [attrs for tag, attrs in page.tags if tag == "svg" and attrs.get("role")]
    assert len(pictures) == len(charts(digests("fifo", "sjf")))
    for attrs in pictures:
        told = json.loads(str(attrs["data-chart"]))
        assert told["names"] == ["fifo", "sjf"]
    assert len(page.scripts) == 1


def drawn_corners(path: str) -> list[tuple[int, int]]:
    """Return the corners of a path, read as the page's script does."""
    x = y = 0
    corners = []
    for kind, one, other in re.findall(r"([Mlhv])(-?\d+)(?: (-?\d+))?", path):
        x = int(one) if kind == "M" else x + (int(one) if kind in "lh" else 0)
        y = int(other) if kind == "M" else y + (int(other) if kind == "l" else 0)
        y += int(one) if kind == "v" else 0
        corners.append((x, y))
    return corners


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 50)), min_size=1, max_size=30),
    st.sampled_from(["count", "share"]),
)
def test_a_path_holds_the_values_of_its_line(
    rows: list[tuple[int, int]], y_scale: Literal["count", "share"]
) -> None:
    x = np.cumsum([step for step, _ in rows]).astype(float)
    y = np.array([height for _, height in rows], float) / (1.0 if y_scale == "count" else 50.0)
    chart = Chart("k", "t", "", "x", "y", [Line(0, "a", x, y)], "time", y_scale, is_step=True)
    drawn = _svg.draw(chart)
    told = json.loads(html.unescape(re.findall(r'data-chart="([^"]*)"', drawn)[0]))
    (path,) = re.findall(r'class="line" d="([^"]*)"', drawn)
    corners = drawn_corners(path)
    axis = told["y"]
    for at, value in zip(x.tolist(), y.tolist(), strict=True):
        units = (at - told["x"]["low"]) / (told["x"]["high"] - told["x"]["low"]) * 4000
        last = [b for a, b in corners if a <= round(units)][-1]
        assert last / axis["units"] * axis["high"] == pytest.approx(value, abs=0.0003)


def test_names_of_lines_stand_apart_and_in_the_order_of_their_ends() -> None:
    x = np.array([0.0, 10.0])
    lines = [Line(i, f"p{i}", x, np.array([5.0, height])) for i, height in enumerate([3, 9, 3, 0])]
    chart = Chart("k", "t", "", "x", "y", lines, "time", "count", is_step=True)
    found = re.findall(r'<text x="[0-9.]+" y="([0-9.]+)">(p\d)</text>', _svg.draw(chart))
    assert [name for _, name in found] == ["p1", "p0", "p2", "p3"]
    heights = [float(height) for height, _ in found]
    assert all(b - a >= 14.0 for a, b in itertools.pairwise(heights))
    assert heights[-1] <= 270 - 52 + 4


def test_a_page_is_the_same_but_for_the_seeds() -> None:
    runs = [
        gl.report.digest(gl.simulate(LAB, gl.Trace.from_arrow(JOBS), "fifo", seed=seed))
        for seed in (0, 1)
    ]
    assert "Means over" not in gl.report.render(runs)  # the seeds change nothing
    runs[1].spec["log_hash"] = "another"
    assert "Means over 2 runs" in gl.report.render(runs)
    assert gl.report.render(runs) == gl.report.render(runs)


def test_runs_that_differ_are_named() -> None:
    one, other = digests("fifo", "sjf")
    other = dataclasses.replace(other, spec={**other.spec, "trace": {**other.spec["trace"]}})
    other.spec["trace"]["sha256"] = "0" * 64
    assert "differ in their trace" in gl.report.render([one, other])
    assert "differ in their" not in gl.report.render(digests("fifo", "sjf"))


def test_priced_types_are_priced() -> None:
    data = LAB.to_dict()
    data["gpu_types"][0]["price_per_hour"] = 300.0
    run = gl.report.digest(gl.simulate(gl.Cluster.from_dict(data), JOBS, "fifo"))
    titles, rows, _ = tables.usage([run])
    assert [title for title, _ in titles] == ["Policy", "GPU (2)", "Price"]
    assert rows[0][2].value == pytest.approx(24 / 3600 * 300)
    assert rows[0][1].value == pytest.approx(1.0)


def test_time_by_model_and_gpu_type() -> None:
    lab = worlds.cluster("1x2 A @0", "1x2 B*0.5 @0", name="mixed")
    rows = worlds.trace("0 0 2 9", "1 0 1 9", "2 0 1 9", model=["<m>", "n", "<m>"])
    trace = rows
    # fifo fills A with job 0 for 9 s; the others take 18 s on one GPU of B each
    result = gl.simulate(lab, trace, "fifo", segments=True)
    run = gl.report.digest(result)
    hour = pytest.approx(18 / 3600)
    found = [(one.model, one.gpu_h) for one in run.model_times]
    assert found == [("<m>", {"A": hour, "B": hour}), ("n", {"A": 0.0, "B": hour})]
    ftf = result.jobs["ftf"].to_pylist()
    means = [one.ftf_mean for one in run.model_times]
    assert means == pytest.approx([(ftf[0] + ftf[2]) / 2, ftf[1]])
    titles, cells, hidden = tables.model_times(run)
    names = ["Model", "GPU-hours", "Time on A", "Time on B", "FTF"]
    assert [title for title, _ in titles] == names
    assert [cell.value for cell in cells[0][2:4]] == pytest.approx([0.5, 0.5])
    assert hidden == 0
    page = gl.report.render([run])
    assert "By model and GPU type" in page
    assert "<m>" not in page
    # without segments this is unknown, and the page says what to do
    unknown = gl.report.digest(gl.simulate(lab, trace, "fifo"))
    assert unknown.model_times == []
    assert "--segments" in gl.report.render([unknown])


def test_pairs_of_models_that_shared_gpus() -> None:
    """By hand: a does 10 s alone, 90 s of work at 1 / 1.5 beside b, and b the rest alone."""
    rows = worlds.trace("0 0 1 100", "1 10 1 100", model=["<m>", "a"])
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    trace = rows
    xi = [
        {"model": "<m>", "co_model": "a", "xi": 1.5},
        {"model": "a", "co_model": "<m>", "xi": 1.2},
    ]
    sharing = {"interference": "table", "rows": xi}
    result = gl.simulate(one, trace, "sjf-ffs", sharing=sharing, segments=True)
    run = gl.report.digest(result)
    (pair,) = run.pairs
    # "<m>" sorts first; they share until a, which needs 100 x 1.2 s, has ended
    assert (pair.model, pair.co_model) == ("<m>", "a")
    assert pair.gpu_h == pytest.approx(120 / 3600)
    assert (pair.xi, pair.co_xi) == pytest.approx((1.5, 1.2))
    assert pair.gain_h == pytest.approx((120 / 1.5 + 100 - 120) / 3600)
    titles, cells, hidden = pairs.listed([run])
    assert [title for title, _ in titles][3:] == [
        "GPU-hours", "Slowdown", "Of co-runner", "GPU-hours saved",
    ]  # fmt: skip
    assert [cell.value for cell in cells[0][3:]] == pytest.approx(
        [pair.gpu_h, 1.5, 1.2, pair.gain_h]
    )
    assert hidden == 0
    titles, cells, _ = pairs.totals([run], findings.rows([run]))
    told = [result.summary[key] for key in ("share_gpu_fraction", "xi_mean", "packing_gain")]
    assert [cell.value for cell in cells[0][1:4]] == pytest.approx(told)
    picture = pairs.heat(run)
    assert picture.count("<rect") == 2
    assert ">1.50<" in picture
    assert ">1.20<" in picture
    page = gl.report.render([run])
    assert "Shared GPUs" in page
    assert "<m>" not in page
    # without segments only sums are known, and the page says what to do
    unknown = gl.report.digest(gl.simulate(one, trace, "sjf-ffs", sharing=sharing))
    assert unknown.pairs == []
    assert "The models that shared GPUs" in gl.report.render([unknown])
    # a run without sharing has no such text
    alone = gl.report.digest(gl.simulate(one, trace, "sjf", segments=True))
    assert "Shared GPUs" not in gl.report.render([alone])


def test_time_by_gpu_type() -> None:
    lab = worlds.cluster("1x1 A @0", "1x1 B*0.5 @0", name="mixed")
    rows = worlds.trace("0 0 1 9", "1 0 1 9")
    # fifo takes A, then B, where 9 s take 18: a third and two thirds of 27 GPU-seconds
    run = gl.report.digest(gl.simulate(lab, rows, "fifo"))
    assert run.time_share == pytest.approx({"A": 1 / 3, "B": 2 / 3})
    titles, cells, _ = tables.usage([run])
    assert [title for title, _ in titles] == ["Policy", "A (1)", "B (1)", "Time on A", "Time on B"]
    assert [cell.value for cell in cells[0][1:]] == pytest.approx([0.5, 1.0, 1 / 3, 2 / 3])
    page = Page(gl.report.render([run]))
    assert "33.3 %" in page.cells or "33 %" in page.cells


def test_styles_of_the_first_eight_differ() -> None:
    assert len({style_of(i) for i in range(8)}) == 8
    assert len({style_of(i)[0] for i in range(8)}) == 8


# Texts from public names, and any other text.
HOSTILE = st.one_of(
    st.sampled_from(
        [
            "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "]]>", "<!--",
            "\"' onmouseover='alert(1)", "&lt;b&gt; &amp;", "a\u2028b", "\u202egnp.exe", "\x00",
            "עברית", "日本語", "{{7*7}}", "${x}", "@jct_s{safe}", "$name", "\\u003c/script>", "",
            "a" * 5000, "\ud800",
        ]
    ),
    st.text(max_size=40),
)  # fmt: skip


def hostile(names: list[str]) -> list[gl.report.Digest]:
    """Return two digests with every text from outside replaced."""
    user, label, other, path, cluster = names
    runs = []
    for run, name in zip(digests("fifo", "sjf"), (label, "." + other), strict=True):
        spec = json.loads(json.dumps(run.spec))
        spec["policy"] |= {"label": name, "name": name, "params": {user: path, "x": [name]}}
        spec["trace"] |= {"path": path, "notes": {user: 3}}
        spec["trace"]["metadata"] |= {"origin": other, "licence": user}
        spec["cluster"]["name"] = cluster
        users = [dataclasses.replace(group, name=user + group.name) for group in run.users]
        runs.append(dataclasses.replace(run, spec=spec, users=users))
    return runs


@given(st.lists(HOSTILE, min_size=5, max_size=5))
def test_no_text_breaks_the_page(names: list[str]) -> None:
    plain = plain_page()
    page = Page(gl.report.render(hostile(names), command=names[3]))
    # No text opened or closed a tag, no attribute appeared, and the scripts are the page's own.
    for tag in ("script", "style", "table", "section", "svg", "figure", "iframe", "img", "b"):
        assert page.count(tag) == plain.count(tag), tag
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert page.scripts == plain.scripts
    shown = names[1].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    steers = [x for x in shown if x not in "\t\n" and unicodedata.category(x) in ("Cc", "Cf")]
    if len(shown) <= 2000 and not steers:
        assert shown in page.cells


def test_pictures_escape_labels() -> None:
    (run,) = digests("fifo")
    run = dataclasses.replace(run, spec={**run.spec, "policy": {**run.spec["policy"]}})
    run.spec["policy"]["label"] = "</svg><script>"
    for chart in charts([run]).values():
        assert "<script" not in _svg.draw(chart)


def test_a_saved_comparison_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, live = tmp_path / "out", tmp_path / "live.html"
    compare = ["compare", *SMALL, "--policies", "fifo,srtf", "--seeds", "0,1"]
    assert main([*compare, "--out", str(folder), "--html", str(live)]) == 0
    assert main(["report", str(folder)]) == 0
    saved = Page((folder / "report.html").read_text("utf-8"))
    assert saved.cells == Page(live.read_text("utf-8")).cells
    assert main(["report", str(folder)]) == 0  # an earlier report is replaced
    assert main(["report", str(folder / "srtf-s1"), "--html", str(live)]) == 0
    assert "saved" in capsys.readouterr().err


def test_an_interrupted_comparison_reports_what_is_there(tmp_path: Path) -> None:
    assert main(["compare", *SMALL, "--policies", "fifo,srtf", "--out", str(tmp_path / "o")]) == 0
    (tmp_path / "o" / "comparison.json").unlink()
    assert [run.policy for run in gl.report.load_runs(tmp_path / "o")] == ["fifo", "srtf"]


@pytest.mark.parametrize(
    "words",
    [
        ["run", *SMALL, "--policy", "las", "--set", "limits=[600, 3600]", "--restart-s", "30"],
        ["run", *SMALL, "--policy", "fifo", "--set", "placement=yarn", "--limit", "30"],
        ["compare", *SMALL, "--policies", "las,srtf", "--set", "las.limits=[60]", "--seeds", "3,4"],
    ],
)
def test_the_command_of_a_saved_run_repeats_it(words: list[str], tmp_path: Path) -> None:
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    before = gl.report.load_runs(tmp_path / "a")
    command = repeat([gl.report.digest(run) for run in before])
    assert command is not None
    assert main([*shlex.split(command)[1:], "--out", str(tmp_path / "b")]) == 0
    after = gl.report.load_runs(tmp_path / "b")
    assert [run.log_hash for run in after] == [run.log_hash for run in before]


def test_what_the_command_line_cannot_say_gives_no_command() -> None:
    runs = digests("fifo")  # a table in memory
    assert repeat(runs) is None
    assert "run the program again" in gl.report.render(runs)


def saved(folder: Path) -> Path:
    gl.simulate(LAB, gl.Trace.from_arrow(JOBS), "fifo").save(folder)
    return folder


def spoil_spec(folder: Path, **changes: Any) -> None:
    spec = json.loads((folder / "spec.json").read_text("utf-8"))
    put_sealed(folder / "spec.json", "result", {**spec, **changes})


DAMAGE: dict[str, tuple[Any, str]] = {
    "no summary": (lambda f: (f / "summary.json").unlink(), "summary.json is missing"),
    "no jobs": (lambda f: (f / "jobs.parquet").unlink(), "jobs.parquet is missing; run it again"),
    "jobs cut short": (
        lambda f: (f / "jobs.parquet").write_bytes((f / "jobs.parquet").read_bytes()[:300]),
        "jobs.parquet: damaged",
    ),
    "another table": (
        lambda f: (f / "jobs.parquet").write_bytes((f / "timeline.parquet").read_bytes()),
        "jobs.parquet: damaged, changed, or from another run",
    ),
    "spec no JSON": (lambda f: (f / "spec.json").write_text("{"), "spec.json: expected JSON"),
    "spec without policy": (lambda f: spoil_spec(f, policy=3), "spec.json: policy: expected"),
    "another version": (lambda f: spoil_spec(f, format=99), "written by another version"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_result_is_one_message(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, expected = DAMAGE[kind]
    damage(saved(tmp_path / "out"))
    assert main(["report", str(tmp_path / "out"), "--html", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr()
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (tmp_path / "page.html").exists()


def test_folders_without_results_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, expected in (
        ("absent", "No such file"), ("file", "expected a folder"), ("empty", "contains no result"),
    ):  # fmt: skip
        assert main(["report", str(tmp_path / name)]) == 2
        assert expected in capsys.readouterr().err


def test_a_missing_run_of_a_comparison_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "o" / "fifo-s0")
    hashed = gl.load_result(tmp_path / "o" / "fifo-s0").log_hash
    for policy, log_hash, words in (
        ("sjf", hashed, "the run of sjf with seed 0 is missing"),
        ("fifo", "0" * 16, "the run of fifo with seed 0 belongs to another comparison"),
    ):
        rows = {"runs": [{"policy": policy, "seed": 0, "log_hash": log_hash}]}
        put_sealed(tmp_path / "o" / "comparison.json", "comparison", rows)
        assert main(["report", str(tmp_path / "o")]) == 2
        assert words in capsys.readouterr().err
    put_sealed(tmp_path / "o" / "comparison.json", "comparison", {"runs": [3]})
    assert main(["report", str(tmp_path / "o")]) == 2
    assert "not the table of a comparison" in capsys.readouterr().err


def test_files_of_others_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "out")
    mine = tmp_path / "mine.html"
    mine.write_text("<p>letter</p>")
    for target, expected in (
        (mine, "exists and is not an unchanged report of gangline"),
        (tmp_path, "is a folder; name a file in it"),
        (mine / "page.html", "Not a directory"),
    ):
        assert main(["report", str(folder), "--html", str(target)]) == 2
        assert expected in capsys.readouterr().err
        # The error comes before the simulation, not after it.
        assert main(["compare", *SMALL, "--policies", "fifo", "--html", str(target)]) == 2
        assert expected in capsys.readouterr().err
    assert mine.read_text() == "<p>letter</p>"

    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / ".gangline-x"))

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    assert main(["report", str(folder), "--html", str(tmp_path / "new.html")]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_results_that_were_not_kept_are_asked_for(tmp_path: Path, snapshot: Snapshot) -> None:
    table = gl.compare(LAB, JOBS, ["fifo"], keep=False)
    with refused(gl.ResultError, snapshot):
        gl.report.write(table, tmp_path / "page.html")


def test_nothing_finished_still_makes_a_page() -> None:
    run = gl.report.digest(gl.simulate(LAB, JOBS, "fifo", until_s=1.0))
    said = "".join(Page(gl.report.render([run])).words)
    assert "No job finished" in said
    assert "ended before all jobs finished" in said


def test_a_run_without_a_time_line_still_makes_a_page() -> None:
    run = gl.report.digest(gl.simulate(LAB, gl.Trace.from_arrow(JOBS), "fifo", timeline="off"))
    assert tables.usage([run])[1][0][1].html == "–"  # the value is unknown, not zero
    page = Page(gl.report.render([run]))
    assert page.count("figure") == len(charts([run])) > 0
    assert "The cluster over time" not in page.words


# Servers hold one GPU; a rack keeps a half, racks a quarter. A: 4 GPUs over racks; B and D: 2 GPUs
# in a rack; C: one GPU, which loses nothing.
FAR = worlds.lab(
    "4x1 g @fill:2", network={"levels": {"a": [0.8, 0.5, 0.25], "*": [1.0, 0.5, 0.25]}}
)
FAR_JOBS = worlds.jobs(
    "A 0 4 900", "B 10000 2 1800", "C 20000 1 3600", "D 20000 2 1800", model=["a", "b", "c", "a"]
)


def far(policy: str = "fifo", jobs: pa.Table = FAR_JOBS, **keys: Any) -> gl.report.Digest:
    return gl.report.digest(gl.simulate({**FAR, **keys}, gl.Trace.from_arrow(jobs), policy))


def test_losses_by_hand() -> None:
    """A holds 4 GPUs for 1 h and loses three quarters; B and D 2 GPUs for 1 h and lose a half."""
    found = {loss.model: loss for loss in far().losses}
    assert list(found) == ["a", "b", "c"]
    assert found["a"].lost_gpu_h == (0.0, 1.0, 3.0)
    assert found["b"].lost_gpu_h == (0.0, 1.0, 0.0)
    assert found["c"].lost_gpu_h == (0.0, 0.0, 0.0)
    assert [found[name].gpu_h for name in "abc"] == [6.0, 2.0, 1.0]
    assert [found[name].gpus_max for name in "abc"] == [4, 2, 1]


def test_the_page_shows_what_distance_cost() -> None:
    runs = [far(), far("srtf")]
    page = Page(gl.report.render(runs))
    titles, rows, _ = distance.losses(runs)
    assert [title for title, _ in titles][-3:] == ["Server", "Rack", "Network"]
    assert [cell.value for cell in rows[0]] == ["fifo", "a", 6.0, 4.0, 4.0 / 6.0, 0.0, 1.0, 3.0]
    assert {"66.7 %", "50.0 %"} <= set(page.cells)
    assert "What distance cost" in "".join(page.words)
    # bars: a has two parts, b one, c none, for either policy; the widest is that of a
    widths = [float(w) for w in re.findall(r'width="([0-9.]+)" height="10"', distance.bars(runs))]
    assert len(widths) == 6
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.02)
    (one,), why = distance.heats(runs[0])
    assert why == ""
    assert one.sizes == (2, 4)
    # servers of one GPU hold no gang, a rack holds two GPUs
    assert one.rows == [("a", "rack", (0.5, None)), ("a", "network", (0.25, 0.25))]
    drawn = distance.heat(one)
    assert drawn.count("<rect") == 3
    assert drawn.count(">0.250<") == 2
    assert 'fill-opacity="0.600"' in drawn


def test_without_a_network_nothing_is_said_of_it() -> None:
    assert distance.content(digests("fifo", "sjf")) == ""
    assert "What distance cost" not in gl.report.render(digests("fifo"))
    ideal = far(network={"preset": "ideal"})
    assert ideal.losses == []
    assert distance.content([ideal]) == ""


def test_a_matrix_that_cannot_be_drawn_says_why() -> None:
    run = far()
    run.spec["cluster"]["network"] = {"preset": "of another version"}
    assert "cannot be drawn" in distance.content([run])


def test_equal_types_share_a_matrix() -> None:
    two = [{"name": "g", "memory_gb": 16}, {"name": "h", "memory_gb": 32}]
    servers = [{"count": 4, "gpu": name, "gpus": 1, "rack": "fill:2"} for name in "gh"]
    (one,), _ = distance.heats(far(gpu_types=two, servers=servers))
    assert one.gpu_type == ""
    servers[1]["rack"] = "fill:4"
    both, _ = distance.heats(far(gpu_types=two, servers=servers))
    assert [one.gpu_type for one in both] == ["g", "h"]


@settings(max_examples=20)
@given(HOSTILE, HOSTILE)
def test_no_model_or_type_breaks_the_page(model: str, gpu: str) -> None:
    jobs = FAR_JOBS.set_column(4, "model", pa.array(["a", model or "m", "c", "a"]))
    plain = Page(gl.report.render([far()]))
    page = Page(gl.report.render([far(jobs=jobs)]))
    for tag in ("script", "style", "table", "section", "svg", "figure", "iframe", "img", "b"):
        assert page.count(tag) == plain.count(tag), tag
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    named = distance.Heat(gpu, (2,), [(model, "rack", (0.5,))])
    assert Page(distance.heat(named)).count("svg") == 1


def test_where_nobody_waits_the_page_and_the_command_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "synth:philly?jobs=200&seed=1&max_gpus=2"
    arguments = ["compare", "--trace", trace, "--cluster", "pollux-64", "--policies", "fifo,las"]
    assert main([*arguments, "--html", str(tmp_path / "p.html")]) == 0
    light = "so policies can hardly differ"
    assert light in capsys.readouterr().out
    assert light in (tmp_path / "p.html").read_text("utf-8")
    assert (
        main([*arguments[:4], "pollux-64", "--policies", "fifo,las", "--rescale", "0.00001"]) == 0
    )
    assert light not in capsys.readouterr().out


def test_how_the_trace_was_read_and_what_it_ran_on_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job_id,arrival_s,gpus,duration_s\na,0,1,5\nb,1,1,3\n")
    page = tmp_path / "p.html"
    command = ["run", "--trace", str(tmp_path / "t.csv"), "--policy", "fifo", "--html", str(page)]
    read = ["--rescale", "0.5", "--limit", "2"]
    assert main([*command, *read, "--cluster", "pollux-64"]) == 0
    shown = "".join(Page(page.read_text("utf-8")).words)
    assert "limit = 2, rescale = 0.5" in shown
    assert "16 servers with 64 GPUs (T4)" in shown
    assert main([*command, "--cluster", "philly"]) == 0
    shown = "".join(Page(page.read_text("utf-8")).words)
    assert "552 servers with 2,490 GPUs." in shown
    assert "Read with" not in shown


def test_what_was_left_out_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "a,0,1,5\nb,1,1,0\nc,2,1,4\n"
    (tmp_path / "t.csv").write_text("job_id,arrival_s,gpus,duration_s\n" + rows)
    page = tmp_path / "p.html"
    command = ["run", "--trace", str(tmp_path / "t.csv"), "--cluster", "pollux-64"]
    assert main([*command, "--policy", "fifo", "--html", str(page)]) == 0
    assert "note: zero_duration 1: has a duration of 0 or less" in capsys.readouterr().err
    assert "1: has a duration of 0 or less (min_duration_s raises it)" in page.read_text("utf-8")
