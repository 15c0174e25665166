"""Tests the display of objects in a notebook: small, complete, and escaped."""

from __future__ import annotations

import pickle
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline._support import notebook

if TYPE_CHECKING:
    from pathlib import Path

ALLOWED = {
    "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "strong", "details", "summary",
}  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(["</table><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'>"]),
    st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20),
)


class Strict(HTMLParser):
    """A parser that refuses anything except plain tables, and tags that do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        assert {name for name, _ in attrs} <= {"style"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def everything(user: str, model: str, cluster: str, gpu: str) -> list[Any]:
    data = {
        "name": cluster,
        "gpu_types": [{"name": gpu, "memory_gb": 16}],
        "servers": [{"count": 1, "gpu": gpu, "gpus": 2}],
    }
    lab = gl.Cluster.from_dict(data)
    rows = {
        "job_id": [user], "arrival_s": [0.0], "gpus": [1], "duration_s": [4.0], "user": [user],
        "model": [model],
    }  # fmt: skip
    trace = gl.Trace.from_arrow(pa.table(rows))
    comparison = gl.compare(lab, trace, ["fifo", "srtf"])
    return [lab, trace, comparison, *comparison.results]


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_name_breaks_a_notebook(user: str, model: str, cluster: str, gpu: str) -> None:
    try:
        shown = everything(user, model, cluster, gpu)
    except gl.GanglineError:
        return  # a refused name is not shown
    for thing in shown:
        html = thing._repr_html_()
        Strict(html)
        html.encode("utf-8")
        assert len(html) < 12_000


def test_the_numbers_are_those_of_the_run() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    rows = {"arrival_s": [0.0, 0.0], "gpus": [2, 2], "duration_s": [100.0, 20.0]}
    comparison = gl.compare(lab, pa.table(rows), ["fifo", "sjf"])
    # fifo: 100 and 120 s; sjf: 20 and 120 s.
    said = Strict(comparison._repr_html_()).text
    assert "Mean time to finish" in said
    assert "1 min 50 s" in said
    assert "<strong><bdi>1 min 10 s</bdi></strong>" in comparison._repr_html_()
    said = Strict(comparison.results[0]._repr_html_()).text
    assert "1 min 50 s" in said
    assert "jct_mean_s" in said


def test_a_large_cluster_is_cut_short() -> None:
    block = {"count": 1, "gpu": "G", "gpus": 2}
    data = {"gpu_types": [{"name": "G", "memory_gb": 1}], "servers": [block] * 300}
    html = gl.Cluster.from_dict(data)._repr_html_()
    assert "and 280 more blocks" in html
    assert len(html) < 12_000


@pytest.mark.parametrize("name", gl.Cluster.presets())
def test_presets_are_shown(name: str) -> None:
    assert "GPU type" in Strict(gl.Cluster.preset(name)._repr_html_()).text


def test_progress_is_one_line_below_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs in one cell share a line; the next cell has its own."""
    shown: list[list[dict[str, str]]] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown[-1].append(data)

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append([data])
        return Handle()

    shell = SimpleNamespace(kernel=object(), execution_count=1)
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(notebook, "_lines", {})
    lab, jobs = (
        gl.Cluster.homogeneous(servers=1, gpus=2),
        gl.synth.philly(jobs=9, seed=1, max_gpus=2),
    )
    gl.compare(lab, jobs, ["fifo", "las", "srtf", "sjf"], progress=True)
    assert len(shown) == 1
    assert re.fullmatch(r"sjf, day [0-9.]+: 4 of 4 runs", shown[0][-1]["text/plain"])
    assert shown[0][-1]["text/html"].startswith('<progress value="4" max="4"></progress> sjf, day')
    shell.execution_count = 2
    grid = {"trace": ["synth:philly?jobs=5&seed=1&max_gpus=2"], "cluster": ["pollux-64"]}
    spec = {"name": "<b>", "grid": {**grid, "policy": ["fifo", "las"]}}
    gl.sweep(spec, out=tmp_path / "out", workers=1, progress=True)
    assert len(shown) == 2
    assert shown[1][-1]["text/plain"] == "<b>: 2 of 2 runs"
    assert "&lt;b&gt;" in shown[1][-1]["text/html"]


def test_outside_of_a_notebook_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython on a terminal has a shell without a kernel."""
    assert not notebook.is_notebook()
    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(execution_count=1))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert not notebook.is_notebook()


def test_figures_show_themselves() -> None:
    lab, jobs = (
        gl.Cluster.homogeneous(servers=1, gpus=2),
        gl.synth.philly(jobs=9, seed=1, max_gpus=2),
    )
    figure = gl.simulate(lab, jobs, "fifo").plot.cdf()
    drawn, size = figure._repr_png_()
    assert drawn.startswith(b"\x89PNG")
    assert size == {"width": 480, "height": 280}
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == (drawn, size)
