"""Tests why one policy did better: what jobs waited for, by hand and second by second."""

from __future__ import annotations

import dataclasses
import html
import importlib
import json
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline._support.formatting import duration as format_duration
from gangline.analysis.report import _svg, answer, findings
from gangline.analysis.report.charts import charts
from gangline.analysis.report.command import typed, without_folders
from gangline.analysis.report.waiting import idle_share, waits
from gangline.cli.app import main
from gangline.runs import comparison

if TYPE_CHECKING:
    from snapshots import Snapshot

digest_module = importlib.import_module(
    "gangline.analysis.report.digest"
)  # the name is also that of a function
LAB = gl.Cluster.homogeneous(servers=1, gpus=2)
# B needs both GPUs and waits for A; C would fit beside A. fifo: A 0-10, B 10-15, C 15-18.
BLOCKED = worlds.columns("A 0 1 10", "B 1 2 5", "C 2 1 3")


def shares(run: gl.Result, **gpus_by_type: int) -> tuple[float, float]:
    first = min(run.jobs["arrival_s"].to_pylist())
    gpus = gpus_by_type or {"GPU": 2}
    length_s = run.timeline["t_s"].to_pylist()[-1] - first
    idle = idle_share(run.timeline, sum(gpus.values()), length_s)
    found = waits(run)
    return math.nan if found is None else found.behind_head, idle


def test_a_blocked_head_by_hand() -> None:
    """C waits 13 s, of them 8 behind B, which waits 9 s; one GPU of two is idle for 9 of 18 s."""
    blocked, idle = shares(gl.simulate(LAB, pa.table(BLOCKED), "fifo"))
    assert blocked == pytest.approx(8 / 22)
    assert idle == pytest.approx(9 / 36)


def test_where_others_overtake_the_head_nobody_is_behind_it() -> None:
    """C runs from 2 to 5 s; a GPU is idle from 1 to 2 and from 5 to 10 s; all ends at 15 s."""
    blocked, idle = shares(gl.simulate(LAB, pa.table(BLOCKED), "fifo-skip"))
    assert blocked == 0.0
    assert idle == pytest.approx(6 / 30)


def test_idle_gpus_of_several_types_do_not_add_up() -> None:
    """One GPU of B is idle until 10 s; the head needs two of one type, the last job needs one."""
    lab = worlds.lab("1x2 A @0", "1x2 B @0")
    rows = worlds.columns("0 2 10", "0 1 10", "1 2 10", "2 1 10")
    blocked, _ = shares(gl.simulate(lab, pa.table(rows), "fifo"), A=2, B=2)
    assert blocked == pytest.approx(8 / 17)
    # the timeline does not show the type of servers that are down
    lab["failures"] = {"table": [{"server": 0, "down_s": 30.0, "up_s": 40.0}]}
    rows["duration_s"] = [25.0] * 4
    blocked, _ = shares(gl.simulate(lab, pa.table(rows), "fifo"), A=2, B=2)
    assert math.isnan(blocked)


def test_without_waiting_or_a_timeline_nothing_is_known() -> None:
    alone = gl.simulate(LAB, pa.table({k: v[:1] for k, v in BLOCKED.items()}), "fifo")
    blocked, idle = shares(alone)
    assert (math.isnan(blocked), idle) == (True, 0.0)
    off = gl.simulate(LAB, pa.table(BLOCKED), "fifo", timeline="off")
    assert waits(off) is None
    assert math.isnan(idle_share(off.timeline, 2, 18.0))


def test_dropped_jobs_wait_for_nothing() -> None:
    rows = {name: [*values[:1], values[1], *values[1:]] for name, values in BLOCKED.items()}
    rows["gpus"][1], rows["job_id"][1] = 3, "X"  # it can never run here, but would be the head
    run = gl.simulate(LAB, pa.table(rows), "fifo", on_infeasible="drop")
    assert shares(run)[0] == pytest.approx(8 / 22)


JOB = st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(1, 9))


