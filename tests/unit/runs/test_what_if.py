"""Tests what-if: worlds by hand, and separate runs of the changed worlds."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from commands import gangline
from gangline.errors import ClusterError, OptionError, PolicyError, ResultError, TraceError
from gangline.runs.what_if import parse
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from gangline.runs.what_if import Change

LAB = gl.Cluster.homogeneous(servers=1, gpus=4)
JOBS: dict[str, list[Any]] = {
    "job_id": ["first", "wide", "small"],
    "arrival_s": [0, 1, 2],
    "gpus": [2, 4, 1],
    "duration_s": [100, 50, 10],
}


def by_hand(policy: Any = "fifo", **options: Any) -> gl.Result:
    """Under fifo `small` waits behind `wide`, which waits for `first`: 2 -> 150."""
    return gl.simulate(LAB, pa.table(JOBS), policy, **options)


@pytest.mark.parametrize(
    ("change", "wait_s", "run_s", "finish_s", "others_s"),
    [
        # shorter than `wide`, so it takes two free GPUs at once; `wide` still waits for `first`
        ({"policy": "sjf"}, 0.0, 10.0, 12.0, (100 + 149) / 2),
        # `wide` gets the new server at 1, and two GPUs of the old one are free
        ({"servers": 1}, 0.0, 10.0, 12.0, (100 + 50) / 2),
        # as many GPU-seconds on two GPUs
        ({"gpus": 2}, 148.0, 5.0, 155.0, (100 + 149) / 2),
        ({"later_s": 98.0}, 50.0, 10.0, 160.0, (100 + 149) / 2),
        # submitted with `first`, after it in the table, and before `wide`
        ({"later_s": -2.0}, 0.0, 10.0, 10.0, (100 + 149) / 2),
        ({"policy": "sjf", "gpus": 4}, 98.0, 2.5, 102.5, (100 + 151.5) / 2),
    ],
)
def test_changes_by_hand(
    change: Change, wait_s: float, run_s: float, finish_s: float, others_s: float
) -> None:
    found = gl.what_if(by_hand(), "small", change)
    base, row = found.rows
    assert (base.wait_s, base.run_s, base.jct_s, base.finish_s) == (148.0, 10.0, 158.0, 160.0)
    assert (base.others, base.others_jct_mean_s) == (2, (100 + 149) / 2)
    assert (row.wait_s, row.run_s, row.finish_s) == (wait_s, run_s, finish_s)
    assert row.jct_s == pytest.approx(finish_s - row.arrival_s)
    assert row.others_jct_mean_s == pytest.approx(others_s)
    assert (row.others, row.others_before_s) == (2, base.others_jct_mean_s)


def test_the_policy_of_the_run_keeps_its_parameters() -> None:
    """By hand: a user may run one job at a time, so `small` waits until `first` ends at 100 s.

    On one server `wide` goes before it until 150 s.
    """
    jobs = pa.table(JOBS | {"user": ["u", "v", "u"]})
    params = {"qos_user_jobs": {"normal": 1}}
    limited = gl.simulate(LAB, jobs, "slurm", params=params)
    found = gl.what_if(limited, "small", {"policy": "slurm"}, {"policy": "slurm", "servers": 1})
    assert [row.wait_s for row in found.rows[:2]] == [148.0, 148.0]
    assert found.rows[2].wait_s == 98.0
    assert "`slurm` keeps the parameters of the original run." in found.notes
    free = gl.what_if(limited, "small", {"policy": gl.policies.Slurm()})
    assert free.rows[1].wait_s < 98.0
    assert free.notes == []


def test_servers_of_several_types_need_a_type() -> None:
    lab = worlds.cluster("1x4 A100 @0", "1x4 V100 @1")
    result = gl.simulate(lab, pa.table(JOBS), "fifo")
    expected = "the GPU type, as the cluster has A100, V100, such as servers=A100:+4"
    with pytest.raises(OptionError) as caught:
        gl.what_if(result, "small", {"servers": 4})
    assert str(caught.value) == f"servers: expected {expected}, got '+4'"


def test_the_table_says_the_change() -> None:
    found = gl.what_if(by_hand(), "small", {"policy": "sjf"}, {"gpus": 2})
    assert found.cells() == [
        ["as it was", "2 min 28 s", "10 s", "2 min 38 s", "2 min 40 s", "2 min 4 s"],
        ["policy sjf", "0 s (-2 min 28 s)", "10 s (=)", "10 s (-2 min 28 s)", "12 s (-2 min 28 s)",
         "2 min 4 s (=)"],
        ["2 GPUs", "2 min 28 s (=)", "5 s (-5 s)", "2 min 33 s (-5 s)", "2 min 35 s (-5 s)",
         "2 min 4 s (=)"],
    ]  # fmt: skip
    assert "the job keeps its GPU-hours" in found.notes[0]
    assert "policy sjf" in found._repr_html_()


@pytest.mark.parametrize("policy", ["easy", "srtf", "las"])
def test_each_alternative_is_the_run_of_the_changed_world(policy: str) -> None:
    """Edit the table and the cluster here, and run them without any of the code of what-if."""
    trace = gl.synth.philly(jobs=80, seed=3, max_gpus=8)
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    result = gl.simulate(lab, trace, policy)
    rows = sorted(trace.table.to_pylist(), key=lambda row: -row["gpus"])
    job = next(row for row in rows if row["gpus"] == 4)
    changes: list[Change] = [
        {"policy": "fifo-skip"},
        {"servers": 2},
        {"gpus": 2},
        {"later_s": 5000.0},
    ]
    found = gl.what_if(result, job["job_id"], *changes, workers=1)

    def run(cluster: gl.Cluster, name: str, **other: float) -> list[dict[str, Any]]:
        jobs = [{**row, **other} if row["job_id"] == job["job_id"] else row for row in rows]
        jobs.sort(key=lambda row: (row["arrival_s"], int(row["job_id"])))
        done: list[dict[str, Any]] = gl.simulate(
            cluster, pa.Table.from_pylist(jobs), name
        ).jobs.to_pylist()
        return done

    halved = {"gpus": 2, "duration_s": job["duration_s"] * 2}
    expected = [
        result.jobs.to_pylist(),
        run(lab, "fifo-skip"),
        run(gl.Cluster.homogeneous(servers=4, gpus=4), policy),
        run(lab, policy, **halved),
        run(lab, policy, arrival_s=job["arrival_s"] + 5000.0),
    ]
    for row, done in zip(found.rows, expected, strict=True):
        mine = next(one for one in done if one["job_id"] == job["job_id"])
        others = [one["jct_s"] for one in done if one["job_id"] != job["job_id"]]
        assert (row.wait_s, row.run_s, row.jct_s, row.finish_s) == tuple(
            mine[key] for key in ("wait_s", "run_s", "jct_s", "finish_s")
        )
        assert row.others_jct_mean_s == pytest.approx(statistics.fmean(others))


def test_a_world_that_cannot_run_is_a_row_that_says_so() -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=2)
    result = gl.simulate(lab, pa.table(JOBS), "fifo")
    base, row, other = gl.what_if(result, "small", {"servers": -1}, {"policy": "sjf"}).rows
    assert "wide" in row.error
    assert (row.status, base.error, other.error) == ("", "", "")
    assert other.wait_s == 0.0


def test_a_saved_result_has_the_same_answer(tmp_path: Path) -> None:
    changes: tuple[Change, ...] = ({"policy": "sjf"}, {"servers": 1})
    result = by_hand()
    result.save(tmp_path / "kept", explain=True)
    result.save(tmp_path / "bare")
    loaded = gl.load_result(tmp_path / "kept")
    assert gl.what_if(loaded, "small", *changes).rows == gl.what_if(result, "small", *changes).rows
    with refused(TraceError):  # a table in memory is gone
        gl.what_if(gl.load_result(tmp_path / "bare"), "small", *changes)


def test_the_object_of_a_policy_in_python_goes_along() -> None:
    class Skip(gl.Policy):
        """Start every gang that fits, in the order of arrival."""

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan(view)
            for job in view.waiting.job:
                plan.place(job)
            return plan

    found = gl.what_if(by_hand(Skip()), "small", {"servers": 1}, {"policy": "fifo"})
    # one server: at 2 only `small` fits beside `first`
    assert [row.wait_s for row in found.rows] == [0.0, 0.0, 148.0]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, OptionError),
        ({"gpu": "V100"}, OptionError),
        ({"speed": 2}, OptionError),
        ({"gpus": 0}, OptionError),
        ({"gpus": 1.5}, OptionError),
        ({"servers": -1}, OptionError),
        ({"servers": 1, "gpu": "none"}, ClusterError),
        ({"later_s": -3.0}, OptionError),
        ({"later_s": float("nan")}, OptionError),
        ({"policy": "no-such"}, PolicyError),
    ],
)
def test_wrong_changes(change: Any, kind: type[Exception]) -> None:
    with refused(kind):
        gl.what_if(by_hand(), "small", change)


def test_no_change_and_no_job() -> None:
    with refused(OptionError, field="changes"):
        gl.what_if(by_hand(), "small")
    with refused(ResultError, key="job"):
        gl.what_if(by_hand(), "none", {"servers": 1})


@pytest.mark.parametrize("text", ["", "policy=", "servers=x", "gpus=1.5", "submitted=1h", "a=1"])
def test_wrong_texts(text: str) -> None:
    with refused(OptionError, field="--what-if"):
        parse(text)


def test_command(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "result", explain=True)
    asked = ("explain", "result", "--job", "small", "--what-if", "policy=sjf,servers=+1")
    done = gangline(*asked, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    # no job waits: `wide` is on the new server, and `small` next to `first`
    assert [row["wait_s"] for row in found["rows"]] == [148.0, 0.0]
    assert found["rows"][1]["change"] == "policy sjf, 1 server more"
    shown = gangline(*asked, cwd=tmp_path)
    assert shown.returncode == 0
    assert "policy sjf, 1 server more" in shown.stdout
    assert gangline(*asked[:-1], "gpus=x", cwd=tmp_path).returncode == 2
