"""Tests the measures of jobs in a window, recomputed from the tables by plain Python."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
from gangline.analysis.report.command import repeat
from gangline.cli.app import main
from gangline.errors import OptionError
from gangline.runs import arrival_window
from gangline.runs.offered_load import in_words
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
ADDRESS = "synth:philly?jobs=150&seed=4&max_gpus=8&load=0.9&cluster_gpus=8"
TRACE = gl.read_trace(ADDRESS)
LAST_S = float(TRACE.numbers("arrival_s")[-1])
WINDOW = (round(0.2 * LAST_S), round(0.7 * LAST_S))
TEXT = f"{WINDOW[0]},{WINDOW[1]}"
# The measures of jobs. All other keys are of the whole run, and measured times differ by run.
OF_JOBS = {
    *("jobs", "finished", "dropped", "preemptions", "migrations", "deadlines", "deadlines_met"),
    *("jct_mean_s", "jct_p50_s", "jct_p90_s", "jct_p95_s", "jct_p99_s", "jct_max_s"),
    *("queue_mean_s", "queue_p99_s", "wait_mean_s", "ftf_mean", "ftf_p99", "ftf_max"),
}
BY_CLOCK = {"wall_s", "solver_s", "decision_p50_us", "decision_p99_us", "decision_max_us"}


def counted(result: gl.Result, window: tuple[float, float] = WINDOW) -> list[dict[str, Any]]:
    rows = result.jobs.to_pylist()
    return [row for row in rows if window[0] <= row["arrival_s"] < window[1]]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def recomputed(rows: list[dict[str, Any]], deadlines: dict[str, float]) -> dict[str, float]:
    done = [row for row in rows if row["status"] == "finished"]
    jct, queue, wait, ftf = (
        [row[key] for row in done] for key in ("jct_s", "queue_s", "wait_s", "ftf")
    )
    limited = [row for row in rows if row["job_id"] in deadlines]
    met = [r for r in limited if (r["finish_s"] or math.inf) <= deadlines[r["job_id"]]]
    return {
        "jobs": len(rows),
        "finished": len(done),
        "dropped": sum(row["status"] == "dropped" for row in rows),
        "preemptions": sum(row["preemptions"] for row in rows),
        "migrations": sum(row["migrations"] for row in rows),
        "deadlines": len(limited),
        "deadlines_met": len(met),
        "jct_mean_s": sum(jct) / len(jct),
        **{f"jct_p{p}_s": quantile(jct, p / 100) for p in (50, 90, 95, 99)},
        "jct_max_s": max(jct),
        "queue_mean_s": sum(queue) / len(queue),
        "queue_p99_s": quantile(queue, 0.99),
        "wait_mean_s": sum(wait) / len(wait),
        "ftf_mean": sum(ftf) / len(ftf),
        "ftf_p99": quantile(ftf, 0.99),
        "ftf_max": max(ftf),
    }


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_measures_of_jobs_are_those_of_the_window_and_all_else_is_of_the_run(policy: str) -> None:
    columns = TRACE.table.to_pydict()
    arrival, duration = columns["arrival_s"], columns["duration_s"]
    columns["deadline_s"] = [a + 3 * d for a, d in zip(arrival, duration, strict=True)]
    # this gang is too large
    columns["gpus"] = [9 if i % 25 == 0 else n for i, n in enumerate(columns["gpus"])]
    table = pa.table({key: columns[key] for key in ("job_id", *_USED)})
    deadlines = dict(zip(columns["job_id"], columns["deadline_s"], strict=True))
    options: dict[str, Any] = {"segments": True, "on_infeasible": "drop"}
    whole = gl.simulate(LAB, table, policy, **options)
    result = gl.simulate(LAB, table, policy, count_arrivals=WINDOW, **options)
    wanted = recomputed(counted(result), deadlines)
    assert set(wanted) == OF_JOBS
    for key, value in wanted.items():
        assert result.summary[key] == pytest.approx(value, rel=1e-9), key
        assert type(result.summary[key]) is type(whole.summary[key]), key
    assert 0 < result.summary["dropped"] < whole.summary["dropped"]
    assert (policy == "fifo") or 0 < wanted["preemptions"] < whole.summary["preemptions"]
    for key in set(whole.summary) - OF_JOBS - BY_CLOCK:
        assert result.summary[key] == whole.summary[key], key
    # all jobs run and are in the tables
    assert result.log_hash == whole.log_hash
    for name in ("jobs", "segments", "timeline"):
        assert getattr(result, name).equals(getattr(whole, name))
    assert [row["job_id"] for row in counted(result)] == result.counted_jobs["job_id"].to_pylist()
    assert whole.counted_jobs.num_rows == len(TRACE)


_USED = ("arrival_s", "gpus", "duration_s", "deadline_s")


def test_a_window_around_all_jobs_changes_no_number_and_none_changes_no_byte(
    tmp_path: Path,
) -> None:
    whole = gl.simulate(LAB, TRACE, "srtf")
    wide = gl.simulate(LAB, TRACE, "srtf", count_arrivals=(0.0, LAST_S + 1.0))
    off = gl.simulate(LAB, TRACE, "srtf", count_arrivals=None)
    for result in (wide, off):
        for key in set(whole.summary) - BY_CLOCK:
            assert result.summary[key] == whole.summary[key], key
    assert off.spec["digest"] == whole.spec["digest"] != wide.spec["digest"]
    assert whole.spec["options"] == {}
    assert set(whole.spec["offered_load"]) == {
        *("load", "by_type", "arrival_span_s", "work_gpu_s", "capacity_gpu_s"),
        *("largest_share", "largest_jobs", "jobs", "left_out", "peak_share", "early_load"),
    }
    whole.save(tmp_path / "whole")
    off.save(tmp_path / "off")
    for name in ("jobs.parquet", "timeline.parquet"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "off" / name).read_bytes()


def test_the_first_end_is_in_the_window_and_the_last_is_not() -> None:
    jobs = pa.table(
        {"arrival_s": [0.0, 1.0, 2.0], "gpus": [1, 1, 1], "duration_s": [9.0, 5.0, 1.0]}
    )
    for window, jct_s in (((0, 1), 9.0), ((1, 2), 5.0), ((1.5, 2.5), 1.0), ((0.5, 2), 5.0)):
        summary = gl.simulate(LAB, jobs, count_arrivals=window).summary
        assert (summary["jobs"], summary["jct_mean_s"], summary["makespan_s"]) == (1, jct_s, 9.0)


def test_a_spec_has_the_window_and_repeats_it(tmp_path: Path) -> None:
    spec = gl.RunSpec.make(LAB, ADDRESS, "srtf", count_arrivals=TEXT)
    result = gl.run(spec)
    assert result.spec["options"] == {"count_arrivals": list(map(float, WINDOW))}
    assert gl.RunSpec.from_dict(result.spec).digest == spec.digest
    assert gl.RunSpec.from_dict(json.loads(json.dumps(result.spec))).digest == spec.digest
    assert spec.digest != gl.RunSpec.make(LAB, ADDRESS, "srtf").digest
    assert spec.digest == gl.RunSpec.make(LAB, ADDRESS, "srtf", count_arrivals=WINDOW).digest
    result.save(tmp_path / "first")
    loaded = gl.load_result(tmp_path / "first")
    assert loaded.counted_jobs.num_rows == result.summary["jobs"]
    again = gl.run(tmp_path / "first")
    assert {k: v for k, v in again.summary.items() if k not in BY_CLOCK} == {
        k: v for k, v in result.summary.items() if k not in BY_CLOCK
    }


BAD = ["2d", "9d,2d", "2d,2d", "a,b", "1d,2d,3d", "-1,5", ",5d", "1d,inf"]


@pytest.mark.parametrize("window", [*BAD, (1.0, math.inf), (5.0, 1.0), (1.0,), 3.0, (math.nan, 2)])
def test_a_window_of_another_form_is_refused(window: Any) -> None:
    with refused(OptionError, field="count_arrivals") as caught:
        gl.simulate(LAB, TRACE, count_arrivals=window)
    assert str(caught.value.field).startswith("count_arrivals")


def test_an_empty_window_says_where_the_arrivals_are() -> None:
    jobs = pa.table({"arrival_s": [7.0, 4000.0], "gpus": [1, 1], "duration_s": [9.0, 5.0]})
    for make in (gl.simulate, lambda *a, **o: gl.compare(a[0], a[1], ["fifo", "sjf"], **o)):
        with pytest.raises(OptionError) as caught:
            make(LAB, jobs, count_arrivals="1h,4000")
        assert str(caught.value) == (
            "run option count_arrivals: no job arrives between 1 h and 1 h 6 min 40 s: the first "
            "of 2 jobs arrives at 7 s, the last at 4000 s (1 h 7 min)"
        )
        assert caught.value.field == "count_arrivals"


def test_the_offered_load_is_that_of_the_window() -> None:
    result = gl.simulate(LAB, TRACE, count_arrivals=WINDOW)
    load = result.offered_load
    assert load is not None
    assert load == gl.offered_load(LAB, TRACE, window=WINDOW) != gl.offered_load(LAB, TRACE)
    mine = [row for row in TRACE.table.to_pylist() if WINDOW[0] <= row["arrival_s"] < WINDOW[1]]
    work = sum(row["gpus"] * row["duration_s"] for row in mine)
    assert load.load == pytest.approx(work / (8 * (WINDOW[1] - WINDOW[0])), rel=1e-9)
    assert result.spec["offered_load"]["window"] == list(WINDOW)
    assert gl.OfferedLoad.from_dict(result.spec["offered_load"]) == load
    assert f"jobs that arrive between {arrival_window.said(WINDOW)}" in load.in_words()


# Suggestion: arrivals every 1000 s, the last at 100,000 s; 1 GPU.


def every_1000_s(duration_s: float, jobs: int = 101) -> pa.Table:
    return pa.table(
        {
            "arrival_s": [1000.0 * i for i in range(jobs)],
            "gpus": [1] * jobs,
            # pairs of a long and a short job, so that some job has to wait
            "duration_s": [duration_s + (-1) ** i * 200.0 for i in range(jobs)],
        }
    )


ONE = gl.Cluster.homogeneous(servers=1, gpus=1)


def test_close_to_a_load_of_1_the_middle_of_the_arrivals_is_suggested() -> None:
    # 101 jobs in 100 s x 1000: loads of about 0.96; a tenth of the time is 10,000 s, in steps of
    # 60 s: 3600 s are more than 2 % of 100,000 s
    load = gl.offered_load(ONE, every_1000_s(950.0))
    assert load.text() == "0.96"
    assert load.steady_window == (10020.0, 90000.0)
    assert load.in_words().endswith(
        "--count-arrivals 2h47min,1d1h leaves out the first and the last tenth of the time in "
        "which jobs arrive: means then depend less on where the trace starts and stops."
    )
    assert arrival_window.parse("2h47min,1d1h") == load.steady_window
    table = gl.compare(ONE, every_1000_s(950.0), ["fifo", "sjf"])
    assert any("--count-arrivals 2h47min,1d1h" in line for line in table.sentences())
    measured = gl.compare(ONE, every_1000_s(950.0), ["fifo", "sjf"], count_arrivals="2h47min,1d1h")
    assert not any("--count-arrivals" in line for line in measured.sentences())


@pytest.mark.parametrize("duration_s", [995.0, 1100.0, 5000.0, 700.0])
def test_no_window_is_suggested_where_there_is_no_steady_state_or_no_need(
    duration_s: float,
) -> None:
    load = gl.offered_load(ONE, every_1000_s(duration_s))
    assert (load.load is not None and load.load >= 1.0) or duration_s == 700.0
    assert load.steady_window is None
    assert "--count-arrivals" not in load.in_words()


def test_no_window_is_suggested_where_jobs_take_longer_than_what_it_leaves_out() -> None:
    # 20 jobs of 9,600 s on 10 GPUs in 19,000 s: the load is near 1, a tenth of the time is 1,900 s
    ten = gl.Cluster.homogeneous(servers=1, gpus=10)
    jobs = every_1000_s(9600.0, 20)
    load = gl.offered_load(ten, jobs)
    assert load.load is not None
    assert 1.0 < load.load < 1.1
    nine = jobs.set_column(2, "duration_s", pa.array([9000.0] * 20))
    assert 0.9 < (gl.offered_load(ten, nine).load or 0.0) < 1.0
    assert gl.offered_load(ten, nine).middle is None


def test_several_draws_share_a_window_only_if_each_has_one() -> None:
    first, later = (gl.offered_load(ONE, every_1000_s(950.0, jobs)) for jobs in (101, 121))
    over = gl.offered_load(ONE, every_1000_s(1100.0))
    # 120,000 s: the middle is from 12,000 to 108,000 s
    assert later.steady_window == (12000.0, 108000.0)
    assert "--count-arrivals 3h20min,1d1h " in in_words([first, later])
    assert "--count-arrivals" not in in_words([first, over])


SUGGESTED = (
    "--count-arrivals 2h47min,1d1h leaves out the first and the last tenth of the time in which "
    "jobs arrive: means then depend less on where the trace starts and stops."
)


def test_saved_results_and_their_pages_suggest_the_same_window(tmp_path: Path) -> None:
    run = gl.simulate(ONE, every_1000_s(950.0), "fifo")
    assert run.offered_load is not None
    assert SUGGESTED in run.offered_load.in_words()
    run.save(tmp_path / "run")
    again = gl.load_result(tmp_path / "run")
    assert again.offered_load is not None
    assert again.offered_load.in_words() == run.offered_load.in_words()
    assert again.spec["offered_load"]["middle"] == [10020.0, 90000.0]
    table = gl.compare(ONE, every_1000_s(950.0), ["fifo", "sjf"])
    table.save(tmp_path / "table")
    for source in (again, table, tmp_path / "run", tmp_path / "table"):
        page = gl.report.write(source, tmp_path / "page.html").read_text("utf-8")
        assert SUGGESTED in page.replace("\u00a0", " ")


def saved_jobs(table: pa.Table, folder: Path) -> str:
    gl.write_trace(gl.Trace.from_arrow(table), folder / "jobs.parquet")
    return str(folder / "jobs.parquet")


def test_a_plan_suggests_the_window_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, keep = saved_jobs(every_1000_s(950.0), tmp_path), "wait_mean<2h"
    found = gl.plan_capacity(ONE, jobs, "fifo", keep=keep, workers=1)
    assert found.answer == 1
    (line,) = [line for line in found.sentences() if "--count-arrivals" in line]
    assert line.startswith("The offered load there is 0.96, close to the limit of 1: ")
    assert SUGGESTED in line
    assert found.to_dict()["steady_window"] == [10020.0, 90000.0]
    both = gl.plan_capacity(ONE, jobs, ["fifo", "sjf"], keep=keep, workers=1)
    said = [line for line in both.sentences() if "--count-arrivals" in line]
    assert said == [f"fifo: the offered load at its answer is 0.96. {SUGGESTED}"]
    counts = gl.plan_capacity(
        ONE, jobs, "fifo", keep=keep, workers=1, count_arrivals=(10020, 90000)
    )
    assert not any("--count-arrivals" in line for line in counts.sentences())
    assert "steady_window" not in counts.to_dict()
    words = ["--trace", jobs, "--cluster", "1x1xV100", "--policy", "fifo", "--workers", "1"]
    page = tmp_path / "plan.html"
    assert main(["plan", *words, "--keep", keep, "--html", str(page)]) == 0
    assert SUGGESTED in " ".join(capsys.readouterr().out.split())
    assert SUGGESTED in page.read_text("utf-8").replace("\u00a0", " ")


def test_a_plan_of_the_load_suggests_the_window_on_the_clock_of_load_1(tmp_path: Path) -> None:
    # at twice the load jobs come every 1000 s, and the window is the one from 10,020 to 90,000 s
    slow = every_1000_s(950.0)
    slow = slow.set_column(0, "arrival_s", pa.array([2000.0 * i for i in range(len(slow))]))
    jobs = saved_jobs(slow, tmp_path)
    options: dict[str, Any] = {"vary": "load", "step": 0.5, "most": 2, "workers": 1}
    found = gl.plan_capacity(ONE, jobs, "fifo", keep="wait_mean<2h", **options)
    assert found.answer == 2.0
    assert found.steady_window == (20040.0, 180000.0)
    options["count_arrivals"] = found.steady_window
    again = gl.plan_capacity(ONE, jobs, "fifo", keep="wait_mean<2h", **options)
    assert again.jobs == 79  # these jobs arrive at 11,000 to 89,000 s


def test_run_repeat_and_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--trace", ADDRESS, "--cluster", "2x4xV100"]
    out = str(tmp_path / "r")
    more = ["--count-arrivals", TEXT, "--segments", "--out", out]
    assert main(["run", *words, "--policy", "srtf", *more]) == 0
    said = " ".join(capsys.readouterr().out.split())
    result = gl.load_result(out)
    jobs = result.summary["jobs"]
    assert jobs == len(counted(result)) < 150
    assert f"cover the {jobs} jobs that arrive between {arrival_window.said(WINDOW)};" in said
    assert main(["run", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["jobs"] == jobs
    assert main(["run", out, "--count-arrivals", TEXT]) == 2
    assert "--count-arrivals: the spec" in capsys.readouterr().err
    assert main(["audit", out]) == 0
    capsys.readouterr()
    assert main(["run", *words, "--policy", "fifo", "--count-arrivals", "90d,91d"]) == 2
    assert "--count-arrivals: no job arrives between 90 d and 91 d" in capsys.readouterr().err


def test_an_audit_finds_a_summary_of_other_jobs() -> None:
    whole = gl.simulate(LAB, TRACE, "fifo", segments=True)
    result = gl.simulate(LAB, TRACE, "fifo", segments=True, count_arrivals=WINDOW)
    gl.testing.check_result(result, LAB, TRACE)
    for key in ("jobs", "finished", "jct_mean_s"):
        summary = {**result.summary, key: whole.summary[key]}
        found = gl.testing.broken_laws(
            result.jobs,
            result.segments,
            LAB,
            TRACE,
            summary=summary,
            options=result.spec["options"],
        )
        assert [law for law, _ in found] == ["summary"]
        assert key in found[0][1]


def test_compare_says_which_jobs_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trace", ADDRESS, "--cluster", "2x4xV100", "--policies", "fifo,srtf"]
    more = ["--count-arrivals", TEXT, "--out", str(tmp_path / "c"), "--html"]
    assert main(["compare", *words, *more, str(tmp_path / "now.html")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    jobs = len(counted(gl.load_result(tmp_path / "c" / "fifo-s0")))
    named = f"the {jobs} jobs that arrive between {arrival_window.said(WINDOW)}"
    assert named in said
    page = (tmp_path / "now.html").read_text("utf-8")
    assert named in page
    digests = [
        gl.report.digest(gl.load_result(tmp_path / "c" / f"{p}-s0")) for p in ("fifo", "srtf")
    ]
    assert f"--count-arrivals {TEXT}" in (repeat(digests) or "")
    assert main(["report", str(tmp_path / "c"), "--html", str(tmp_path / "later.html")]) == 0
    assert named in (tmp_path / "later.html").read_text("utf-8")
    document = json.loads((tmp_path / "c" / "comparison.json").read_text("utf-8"))
    assert document["count_arrivals"] == list(WINDOW)
    assert document["reading"][0].startswith("Job metrics and the offered load cover the ")
    assert {row["jobs"] for row in document["runs"]} == {jobs}


def test_draws_of_a_trace_count_each_their_own() -> None:
    table = gl.compare(LAB, ADDRESS, ["fifo"], trace_seeds=(1, 2, 3), count_arrivals=WINDOW)
    found = [len(counted(result)) for result in table.results]
    assert [row["jobs"] for row in table.rows] == found
    low, high = min(found), max(found)
    assert low < high
    assert f"cover the {low} to {high} jobs per draw that arrive" in table.sentences()[0]


def test_a_sweep_takes_it_among_its_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (f'"{TEXT}"', f"[{TEXT}]"):
        (tmp_path / "s.toml").write_text(
            f'[grid]\ntrace = ["{ADDRESS}"]\ncluster = ["2x4xV100"]\npolicy = ["fifo", "srtf"]\n'
            f"[options]\ncount_arrivals = {given}\n"
        )
        out = str(tmp_path / "store")
        assert main(["sweep", str(tmp_path / "s.toml"), "--out", out]) == 0
        said = capsys.readouterr().err
        assert f"cover only jobs that arrive between {arrival_window.said(WINDOW)}" in said
    assert "0 done now, 2 finished in total" in said
    keys = {"trace": [ADDRESS], "cluster": ["2x4xV100"], "policy": ["fifo"]}
    options = {"count_arrivals": WINDOW}
    done = gl.sweep({"grid": keys, "options": options}, out=tmp_path / "store", workers=1)
    assert done.counts["new"] == 0
    (result,) = done.results()
    assert done.table["jobs"].to_pylist() == [len(counted(result))]


def test_a_plan_measures_the_window(tmp_path: Path) -> None:
    keep = ["wait_p80 < 2h", "jct_mean < 9h"]
    options: dict[str, Any] = {"workers": 1, "count_arrivals": TEXT, "out": tmp_path}
    found = gl.plan_capacity("2x4xV100", ADDRESS, "fifo", keep=keep, **options)
    ends = arrival_window.said(WINDOW)
    assert f"cover only jobs that arrive between {ends}." in " ".join(found.sentences())
    assert found.to_dict()["count_arrivals"] == list(WINDOW)
    for point in found.points:
        lab = gl.Cluster.homogeneous(servers=int(point.size), gpus=4, gpu="V100")
        rows = counted(gl.simulate(lab, ADDRESS, "fifo"))
        wait = quantile([row["wait_s"] for row in rows], 0.8)
        mean = sum(row["jct_s"] for row in rows) / len(rows)
        assert point.values["wait_p80_s"].mean == pytest.approx(wait, rel=1e-9, abs=1e-6)
        assert point.values["jct_mean_s"].mean == pytest.approx(mean, rel=1e-9)
        assert point.load == gl.offered_load(lab, ADDRESS, window=WINDOW).load


def test_a_plan_speaks_of_the_load_of_the_window() -> None:
    # on one GPU: 10 jobs of 90 s, one every 100 s; from 1000 s on 10 of 300 s; then 10 of 1 s
    jobs = [90.0] * 10 + [300.0] * 10 + [1.0] * 10
    columns = {"arrival_s": [100.0 * i for i in range(30)], "gpus": [1] * 30, "duration_s": jobs}
    for window, load in (((1000, 2000), 3.0), ((0, 1000), 0.9)):
        assert gl.offered_load(ONE, pa.table(columns), window=window).load == pytest.approx(load)
    options: dict[str, Any] = {"workers": 1, "most": 4}
    address = "synth:uniform?jobs=60&seed=1&max_gpus=1&load=2.5&cluster_gpus=1"
    last = float(gl.read_trace(address).numbers("arrival_s")[-1])
    keep = "gpu_utilization >= 1%"
    whole = gl.plan_capacity("1x1xV100", address, keep=keep, **options)
    counted_ = gl.plan_capacity(
        "1x1xV100", address, keep=keep, count_arrivals=(0.0, last / 2), **options
    )
    assert "only because the trace ends" in " ".join(whole.sentences())
    assert "only because the overload ends" in " ".join(counted_.sentences())


def test_where_the_load_is_varied_the_same_jobs_are_measured() -> None:
    found = gl.plan_capacity(
        "2x4xV100", ADDRESS, "fifo", keep="jct_mean < 20h", vary="load", step=0.5, most=2.0,
        workers=1, count_arrivals=TEXT, exhaustive=True,
    )  # fmt: skip
    names = [row["job_id"] for row in counted(gl.simulate("2x4xV100", ADDRESS))]
    assert len(found.points) > 1
    for point in found.points:
        trace = gl.read_trace(ADDRESS, rescale=1.0 / point.size)
        rows = gl.simulate("2x4xV100", trace).jobs.to_pylist()
        took = [row["jct_s"] for row in rows if row["job_id"] in names]
        assert len(took) == len(names)
        assert point.values["jct_mean_s"].mean == pytest.approx(sum(took) / len(took), rel=1e-9)
    assert f"between {arrival_window.said(WINDOW)} at load 1." in " ".join(found.sentences())


def test_trace_info_suggests_a_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gl.write_trace(gl.Trace.from_arrow(every_1000_s(950.0)), tmp_path / "jobs.parquet")
    assert main(["trace", "info", str(tmp_path / "jobs.parquet"), "--cluster", "1x1xV100"]) == 0
    assert "--count-arrivals 2h47min,1d1h " in " ".join(capsys.readouterr().out.split())


def test_what_a_page_says_of_jobs_is_of_the_jobs_counted() -> None:
    whole = gl.simulate(LAB, TRACE, "srtf", segments=True)
    result = gl.simulate(LAB, TRACE, "srtf", segments=True, count_arrivals=WINDOW)
    run, other = gl.report.digest(result), gl.report.digest(whole)
    rows = counted(result)
    took = sorted(row["jct_s"] for row in rows)
    assert run.curves["jct_s"].tolist() == took
    assert run.curves["ftf"].tolist() == sorted(row["ftf"] for row in rows)
    for groups in (run.gangs, run.lengths):
        assert sum(group.jobs for group in groups) == len(rows)
        total = sum(group.jobs * group.jct_mean_s for group in groups)
        assert total == pytest.approx(sum(took), rel=1e-9)
    assert run.worse_off == np.mean([row["ftf"] > 1.0 + 1e-9 for row in rows])
    # the parts of the waiting add up to the mean waiting of the summary
    parts = sum(
        run.reasons[f"waited_{name}_s"] for name in ("too_few", "head_of_line", "apart", "together")
    )
    assert parts == pytest.approx(result.summary["wait_mean_s"], rel=1e-6)
    assert {story.job for story in run.stories} <= {row["job_id"] for row in rows}
    delay = {row["job_id"]: row["jct_s"] - row["jct_s"] / row["slowdown"] for row in rows}
    assert run.stories[0].job == max(delay, key=lambda job: delay[job])
    assert 0 < run.reasons["taken"] < other.reasons["taken"]
    # the cluster is that of the whole run
    assert run.busy_gpu_s == other.busy_gpu_s
    assert run.idle_while_waiting == other.idle_while_waiting


def test_figures_of_jobs_are_of_the_jobs_counted() -> None:
    pytest.importorskip("matplotlib")
    result = gl.simulate(LAB, TRACE, "fifo", count_arrivals=WINDOW)
    (line,) = gl.plot.cdf(result, "jct_s").axes[0].get_lines()
    assert np.size(line.get_xdata()) == len(counted(result))


def test_a_page_of_one_run_names_the_jobs(tmp_path: Path) -> None:
    result = gl.simulate(LAB, TRACE, "fifo", segments=True, count_arrivals=WINDOW)
    page = gl.report.render([gl.report.digest(result)])
    text = re.sub(r"<[^>]*>", " ", page)
    jobs = len(counted(result))
    assert f"cover the {jobs} jobs that arrive between {arrival_window.said(WINDOW)};" in text
    assert f"{jobs} jobs finished" in text
    result.save(tmp_path / "r")
    assert gl.report.render([gl.report.digest(gl.load_result(tmp_path / "r"))]) == page