@settings(max_examples=40)
@given(st.lists(JOB, min_size=1, max_size=12), st.sampled_from(["fifo", "fifo-skip", "sjf"]))
def test_the_shares_equal_those_of_a_walk(rows: list[tuple[int, int, int]], policy: str) -> None:
    run = gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=4), worlds.jobs(*rows), policy)
    jobs = sorted(run.jobs.to_pylist(), key=lambda job: job["arrival_s"])
    end = int(max(job["finish_s"] for job in jobs))
    first = int(jobs[0]["arrival_s"])
    waited = behind = unused = 0
    for second in range(first, end):
        running = [job for job in jobs if job["first_start_s"] <= second < job["finish_s"]]
        queue = [job for job in jobs if job["arrival_s"] <= second < job["first_start_s"]]
        idle = 4 - sum(job["gpus"] for job in running)
        waited += len(queue)
        unused += idle if queue else 0
        if queue and queue[0]["gpus"] > idle:
            behind += sum(job["gpus"] <= idle for job in queue)
    blocked, share = shares(run, GPU=4)
    assert share == pytest.approx(unused / (4 * (end - first)))
    if waited:
        assert blocked == pytest.approx(behind / waited)
    else:
        assert math.isnan(blocked)


def digests(cluster: Any, rows: dict[str, Any], *policies: Any, **options: Any) -> list[Any]:
    trace = gl.Trace.from_arrow(pa.table(rows))
    return [gl.report.digest(gl.simulate(cluster, trace, one, **options)) for one in policies]


def said(runs: list[gl.report.Digest]) -> str:
    """Return the sentences that a page begins with, without their markup."""
    rows = findings.rows(runs)
    means = comparison.means(rows)
    parts = [*answer.on_top(runs), answer.recommendation(means, rows, runs)]
    whole = re.sub(r"</?code[^>]*>", "", " ".join(parts))
    shown = re.sub(r"<[^>]*>", " ", whole)
    return re.sub(r" (?=[,.;:)])", "", " ".join(shown.split()))


def test_the_answer_by_hand(snapshot: Snapshot) -> None:
    """fifo: A 10 s, B 14 s, C 16 s; fifo-skip: A 10 s, B 14 s, C 3 s."""
    runs = digests(LAB, BLOCKED, "fifo", "fifo-skip")
    answered = said(runs)
    snapshot(answered)
    assert [run.behind_head for run in runs] == [pytest.approx(8 / 22), 0.0]
    assert [run.idle_while_waiting for run in runs] == [pytest.approx(9 / 36), pytest.approx(0.2)]


def test_one_policy_is_described(snapshot: Snapshot) -> None:
    answered = said(digests(LAB, BLOCKED, "fifo"))
    snapshot(answered)
    assert "mean time to finish by" not in answered


def test_an_idle_cluster_is_said_to_be_one(snapshot: Snapshot) -> None:
    """Two jobs of 10 s on one GPU of 20: 20 of 200 GPU-seconds are in use, and nobody waits."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=20)
    rows = worlds.columns("0 1 10", "0 1 10")
    answered = said(digests(lab, rows, "fifo", "srtf"))
    snapshot(answered)
    assert "mean time to finish by" not in answered


def test_a_short_wait_is_said_to_be_one(snapshot: Snapshot) -> None:
    row = {"jct_mean_s": 1000.0, "wait_mean_s": 0.4, "gpu_utilization": 0.2}
    said = comparison.waiting([row])
    snapshot(said)
    said = comparison.waiting([row | {"wait_mean_s": 20.0}])
    snapshot(said)


def test_a_cluster_that_hardly_makes_jobs_wait_is_said_to_be_one(snapshot: Snapshot) -> None:
    """A is alone for 100 s, then B and C collide. The GPU is in use all the time.

    With 60 s and 2 s, 60 of 222 s are waiting under fifo, which is contention. With 2 s and 1 s, 2
    of 105 s.
    """
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    rows = worlds.columns("0 1 100", "100 1 60", "100 1 2")
    assert "can hardly differ" not in said(digests(one, rows, "fifo", "sjf"))
    rows["duration_s"] = [100.0, 2.0, 1.0]
    answered = said(digests(one, rows, "fifo", "sjf"))
    snapshot(answered)
    # (100 + 2 + 3) / 3 = 35 s under fifo and (100 + 3 + 1) / 3 = 34.67 s under sjf: within 1 %
    assert "mean time to finish by" not in answered


def test_a_load_above_1_without_waiting_is_explained() -> None:
    """20 jobs of 1 GPU arrive within 1 s and take 15 s each: 300 GPU-s against 20 x 1 s."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=20)
    rows = worlds.columns(*["0 1 15"] * 19, "1 1 15")
    answered = said(digests(lab, rows, "fifo", "srtf"))
    assert answered.startswith("No job waited, so policies can hardly differ: ")
    assert "The offered load is 15.0 nevertheless, because it compares all work" in answered
    assert not re.search("large enough|lightly", answered)
    rows["arrival_s"][-1] = 600.0  # 300 of 12,000 GPU-s: nothing to explain
    assert "nevertheless" not in said(digests(lab, rows, "fifo", "srtf"))


