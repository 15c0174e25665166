"""Tests figures and tables for papers: their content, their numbers and their bytes."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline._support.look import style_of
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)


@pytest.fixture(scope="module")
def comparison() -> gl.Comparison:
    trace = gl.synth.philly(jobs=60, seed=1, max_gpus=8)
    return gl.compare(LAB, trace, ["fifo", "srtf"], seeds=[0, 1])


def test_a_cdf_has_every_job_of_every_seed(comparison: gl.Comparison) -> None:
    (axes,) = gl.plot.cdf(comparison, "jct_s").axes
    for number, (line, label) in enumerate(zip(axes.get_lines(), ["fifo", "srtf"], strict=True)):
        runs = [result.jobs["jct_s"] for result in comparison.results if result.policy == label]
        want = np.sort(np.concatenate([run.to_numpy() for run in runs]))
        assert np.array_equal(line.get_xdata(), np.maximum(want, 1.0))
        assert np.allclose(line.get_ydata(), np.arange(1, 121) / 120)
        assert (line.get_label(), line.get_color()) == (label, style_of(number)[0])
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "JCT"


def test_results_and_comparisons_draw_themselves(comparison: gl.Comparison) -> None:
    def points(figure: Any) -> list[Any]:
        axes = figure.axes[0]
        lines = [line.get_xydata().tolist() for line in axes.get_lines()]
        return lines + [patch.get_bbox().bounds for patch in axes.patches]

    first = comparison.results[0]
    drawn = points(comparison.plot.cdf("queue_s"))
    assert drawn
    assert drawn == points(gl.plot.cdf(comparison, "queue_s"))
    assert points(first.plot.cdf("queue_s")) == points(gl.plot.cdf(first, "queue_s"))
    assert points(first.plot.timeline()) == points(gl.plot.timeline(first))
    assert points(comparison.plot.bars("jobs")) == points(gl.plot.bars(comparison, "jobs"))


def test_long_runs_are_thinned_to_quantiles() -> None:
    trace = gl.synth.uniform(jobs=5000, seed=1)
    result = gl.simulate(gl.Cluster.homogeneous(servers=64, gpus=8), trace, "fifo")
    (axes,) = gl.plot.cdf(result, "slowdown").axes
    (line,) = axes.get_lines()
    x = np.asarray(line.get_xdata())
    assert len(x) == 2000
    assert x[[0, -1]].tolist() == [min(s := result.jobs["slowdown"].to_pylist()), max(s)]
    assert axes.get_xscale() == "log"


def test_a_timeline_is_that_of_the_first_run_of_each_policy(comparison: gl.Comparison) -> None:
    (axes,) = gl.plot.timeline(comparison, "gpus_busy").axes
    for line, result in zip(axes.get_lines(), comparison.results[::2], strict=True):
        table = result.timeline
        assert line.get_label() == result.policy
        assert np.array_equal(line.get_ydata(), table["gpus_busy"].to_numpy())
        days = (table["t_s"].to_numpy() - table["t_s"][0].as_py()) / 86400.0
        assert np.array_equal(line.get_xdata(), days)
    assert axes.get_ylabel() == "GPUs busy"


def test_bars_have_intervals_from_five_seeds_on() -> None:
    trace = gl.synth.philly(jobs=60, seed=1, max_gpus=8)
    few = gl.compare(LAB, trace, [gl.policies.Sjf(estimate_error=1.0)], seeds=range(4))
    many = gl.compare(LAB, trace, [gl.policies.Sjf(estimate_error=1.0)], seeds=range(6))
    assert not gl.plot.bars(few).axes[0].collections
    (axes,) = gl.plot.bars(many).axes
    values = [row["jct_mean_s"] / 3600.0 for row in many.rows]
    (bar,) = axes.patches
    assert bar.get_height() == pytest.approx(sum(values) / 6)
    low, high = axes.collections[0].get_segments()[0][:, 1]
    assert min(values) <= low < bar.get_height() < high <= max(values)
    assert axes.get_ylabel() == "mean JCT, h"


def test_decision_times_are_in_order_of_size() -> None:
    runs = [
        gl.simulate(LAB, gl.synth.philly(jobs=jobs, seed=1, max_gpus=8), "srtf")
        for jobs in (80, 20, 40)
    ]
    (axes,) = gl.plot.decision_times(runs).axes
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [20, 40, 80]
    medians = {run.summary["jobs"]: run.summary["decision_p50_us"] for run in runs}
    assert list(line.get_ydata()) == [medians[20], medians[40], medians[80]]


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_equal_figures_are_equal_files(
    kind: str, comparison: gl.Comparison, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in paths:
        assert gl.plot.save(gl.plot.cdf(comparison), path) == path
    one, other = (path.read_bytes() for path in paths)
    assert one == other
    gl.plot.save(gl.plot.cdf(comparison, "queue_s"), paths[0])
    assert paths[0].read_bytes() != other


def test_tables_as_csv_parquet_and_latex(comparison: gl.Comparison, tmp_path: Path) -> None:
    csv = pa_csv.read_csv(gl.plot.write_table(comparison, tmp_path / "a.csv"))
    assert csv["jct_mean_s"].to_pylist() == [row["jct_mean_s"] for row in comparison.rows]
    parquet = pq.read_table(gl.plot.write_table(comparison, tmp_path / "a.parquet"))
    assert parquet.equals(comparison.table)
    tex = gl.plot.write_table(comparison, tmp_path / "a.tex").read_text()
    titles, cells, best = comparison.verdict()
    lines = tex.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrrrr}"
    assert lines[2].split(" & ")[1] == titles[1] == "mean JCT"
    assert any(best[1][1:])
    for line, row, marks in zip(lines[4:6], cells, best, strict=True):
        found = line.removesuffix(r" \\").split(" & ")
        for text, cell, mark in zip(found, row, marks, strict=True):
            plain = cell.replace("%", r"\%")
            assert text == (rf"\textbf{{{plain}}}" if mark else plain)


def test_signs_that_latex_reads_are_escaped(tmp_path: Path) -> None:
    odd = pa.table(
        {"a_b": ["50\n\n%", r"C:\x", "{~^}", None], "s": [1.0, 0.1 + 0.2, math.nan, 2.5]}
    )
    tex = gl.plot.write_table(odd, tmp_path / "odd.tex").read_text()
    assert tex.splitlines()[2:8] == [
        r"a\_b & s \\", r"\midrule", r"50  \% & 1 \\", r"C:\textbackslash{}x & 0.3 \\",
        r"\{\textasciitilde{}\textasciicircum{}\} &  \\", r" & 2.5 \\",
    ]  # fmt: skip


def test_texts_of_a_figure_are_escaped_for_latex(
    comparison: gl.Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of policies are in legends and at ticks; a text with mathematics is already TeX."""
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    odd = "a_b & 5 % <x>"
    monkeypatch.setattr(comparison, "rows", [{**row, "policy": odd} for row in comparison.rows])
    figures = [gl.plot.bars(comparison), gl.plot.cdf(comparison)]
    figures[1].axes[0].get_lines()[0].set_label(odd)
    figures[1].axes[0].legend()
    figures[1].axes[0].set_xlabel(r"$x_1$ & $\alpha$")
    seen: list[list[str]] = []

    def saved(figure: Figure, path: Path, **_: object) -> None:
        figure.draw_without_rendering()
        seen.append([text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)])
        path.write_text("\\begingroup%\n", "utf-8")

    monkeypatch.setattr(Figure, "savefig", saved)
    monkeypatch.setattr("shutil.which", str)
    escaped = r"a\_b \& 5 \% \textless{}x\textgreater{}"
    for figure in figures:
        path = gl.plot.save(figure, tmp_path / "a.pgf")
        assert path.read_text("utf-8").splitlines()[1].startswith(r"\providecommand{\mathdefault}")
        assert escaped in seen[-1]
        assert odd not in seen[-1]
        figure.draw_without_rendering()
        assert odd in [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    assert r"$x_1$ & $\alpha$" in seen[-1]
    tex = gl.plot.write_table(comparison, tmp_path / "a.tex").read_text("utf-8")
    assert tex.splitlines()[4].startswith(f"{escaped} & ")


def test_ratios_have_a_logarithmic_axis_and_nothing_is_drawn_around_zero() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=8)
    idle = gl.compare(lab, gl.synth.philly(jobs=3, seed=1, max_gpus=1), ["fifo", "srtf"])
    (axes,) = idle.plot.cdf("ftf").axes
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "finish-time fairness")
    (axes,) = idle.plot.bars("preemptions").axes
    assert (axes.get_ylim(), axes.get_ylabel()) == ((0.0, 1.0), "preemptions")


def test_what_cannot_be_drawn_is_an_error(
    comparison: gl.Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(gl.OptionError, field="column", value="jct"):
        gl.plot.cdf(comparison, "jct")
    with refused(gl.OptionError, field="column", value="user"):
        gl.plot.cdf(comparison, "user")
    with refused(gl.OptionError, field="key", value="mean"):
        gl.plot.bars(comparison, "mean")
    with refused(gl.OptionError, field="runs", value="none"):
        gl.plot.timeline([])
    with refused(gl.OptionError, field="path", value=str(tmp_path / "a.jpg")):
        gl.plot.save(gl.plot.cdf(comparison), tmp_path / "a.jpg")
    monkeypatch.setenv("PATH", "")
    with refused(gl.OptionError, field="path", value=str(tmp_path / "a.pgf")):
        gl.plot.save(gl.plot.cdf(comparison), tmp_path / "a.pgf")
    with refused(gl.OptionError, field="path", value=str(tmp_path / "a.xlsx")):
        gl.plot.write_table(comparison, tmp_path / "a.xlsx")


def test_without_matplotlib_the_error_says_how_to_install_it(
    comparison: gl.Comparison, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refused(gl.MissingExtraError, snapshot):
        gl.plot.cdf(comparison)
