"""Tests summaries of sweeps: groups, means, intervals, paired differences, and their display."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli import _console
from gangline.cli.app import main
from gangline.errors import OptionError, PolicyError, ResultError
from gangline.studies.sweep.labels import labels, numbers
from gangline.studies.sweep.summary import Summary, summarise
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from gangline.studies.sweep import Sweep
    from snapshots import Snapshot

SEEDS = 6
LOADS = "synth:pai?jobs=200&seed={trace_seed}&max_gpus=16&load=1.4&cluster_gpus=64"
GRID: dict[str, Any] = {
    "trace": [LOADS],
    "trace_seed": list(range(SEEDS)),
    "rescale": [2.0, 1.0, 0.8],
    "cluster": ["pollux-64"],
    "policy": ["fifo", "las", "srtf"],
}
LONG = ("gavel-water-filling-agnostic", "gavel-makespan-agnostic")
COLUMNS = 80


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    spec = {"name": "loads", "grid": {**GRID, "set": {"las.promote_knob": [0.0, 2.0]}}}
    return gl.sweep(spec, out=tmp_path_factory.mktemp("loads"), workers=2)


class NoStore:
    """The store of a table without runs."""

    def offered_load(self, digest: str) -> None:
        assert digest


def summary_of(rows: list[dict[str, Any]], keys: list[str], **more: Any) -> Summary:
    """Return the summary of a given table."""
    whole = [{"digest": "d", "status": "finished", **row} for row in rows]
    names = list(whole[0])
    table = pa.table({name: [row[name] for row in whole] for name in names})
    arguments: dict[str, Any] = {"by": None, "measures": ["jct_mean_s"], "baseline": None, **more}
    store: Any = NoStore()
    return summarise("by hand", table, keys, store, **arguments)


def test_the_summary_is_a_recount_of_the_table(done: Sweep) -> None:
    rows = pq.read_table(done.folder / "table.parquet").to_pylist()
    assert len(rows) == SEEDS * 3 * 4  # las has two settings
    found = done.summary(by=["policy", "rescale"]).rows
    keys = {"jct_mean_s", "jct_p99_s", "preemptions", "gpu_utilization"}
    assert keys < {row["measure"] for row in found}
    for row in found:
        mine: dict[int, list[float]] = {}
        base: dict[int, float] = {}
        runs = 0
        for run in rows:
            if run["rescale"] != row["rescale"]:
                continue
            if run["policy"] == row["policy"]:
                mine.setdefault(run["trace_seed"], []).append(run[row["measure"]])
                runs += 1
            if run["policy"] == "fifo":
                base[run["trace_seed"]] = run[row["measure"]]
        each = {seed: math.fsum(values) / len(values) for seed, values in mine.items()}
        assert (row["seeds"], row["runs"], row["failed"]) == (SEEDS, runs, 0)
        assert runs == SEEDS * (2 if row["policy"] == "las" else 1)
        assert row["mean"] == pytest.approx(math.fsum(each.values()) / SEEDS, rel=1e-12)
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["baseline"] == "fifo"
        if row["policy"] == "fifo":
            assert row["difference"] is row["less_in"] is None
            continue
        apart = [each[seed] - base[seed] for seed in each]
        assert row["difference"] == pytest.approx(math.fsum(apart) / SEEDS, rel=1e-9, abs=1e-9)
        assert row["less_in"] == sum(one < 0.0 for one in apart)
        assert row["equal_in"] == sum(one == 0.0 for one in apart)


def test_intervals_are_those_of_a_comparison_of_the_same_runs(done: Sweep) -> None:
    squeezed = gl.read_trace(LOADS.format(trace_seed=0), rescale=0.8)
    names = ["fifo", "srtf"]
    compared = gl.compare("pollux-64", squeezed, names, trace_seeds=range(SEEDS), keep=False)
    want = {row["policy"]: row for row in compared.statistics("jct_p99_s")}
    found = done.summary(measures=["jct_p99_s"], by=["rescale", "policy"]).rows
    for name in names:
        (row,) = (r for r in found if (r["policy"], r["rescale"]) == (name, 0.8))
        for key in ("mean", "low", "high", "seeds"):
            assert row[key] == want[name][key]
        if name == "srtf":
            apart = want[name]["difference"]
            assert row["difference"] == apart["mean"]
            assert (row["difference_low"], row["difference_high"]) == (apart["low"], apart["high"])
            assert row["less_in"] == apart["less_in"]


def test_differences_by_hand(tmp_path: Path) -> None:
    """One GPU, a long job before a short one: fifo 10 and 12 s, sjf 12 and 2 s; twice as much."""
    for name, factor in (("short.csv", 1), ("long.csv", 2)):
        rows = {"arrival_s": [0, 0], "gpus": [1, 1], "duration_s": [10 * factor, 2 * factor]}
        pa_csv.write_csv(pa.table(rows), tmp_path / name)
    grid = {
        "trace": [str(tmp_path / "short.csv"), str(tmp_path / "long.csv")],
        "cluster": ["1x1xV100"],
        "policy": ["fifo", "sjf"],
    }
    done = gl.sweep({"grid": grid}, out=tmp_path / "out", workers=1)
    rows_by = done.summary(measures=["jct_mean_s"]).rows
    told = [(row["policy"], row["mean"], row["difference"], row["less_in"]) for row in rows_by]
    assert told == [
        ("fifo", 11.0, None, None),
        ("fifo", 22.0, None, None),
        ("sjf", 7.0, -4.0, 1),
        ("sjf", 14.0, -8.0, 1),
    ]
    # over both traces
    (first, second) = done.summary(["policy"], measures=["jct_mean_s"], baseline="sjf").rows
    assert (first["mean"], first["difference"]) == (16.5, 6.0)
    assert (second["mean"], second["difference"]) == (10.5, None)
    assert {row["low"] for row in rows_by} == {None}


def test_a_failed_run_takes_its_seed_out_of_the_mean_and_of_the_pair() -> None:
    values: dict[str, list[float | None]] = {"fifo": [10.0, 20.0, 30.0], "sjf": [8.0, None, 36.0]}
    rows = [
        {"policy": policy, "seed": seed, "jct_mean_s": value}
        | ({"status": "failed"} if value is None else {"status": "finished"})
        for policy, of in values.items()
        for seed, value in enumerate(of)
    ]
    found = summary_of(rows, ["policy", "seed"])
    fifo, sjf = found.rows
    assert (fifo["mean"], fifo["seeds"], fifo["failed"]) == (20.0, 3, 0)
    assert (sjf["mean"], sjf["seeds"], sjf["failed"]) == (22.0, 2, 1)
    assert (sjf["difference"], sjf["less_in"], sjf["equal_in"]) == (2.0, 1, 0)  # of -2 and +6
    assert "2 of 3" in repr(found)
    assert any(line.startswith("1 of 6 runs failed. ") for line in found.sentences())


def test_pairs_have_one_world_and_the_first_setting_of_the_baseline() -> None:
    """A seed of the run is averaged within its trace; a setting of another policy is no key."""
    rows = [
        {"policy": p, "las.limits": k, "rescale": r, "trace_seed": t, "seed": s, "jct_mean_s": v}
        for p, k, r, t, s, v in (
            ("las", "[60]", 1.0, 0, 0, 4.0), ("las", "[60]", 1.0, 0, 1, 6.0),
            ("las", "[60]", 1.0, 1, 0, 8.0), ("las", "[60]", 1.0, 1, 1, 8.0),
            ("las", "[90]", 1.0, 0, 0, 100.0), ("las", "[90]", 1.0, 0, 1, 100.0),
            ("las", "[90]", 1.0, 1, 0, 100.0), ("las", "[90]", 1.0, 1, 1, 100.0),
            ("las", "[60]", 0.5, 0, 0, 50.0), ("las", "[60]", 0.5, 0, 1, 50.0),
            ("las", "[60]", 0.5, 1, 0, 50.0), ("las", "[60]", 0.5, 1, 1, 50.0),
            ("fifo", None, 1.0, 0, 0, 6.0), ("fifo", None, 1.0, 0, 1, 6.0),
            ("fifo", None, 1.0, 1, 0, 8.0), ("fifo", None, 1.0, 1, 1, 6.0),
        )
    ]  # fmt: skip
    keys = ["policy", "las.limits", "rescale", "trace_seed", "seed"]
    found = {
        (row["policy"], row["las.limits"], row["rescale"]): row
        for row in summary_of(rows, keys).rows
    }
    assert len(found) == 4
    fifo = found["fifo", None, 1.0]
    assert (fifo["mean"], fifo["seeds"], fifo["runs"]) == (6.5, 2, 4)
    assert (fifo["difference"], fifo["less_in"], fifo["equal_in"]) == (0.0, 1, 0)  # +1 and -1
    assert found["las", "[90]", 1.0]["difference"] == 93.5
    assert found["las", "[60]", 1.0]["difference"] is None
    assert found["las", "[60]", 0.5]["difference"] is None


def test_the_default_keys_are_the_policy_and_what_varies_but_seeds(done: Sweep) -> None:
    assert done.summary().by == ["policy", "rescale", "las.promote_knob"]
    assert done.summary(by=["rescale"]).rows[0]["baseline"] is None
    assert done.summary(by="rescale").averaged == ["policy", "las.promote_knob"]
    assert done.summary(by=["policy", "trace_seed"]).seed is None


@pytest.mark.parametrize(
    ("arguments", "error", "facts"),
    [
        ({"by": ["rescal"]}, OptionError, {"field": "by", "value": "rescal"}),
        ({"by": []}, OptionError, {"field": "by"}),
        ({"by": ["policy", "policy"]}, OptionError, {"field": "by", "value": "policy"}),
        ({"measures": ["jct_p98_s"]}, OptionError, {"field": "measures"}),
        ({"measures": ["policy"]}, OptionError, {"field": "measures"}),
        ({"measures": []}, OptionError, {"field": "measures"}),
        ({"baseline": "sjf"}, PolicyError, {"field": "baseline", "value": "sjf"}),
        (
            {"by": ["rescale"], "baseline": "las"},
            PolicyError,
            {"field": "baseline", "value": "las"},
        ),
    ],
)
def test_wrong_keys_are_refused(
    done: Sweep, arguments: dict[str, Any], error: type[Exception], facts: dict[str, Any]
) -> None:
    with refused(error, **facts):
        done.summary(**arguments)


def test_a_sweep_whose_runs_all_failed_has_no_summary(tmp_path: Path, snapshot: Snapshot) -> None:
    grid = {**GRID, "cluster": ["1x1xV100"], "trace_seed": [1], "policy": ["fifo"]}
    done = gl.sweep({"grid": {**grid, "rescale": [1.0]}}, out=tmp_path / "out", workers=1)
    assert done.counts["finished"] == 0
    with refused(ResultError, snapshot):
        done.summary()


def test_the_table_and_the_plain_values_hold_the_rows(done: Sweep) -> None:
    found = done.summary(measures=["jct_mean_s"])
    assert found.table.to_pylist() == found.rows
    document = json.loads(json.dumps(found.to_dict()))
    assert document["rows"] == found.rows
    assert (document["by"], document["seed"]) == (found.by, "trace_seed")
    assert "mean JCT" in repr(found)
    assert found._repr_html_().startswith("<table>")


def test_the_offered_load_is_that_of_each_run(done: Sweep) -> None:
    cluster = gl.Cluster.preset("pollux-64")
    rows = done.table.to_pylist()
    by_hand: dict[tuple[float, int], float] = {}
    for rescale in GRID["rescale"]:
        for seed in range(SEEDS):
            trace = gl.read_trace(LOADS.format(trace_seed=seed), rescale=rescale)
            # one GPU type: GPUs x time over all GPUs x time between first and last arrival
            jobs = trace.table.to_pylist()
            work = math.fsum(job["gpus"] * job["duration_s"] for job in jobs)
            span = jobs[-1]["arrival_s"] - jobs[0]["arrival_s"]
            by_hand[rescale, seed] = work / (cluster.gpus_total * span)
    for row in rows:
        want = by_hand[row["rescale"], row["trace_seed"]]
        assert row["offered_load"] == pytest.approx(want, rel=1e-6)
    assert "offered_load" in (done.folder / "table.csv").read_text().splitlines()[0]
    for row in done.summary(measures=["jct_mean_s"]).rows:
        each = [by_hand[row["rescale"], seed] for seed in range(SEEDS)]
        assert row["offered_load"] == pytest.approx(sum(each) / SEEDS, rel=1e-6)


def test_a_load_above_one_is_said(done: Sweep) -> None:
    said = " ".join(done.summary().sentences())
    loads = [
        gl.offered_load("pollux-64", gl.read_trace(LOADS.format(trace_seed=s), rescale=0.8))
        for s in range(SEEDS)
    ]
    # Every draw has jobs that run on for days after the last arrival.
    assert [load.is_over and load.leaves_backlog is False for load in loads] == [True] * SEEDS
    assert "At rescale 0.8, the offered load is " in said
    assert "In all of them the load is above 1 only because long jobs run on after the" in said
    assert "also above 1 at rescale" in said


def command(tmp_path: Path, grid: dict[str, Any], *more: str, name: str = "sw") -> list[str]:
    from gangline._support import toml

    spec = tmp_path / f"{name}.toml"
    spec.write_text(toml.dumps({"grid": grid}), encoding="utf-8")
    return ["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1", *more]


def test_no_line_is_longer_than_80_columns_and_no_name_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "synth:philly?jobs=12&seed={trace_seed}&max_gpus=8"
    grid = {
        "trace": [trace, trace.replace("philly", "helios").replace("jobs=12", "jobs=14")],
        "trace_seed": list(range(5)),
        "cluster": ["hadar-60", {"from": "hadar-60", "scale": 0.75}],
        "policy": ["fifo", *LONG],
        "rescale": [1.0, 0.5],
    }
    names = [*LONG, "synth:helios jobs=14", "hadar-60 scale=0.75", "rescale 0.5"]
    for more in ([], ["--runs"], ["--by", "policy,rescale"], ["--by", "policy"]):
        assert main(command(tmp_path, grid, *more)) == 0
        told = capsys.readouterr()
        lines = told.out.splitlines()
        assert max(map(len, lines)) <= COLUMNS, max(lines, key=len)
        rest = [x for x in told.err.splitlines() if not x.startswith(("saved", "sw:"))]
        assert max(map(len, rest)) <= COLUMNS
        for name in LONG if more and more[0] == "--by" else names[:4]:
            assert any(name in line for line in lines), name


def test_a_table_that_fits_has_no_headings(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["fifo", "1", "2h"], ["fifo", "0.5", "3h"]]
    _console.grouped(["policy", "rescale", "mean JCT"], rows, 2, title="a title")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a title"
    assert [line.split() for line in lines[-3:-1]] == rows
    wide = [[f"{'x' * 40} {place}", f"{'y' * 40}", "2h"] for place in range(2)]
    _console.grouped(["policy", "cluster", "mean JCT"], wide, 2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5:-1] == [
        f"policy {'x' * 40} 0", f"  {'y' * 40}    2h",
        f"policy {'x' * 40} 1", f"  {'y' * 40}    2h",
    ]  # fmt: skip


def test_varied_parameters_are_columns_and_not_a_heading_per_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = ["policy", "easy.estimate_error", "tiresias.preempt_min_run_s"]
    numbers = ["1h36m (1h23m, 1h49m)*", "-5m54s (-15m17s, +12s)", "4 of 5"]
    rows = [["easy", error, "", *numbers] for error in ("0", "0.5")]
    rows += [["tiresias", "", "3600", *numbers]]
    _console.grouped([*keys, "mean JCT", "difference", "less in"], rows, 3)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    headings = [line for line in lines if line.startswith("policy")]
    assert headings == ["policy easy", "policy tiresias"]
    titles = [line.split()[:2] for line in lines[1:4]]
    assert titles == [["easy.", "tiresias."], ["estimate_", "preempt_"], ["error", "min_run_s"]]


def test_the_best_are_named_with_their_settings() -> None:
    key = "easy.estimate_error"
    seconds = [("fifo", None, 9.0), ("easy", 0.5, 4.0), ("easy", 2.0, 6.0)]
    rows = [
        {"policy": policy, key: error, "trace_seed": seed, "jct_mean_s": jct_s}
        for policy, error, jct_s in seconds
        for seed in (0, 1)
    ]
    found = summary_of(rows, ["policy", key, "trace_seed"])
    assert found.sentences()[0] == "easy (estimate_error 0.5) has the lowest mean JCT."


def test_the_command_prints_the_summary_and_runs_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = {**GRID, "trace_seed": list(range(5)), "policy": ["fifo", "srtf"]}
    assert main(command(tmp_path, grid)) == 0
    told = capsys.readouterr()
    body = [line for line in told.out.splitlines() if re.match(r" (fifo|srtf) ", line)]
    assert len(body) == 6  # 30 runs
    assert "mean JCT by policy and rescale, over 5 trace seeds" in told.out
    assert "difference: from fifo" in told.err
    assert main(command(tmp_path, grid, "--runs")) == 0
    shown = capsys.readouterr().out.partition("mean JCT by")[0]
    lines = [line.split() for line in shown.splitlines()]
    assert [cells[0] for cells in lines if len(cells) == 11] == list("01234") * 6
    more = ["--by", "policy", "--measure", "jct_p99_s,makespan_s", "--baseline", "srtf"]
    assert main(command(tmp_path, grid, *more)) == 0
    told = capsys.readouterr()
    assert "p99 JCT by policy" in told.out
    assert "makespan by policy" in told.out
    assert "Within each seed, runs are averaged over rescale." in told.out
    assert "difference: from srtf" in told.err
    assert main(command(tmp_path, grid, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 30
    assert [row["rescale"] for row in document["summary"]["rows"][:3]] == [2.0, 1.0, 0.8]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--by", "pollicy"], "by: the sweep has no key `pollicy`; did you mean `policy`?"),
        (["--baseline", "las"], "baseline: `las` is not among the policies: fifo"),
        (["--by", "rescale", "--baseline", "fifo"], "as `policy` is not in `by`"),
        (["--html", "."], "is a folder"),
    ],
)
def test_what_could_not_be_summed_up_is_refused_before_the_first_run(
    tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path, {**GRID, "policy": ["fifo"]}, *more)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_equal_errors_are_one_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two draws of the trace have a gang larger than the cluster, with different messages."""
    trace = "synth:philly?jobs=20&seed={trace_seed}&max_gpus=4"
    grid = {
        "trace": [trace],
        "trace_seed": [0, 3, 7],
        "seed": [1, 2],
        "cluster": ["1x1xV100"],
        "policy": ["fifo", "sjf"],
    }
    assert main(command(tmp_path, grid)) == 3
    told = capsys.readouterr()
    lines = [line for line in told.err.splitlines() if line.startswith("failed: ")]
    failed = json.loads((tmp_path / "out" / "failed.json").read_text())
    messages = {run["message"] for run in failed}
    assert len(lines) == len(messages) < len(failed)
    for line in lines:
        where, _, message = line.partition(": InfeasibleJobError: ")
        same = [run for run in failed if run["message"] == message]
        seed = same[0]["trace_seed"]
        path = trace.format(trace_seed=seed)
        assert where == f"failed: {len(same)} runs, the first of them fifo on {path}, seed 1"
    assert "{trace_seed}" not in told.err + told.out