def test_faster_gpus_are_no_less_waiting(snapshot: Snapshot) -> None:
    """No job waits, but types differ by a factor of 4, so policies still differ."""
    lab = worlds.lab("1x1 slow*0.25 @0", "1x1 fast @0")
    rows = worlds.columns("0 1 10")
    fast, slow = digests(lab, rows, "fifo", "fifo")
    slow = dataclasses.replace(
        slow,
        spec={**slow.spec, "policy": {**slow.spec["policy"], "label": "slow"}, "log_hash": "x"},
        summary={**slow.summary, "jct_mean_s": 40.0},
    )
    answered = said([fast, slow])
    assert "can hardly differ" not in answered
    snapshot(answered)


def test_no_line_ends_inside_an_option() -> None:
    """A browser may break a line after the two hyphens and before the value."""
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    rows = worlds.columns("0 1 100", "1 1 10")
    runs = digests(one, rows, "fifo", "srtf")
    table = findings.rows(runs)
    shown = answer.recommendation(comparison.means(table), table, runs)
    assert '(<code class="short">--restart-s 30</code> charges 30' in shown


def test_the_price_of_the_best_is_named(snapshot: Snapshot) -> None:
    """sjf: long to 100 s, short to 110 s. srtf stops the long one at 1 s; it restarts for 5 s."""
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    rows = worlds.columns("0 1 100", "1 1 10")
    answered = said(digests(one, rows, "sjf", "srtf", "las", restart_s=5.0))
    snapshot(answered)
    free = said(digests(one, rows, "sjf", "srtf"))
    snapshot(free)
    assert (
        "srtf assumes free preemption each job still has to run" not in free
    )  # the rival also does
    assert "srtf assumes free preemption" in said(digests(one, rows, "fifo", "srtf"))


def test_too_coarse_a_timeline_explains_nothing() -> None:
    (exact,) = digests(LAB, BLOCKED, "fifo")
    assert exact.behind_head == pytest.approx(8 / 22)
    (coarse,) = digests(LAB, BLOCKED, "fifo", timeline=7.0)
    assert math.isnan(coarse.behind_head)
    assert math.isnan(coarse.idle_while_waiting)
    assert "Head-of-line" not in said([coarse])


def test_groups_by_length_are_those_of_the_jobs_alone() -> None:
    """A job of exactly 10 min is in the first group, regardless of its wait."""
    one = gl.Cluster.homogeneous(servers=1, gpus=1)
    rows = worlds.columns("0.1 1 600", "0.1 1 601", "0.2 1 90000", "0.3 1 3600")
    for run in digests(one, rows, "fifo", "srtf"):
        found = [(group.name, group.jobs) for group in run.lengths]
        assert found == [("up to 10 min", 1), ("10 min to 1 h", 2), ("over 1 d", 1)]


