"""What a notebook shows of clusters, traces, results and comparisons: small, whole, escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl

ALLOWED = {
    "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "strong", "details", "summary",
}  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(["</table><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'>"]),
    st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20),
)


class Strict(HTMLParser):
    """Refuse whatever is not a plain table, and tags that do not close in order."""

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
        return  # a name that is refused is not shown either
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