class Elements(HTMLParser):
    """The elements of a page, their resources and their scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loaded: list[str | None] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_the_page_loads_nothing_and_has_no_raw_text(tmp_path: Path) -> None:
    hostile = '<img src=x onerror=alert(1)>"\u202e'
    cluster = gl.Cluster.from_dict({**gl.Cluster.preset("pollux-64").to_dict(), "name": hostile})
    private = tmp_path / "home-of-ann"
    private.mkdir()
    for name in ("a.csv", "b.csv"):
        rows = {"arrival_s": [0, 1, 5], "gpus": [1, 8, 64], "duration_s": [60, 70, 80]}
        pa_csv.write_csv(pa.table(rows), private / name)
    grid = {
        "trace": [str(private / "a.csv"), str(private / "b.csv")],
        "cluster": [cluster],
        "policy": ["fifo", "srtf"],
        "rescale": [1.0, 0.5],
    }
    done = gl.sweep({"name": hostile, "grid": grid}, out=tmp_path / "out", workers=1)
    from gangline.studies.sweep.page import write_page

    page = tmp_path / "page.html"
    write_page(
        done, done.summary(["policy", "trace", "cluster", "rescale"]), page, "gangline sweep"
    )
    text = page.read_text("utf-8")
    found = Elements()
    found.feed(text)
    assert hostile not in text
    assert "\u202e" not in text
    assert "home-of-ann" not in text
    assert found.tags.isdisjoint({"img", "iframe", "object", "embed"})
    assert found.loaded == ["data:,"]  # no icon
    assert found.handlers == []
    assert "default-src 'none'" in text
    assert "a.csv" in text


def test_the_page_has_a_table_a_figure_per_measure_and_what_was_run(
    done: Sweep, tmp_path: Path
) -> None:
    from gangline.studies.sweep.page import write_page

    summary = done.summary(measures=["jct_mean_s", "gpu_utilization"])
    page = tmp_path / "page.html"
    write_page(done, summary, page)
    text = page.read_text("utf-8")
    assert text.count("<svg viewBox") == 2
    assert text.count("<polyline") == 2 * 4  # fifo, srtf, and las with two settings
    for row in summary.rows:
        assert row["mean"] is not None
    assert "What was run" in text
    assert LOADS.replace("&", "&amp;") in text
    assert "0 to 5" in text  # the seeds
    (tmp_path / "mine.html").write_text("mine")
    with refused(ResultError, path=str(tmp_path / "mine.html")):
        write_page(done, summary, tmp_path / "mine.html")


def test_a_curve_has_the_means_over_the_numbers_in_which_addresses_differ(tmp_path: Path) -> None:
    grid = {
        "trace": [f"synth:pai?jobs=30&seed={{trace_seed}}&max_gpus=8&load={x}&cluster_gpus=64"
                  for x in (1.2, 0.7)],
        "trace_seed": list(range(5)),
        "cluster": ["pollux-64"],
        "policy": ["fifo", "srtf"],
    }  # fmt: skip
    done = gl.sweep({"grid": grid}, out=tmp_path, workers=2)
    (axes,) = gl.plot.sweep(done).axes
    assert axes.get_xlabel() == "load"
    assert axes.get_ylabel() == "mean JCT, h"
    lines = {
        str(x.get_label()): x for x in axes.get_lines() if not str(x.get_label()).startswith("_")
    }
    assert list(lines) == ["fifo", "srtf"]
    rows = done.table.to_pylist()
    for policy, line in lines.items():
        want = []
        for load in ("0.7", "1.2"):
            of = [
                run["jct_mean_s"] / 3600.0
                for run in rows
                if run["policy"] == policy and f"load={load}&" in run["trace"]
            ]
            want.append(sum(of) / len(of))
        assert np.asarray(line.get_xdata()).tolist() == [0.7, 1.2]
        assert np.asarray(line.get_ydata()).tolist() == pytest.approx(want)


def test_a_sweep_of_policies_alone_is_drawn_as_bars(done: Sweep) -> None:
    summary = done.summary(["policy"], measures=["makespan_s"])
    assert summary.curves("makespan_s") is None
    (axes,) = gl.plot.sweep(summary, "makespan_s").axes
    bars: Any = axes.patches
    heights = [bar.get_height() for bar in bars]
    assert heights == pytest.approx([row["mean"] / 3600.0 for row in summary.rows])
    with refused(OptionError, field="key", value="jct_mean_s"):
        gl.plot.sweep(summary, "jct_mean_s")


def test_clusters_are_places_with_names(tmp_path: Path) -> None:
    grid = {**GRID, "trace_seed": [0], "policy": ["fifo", "srtf"], "rescale": [1.0]}
    grid["cluster"] = ["pollux-64", {"from": "pollux-64", "scale": 0.75}]
    done = gl.sweep({"grid": grid}, out=tmp_path, workers=1)
    curves = done.summary(measures=["jct_mean_s"]).curves("jct_mean_s")
    assert curves is not None
    assert curves.x_title == "cluster"
    assert curves.names == ["pollux-64", "pollux-64 scale=0.75"]
    (axes,) = gl.plot.sweep(done).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == curves.names


def test_a_policy_without_the_parameter_is_level() -> None:
    rows = [
        {"policy": policy, "las.promote_knob": knob, "seed": 0, "jct_mean_s": value}
        for policy, knob, value in (("fifo", None, 9.0), ("las", 2.0, 5.0), ("las", 0.0, 4.0))
    ]
    found = summary_of(rows, ["policy", "las.promote_knob", "seed"])
    assert found.by == ["policy", "las.promote_knob"]
    curves = found.curves("jct_mean_s")
    assert curves is not None
    assert (curves.x_title, curves.names) == ("las.promote_knob", [])
    drawn = {
        label: [(x, line.mean.mean) for x, line in of if line.mean]
        for label, of in curves.lines.items()
    }
    assert drawn == {"fifo": [(0.0, 9.0), (2.0, 9.0)], "las": [(0.0, 4.0), (2.0, 5.0)]}


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (["/srv/ann/a.csv", "/srv/ben/b.csv"], ["a.csv", "b.csv"]),
        (["/srv/ann/a.csv", "/srv/ben/a.csv"], ["/srv/ann/a.csv", "/srv/ben/a.csv"]),
        (["synth:a?jobs=3&seed={trace_seed}", "synth:b?jobs=3"], ["synth:a", "synth:b"]),
        (["synth:a?jobs=3"], ["synth:a jobs=3"]),
        ([True, False, None, 2**63], ["true", "false", "", str(2**63)]),
        (["[600, 3600]", "[3600]"], ["[600, 3600]", "[3600]"]),
        (["synth:a?x=1", "synth:a?x=1&y=2"], ["synth:a?x=1", "synth:a?x=1&y=2"]),
    ],
)
def test_labels_tell_values_apart(values: list[Any], want: list[str]) -> None:
    assert list(labels(values).values()) == want


def test_numbers_are_found_where_all_values_are_numbers() -> None:
    assert numbers([2.0, 1], ["2", "1"]) == ("", [2.0, 1.0])
    assert numbers([True, False], ["true", "false"]) is None
    assert numbers(["a", "b"], ["x=1", "y=2"]) is None
    assert numbers(["a", "b"], ["x=1", "x=e"]) is None


def test_one_draw_and_one_seed_are_not_told_of_as_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "one.toml"
    spec.write_text(
        f'name = "one"\n[grid]\ntrace = ["{LOADS.format(trace_seed=0)}"]\n'
        'rescale = [1.0, 0.8]\ncluster = ["pollux-64"]\npolicy = ["fifo", "srtf"]\n'
    )
    assert main(["sweep", str(spec), "--out", str(tmp_path / "one"), "--workers", "1"]) == 0
    out, errors = capsys.readouterr()
    assert "The offered load is also above 1 at rescale 1." in out
    assert "draws" not in out
    assert "difference: from fifo\n" in errors
    assert "less in" not in out + errors