def test_the_time_axis_ends_with_the_waiting(snapshot: Snapshot) -> None:
    """The last job arrives at 2 s and waits until 15 s; the first goes on to 1,000 s."""
    rows = {name: list(values) for name, values in BLOCKED.items()}
    rows["job_id"].append("D")
    rows["arrival_s"].append(0.0)
    rows["gpus"].append(1)
    rows["duration_s"].append(1000.0)
    lab = gl.Cluster.homogeneous(servers=1, gpus=3)
    runs = digests(lab, rows, "fifo")
    assert runs[0].busy_until_s == 15.0
    drawn = charts(runs)
    for key in ("gpus_busy", "jobs_waiting"):
        assert drawn[key].x_title == "seconds since the first arrival"
        assert drawn[key].x_limit == pytest.approx(15.0 * 1.02)
    snapshot(drawn["gpus_busy"].about)
    # the drawing ends at the limit, at the right edge of the picture
    told = re.search(r'data-chart="([^"]*)"', _svg.draw(drawn["gpus_busy"]))
    assert told is not None
    assert json.loads(html.unescape(told[1]))["x"]["high"] == pytest.approx(15.0 * 1.02)
    # without a tail the axis shows everything
    rows = {**BLOCKED, "duration_s": [10.0, 5.0, 0.5]}
    assert charts(digests(LAB, rows, "fifo"))["gpus_busy"].x_limit is None


def test_the_tail_of_a_long_line_does_not_coarsen_what_is_drawn() -> None:
    """2,500 changes in the first 5,000 s, then a last one at 1,000,000 s."""
    time_s = np.append(np.arange(0.0, 5000.0, 2.0), [5000.0, 1e6])
    values = np.append(np.arange(2500) % 7, [3.0, 0.0]).astype(float)
    line = digest_module._folded(time_s, values, 5000.0)
    assert len(line.time_s) <= 2000
    inside = line.time_s <= 5000.0
    assert inside.sum() >= 400
    assert line.high[inside].max() == 6.0
    assert (line.time_s[~inside].tolist(), line.mean[~inside].tolist()) == ([1e6], [0.0])


def test_a_page_names_no_folder_of_the_machine(tmp_path: Any) -> None:
    trace = tmp_path / "week.csv"
    trace.write_text("job_id,arrival_s,gpus,duration_s\na,0,1,5\nb,1,1,3\n")
    lab = tmp_path / "lab.toml"
    lab.write_text(gl.Cluster.homogeneous(servers=1, gpus=1).to_toml())
    out, page = tmp_path / "out", tmp_path / "page.html"
    common = ["--trace", str(trace), "--cluster", str(lab), "--policies", "fifo,srtf"]
    assert main(["compare", *common, "--out", str(out), "--html", str(page)]) == 0
    assert main(["report", str(out)]) == 0
    for made in (page, out / "report.html"):
        shown = made.read_text("utf-8")
        assert str(tmp_path) not in shown
        assert "week.csv" in shown


def test_seeds_are_counted(snapshot: Snapshot) -> None:
    fifo, skip = digests(LAB, BLOCKED, "fifo", "fifo-skip")
    again = [dataclasses.replace(run, spec={**run.spec, "seed": 1}) for run in (fifo, skip)]
    again[0] = dataclasses.replace(again[0], summary={**again[0].summary, "jct_mean_s": 8.0})
    answered = said([fifo, skip, *again])
    # the mean is (13.3 + 8) / 2 = 10.7 s against 9 s
    snapshot(answered)


def test_without_finished_jobs_nothing_is_claimed() -> None:
    runs = digests(LAB, BLOCKED, "fifo", "fifo-skip", until_s=1.0)
    assert "mean time to finish by" not in said(runs)
    assert said(runs[:1]).endswith("need not leave a backlog. No job finished.")


WORLD = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 90)), min_size=1, max_size=14
)


@settings(max_examples=40)
@given(WORLD, st.sampled_from([None, 7.0]))
def test_the_answer_is_true_in_any_world(
    rows: list[tuple[int, int, int]], restart_s: float | None
) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=2)
    names = ["fifo", "fifo-skip", "srtf", "las"]
    runs = [gl.simulate(lab, worlds.jobs(*rows), name, restart_s=restart_s) for name in names]
    answered = said([gl.report.digest(run) for run in runs])
    assert not re.search(r"\b(nan|None|inf)\b", answered)
    jobs = {name: run.jobs.to_pylist() for name, run in zip(names, runs, strict=True)}
    mean = {name: sum(job["jct_s"] for job in own) / len(own) for name, own in jobs.items()}
    waits = {name: sum(job["wait_s"] for job in own) / len(own) for name, own in jobs.items()}
    share = max(waits[name] / mean[name] for name in names)
    waited = re.match("No job waited|All waiting came to", answered)
    assert (waited is not None) == (share <= 0.05)
    schedules = {
        json.dumps([(job["first_start_s"], job["finish_s"]) for job in own])
        for own in jobs.values()
    }
    if "Every job started and finished at the same time" in answered:
        assert len(schedules) == 1
        return
    found = re.search(
        r"(?:^|[.:] |doubles the load\. )((?:[\w-]+(?:, | and )?)+) "
        r"(cuts?|halves?|have) the (?:same )?mean time to finish",
        answered,
    )
    assert found is not None, answered
    best = set(re.findall(r"[\w-]+", found[1].replace(" and ", " ")))
    least = min(mean.values())
    assert {name for name in names if mean[name] <= least * 1.0099} <= best
    assert (best == set(names)) == (found[2] == "have")
    at = re.search(r"\), at ([0-9]+) preemptions?", answered)
    if len(best) == 1:
        (name,) = best
        assert int(at[1] if at else 0) == sum(job["preemptions"] for job in jobs[name])


def test_paths_of_a_machine_are_names_of_files() -> None:
    spec = {
        "trace": {
            "path": "/srv/ann/my traces/week.csv",
            "metadata": {
                "options": '{"models": "/srv/ann/models.toml", "limit": 3}',
                "origin": "read from /srv/ann/x/week.csv, see https://doi.org/10.1/2 and/or a/b",
            },
        },
        "cluster": {"throughput": {"table": "../rates/oracle.json"}, "name": "/lab/"},
        "policy": {
            "label": "/a/b",
            "params": {"table": "C:\\Users\\ann\\t.csv", "a": ["~/x/y.csv"]},
        },
        "seed": 3,
    }
    assert without_folders(spec) == {
        "trace": {
            "path": "week.csv",
            "metadata": {
                "options": '{"models": "models.toml", "limit": 3}',
                "origin": "read from week.csv, see https://doi.org/10.1/2 and/or a/b",
            },
        },
        "cluster": {"throughput": {"table": "oracle.json"}, "name": "/lab/"},
        "policy": {"label": "/a/b", "params": {"table": "t.csv", "a": ["y.csv"]}},
        "seed": 3,
    }


def test_a_command_is_shown_without_outputs_and_folders(snapshot: Snapshot) -> None:
    arguments = [
        "compare", "--trace", "/srv/ann/my traces/a.csv", "--cluster=/srv/ann/lab.toml",
        "--policies", "fifo,srtf", "--html", "/srv/p.html", "--out=o", "-o", "x",
        "--set", "las.limits=[1, 2]", "--restart-s", "30",
    ]  # fmt: skip
    snapshot(typed(arguments))
    arguments = ["run", "--trace", "synth:philly?jobs=5&seed=1", "--cluster", "labs/a.toml"]
    assert "'synth:philly?jobs=5&seed=1' --cluster labs/a.toml" in typed(arguments)


def test_policies_that_tie_are_named_together(snapshot: Snapshot) -> None:
    """A tie for the last place is one statement, and a tie of all says how close it is."""

    def said(**means: float) -> str:
        return comparison.headline(
            [{"policy": name, "jct_mean_s": mean} for name, mean in means.items()]
        )

    snapshot(said(a=60.0, b=90.0, c=90.0))
    # compared with the best of the others and the baseline, which is the first by default
    snapshot(said(c=120.0, a=60.0, b=90.0))
    named = said(b=90.0, a=60.0, c=120.0)
    snapshot(named)
    assert "baseline" not in said(a=60.0, b=90.0, c=120.0)
    rows = [{"policy": name, "jct_mean_s": mean} for name, mean in (("a", 60.0), ("c", 120.0))]
    assert "against c (1 min against 2 min)" in comparison.headline(rows, baseline="c")
    assert "same mean time to finish: 1 min." in said(a=60.0, b=60.0)
    snapshot(said(a=100.0, b=100.9))


def test_a_calmer_policy_that_is_nearly_as_good_is_named(snapshot: Snapshot) -> None:
    rows = [
        {"policy": "fifo", "jct_mean_s": 200.0},
        {"policy": "sjf", "jct_mean_s": 110.0},
        {"policy": "las", "jct_mean_s": 105.0, "preemptions": 900},
        {"policy": "srtf", "jct_mean_s": 100.0, "preemptions": 1000, "migrations": 1},
    ]
    told = comparison.headline(rows)
    snapshot(told)
    snapshot(comparison.headline(rows[1:2] + rows[3:]))
    rows[1]["preemptions"] = 5
    snapshot(comparison.headline(rows))
    rows[2]["preemptions"] = 1100
    dearer = "; las has 1,100 preemptions."
    assert dearer in comparison.headline(rows[:1] + rows[2:])
    rows[3]["jct_mean_s"] = rows[1]["jct_mean_s"] = 104.9
    rows[1]["preemptions"] = 0
    snapshot(comparison.headline([rows[1], rows[3]]))


def test_a_policy_that_ties_by_the_seeds_has_its_own_mean(snapshot: Snapshot) -> None:
    """fifo is 2 % behind srtf, within what seeds distinguish; its lead is smaller."""
    rows = [
        {"policy": "fifo", "jct_mean_s": 102.0, "preemptions": 0},
        {"policy": "hadar", "jct_mean_s": 125.0, "preemptions": 0},
        {"policy": "srtf", "jct_mean_s": 100.0, "preemptions": 7},
    ]
    snapshot(comparison.headline(rows, tied=["fifo", "srtf"]))


def test_a_page_on_drawn_traces_has_intervals_and_can_be_made_again(tmp_path: Any) -> None:
    trace = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=8"
    lab = tmp_path / "lab.toml"
    lab.write_text(gl.Cluster.homogeneous(servers=2, gpus=4).to_toml())
    common = ["--trace", trace, "--cluster", str(lab), "--policies", "fifo,srtf"]
    out, page = tmp_path / "out", tmp_path / "p.html"
    made = ["compare", *common, "--trace-seeds", "0..4", "--out", str(out), "--html", str(page)]
    assert main(made) == 0
    assert main(["report", str(out)]) == 0
    live, saved = (path.read_text("utf-8") for path in (page, out / "report.html"))
    table = gl.compare(lab, trace, ["fifo", "srtf"], trace_seeds=range(5))
    srtf = table.statistics()[1]
    low, high = (format_duration(srtf[end]) for end in ("low", "high"))
    for shown in (live, saved):
        assert f"{format_duration(srtf['mean'])} ({low} to {high})" in shown
        assert "over 5 draws of the trace" in shown.replace("\u00a0", " ")
        assert "differ in their trace" not in shown
    assert "--trace-seeds 0,1,2,3,4" in saved


def test_seeds_that_change_nothing_are_named_on_top(snapshot: Snapshot) -> None:
    runs = digests(LAB, BLOCKED, "fifo", "fifo-skip")
    again = [dataclasses.replace(run, spec={**run.spec, "seed": 1}) for run in runs]
    first, rest = said([*runs, *again]).split(" The 2 seeds change nothing")
    snapshot(first)
    assert rest


def test_seeds_that_change_nothing_are_one_run() -> None:
    runs = digests(LAB, BLOCKED, "fifo", "fifo-skip")
    again = [dataclasses.replace(run, spec={**run.spec, "seed": 1}) for run in runs]
    page = gl.report.render([*runs, *again])
    assert "The 2 seeds change nothing" in page
    assert "Mean rank" not in page
    assert "Means over" not in page


def test_shares_of_waiting_over_several_draws_are_those_of_all_that_was_waited() -> None:
    """One draw waits 100 times as long as the other, which a mean of two shares would hide."""
    two = gl.Cluster.homogeneous(servers=1, gpus=2)
    runs = []
    for seed, scale in enumerate((1, 100)):
        last = 3 if scale == 1 else 300
        rows = {
            "arrival_s": [0, scale, 2 * scale],
            "gpus": [1, 2, 1] if scale == 1 else [1, 2, 2],
            "duration_s": [10 * scale, 5 * scale, last],
        }
        runs.append(gl.report.digest(gl.simulate(two, pa.table(rows), "fifo", segments=True)))
        runs[-1].spec["seed"], runs[-1].spec["log_hash"] = seed, str(seed)
    assert [run.behind_head for run in runs] == [pytest.approx(8 / 22), 0.0]
    (mean,) = findings.means(findings.rows(runs))
    waited = 22 + 100 * (9 + 13)
    assert mean["behind_head"] == pytest.approx(8 / waited)
    assert mean["wait_mean_s"] == pytest.approx(waited / 6)
    page = gl.report.render(runs)
    assert "Means over 2 runs. The charts of times to finish, groups of jobs and fairness" in page
    assert "pairs of models cover only the one with seed 0." in page


def draws(*traces: dict[str, Any], seeds: int = 1) -> list[gl.report.Digest]:
    """Return runs of fifo on four GPUs, of several draws of a trace, each with several seeds."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    runs = [run for rows in traces for _ in range(seeds) for run in digests(lab, rows, "fifo")]
    for number, run in enumerate(runs):
        run.spec["seed"], run.spec["log_hash"] = number, str(number)
    return runs


def test_groups_of_jobs_are_those_of_all_draws() -> None:
    """Six jobs of 3 GPUs take 10 s each, one after the other: 35 s; two of 4 take 100 s: 150 s.

    All have one class of sizes: (6 x 35 + 2 x 150) / 8 = 63.75 s, where a mean of means is 92.5 s.
    """
    small = worlds.columns(
        "0 3 10", "0 3 10", "0 3 10", "0 3 10", "0 3 10", "0 3 10", user=["a"] * 6
    )
    large = worlds.columns("0 4 100", "0 4 100", user=["b"] * 2)
    for seeds in (1, 2):  # a second seed makes no more jobs
        runs = draws(small, large, seeds=seeds)
        (run,) = findings.pooled(runs)
        assert [(one.name, one.jobs, one.jct_mean_s) for one in run.gangs] == [("3 to 4", 8, 63.75)]
        assert [(one.name, one.jobs, one.gpu_seconds, one.jct_mean_s) for one in run.users] == [
            ("a", 6, 180.0, 35.0),
            ("b", 2, 800.0, 150.0),
        ]
        assert [(one.name, one.jobs) for one in run.lengths] == [("up to 10 min", 8)]


def test_the_chart_of_groups_is_of_all_draws() -> None:
    """Ten jobs of 1 GPU and five of 4, which wait; the second draw runs ten times as long.

    On four GPUs the first take (4 x 60 + 4 x 120 + 2 x 180) / 10 = 108 s, the others 240, 300, ...
    480 s, 360 s on average: 108 x 11 / 2 = 594 s and 360 x 11 / 2 = 1980 s over both draws.
    """
    rows = {"arrival_s": [0.0] * 15, "gpus": [1] * 10 + [4] * 5, "duration_s": [60.0] * 15}
    runs = draws(rows, {**rows, "duration_s": [600.0] * 15})
    chart = charts(findings.pooled(runs))["gangs"]
    assert [name.split("\n") for name in chart.names] == [["1", "20"], ["4", "10"]]
    assert chart.lines[0].y.tolist() == pytest.approx([594.0, 1980.0])


def test_takers_are_those_of_all_draws() -> None:
    """One draw has nine pairs of a stopped job and a taker, another has one, and a third none."""
    rows = [
        {"policy": "p", "seed": seed, "taken": float(taken), "taken_by_later": share}
        for seed, (taken, share) in enumerate([(9, 1.0), (1, 0.0), (0, math.nan)])
    ]
    (mean,) = findings.means(rows)
    assert mean["taken_by_later"] == pytest.approx(0.9)
