"""Tests the table of run time: its file, overrides, columns of results, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cluster.runtime import to_core
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

LAB = {
    "name": "lab",
    "gpu_types": [{"name": "v"}, {"name": "k"}],
    "servers": [{"count": 1, "gpu": "v", "gpus": 2}, {"count": 1, "gpu": "k", "gpus": 2}],
}
JOBS = pa.table({"arrival_s": [0.0, 4.0], "gpus": [2, 2], "duration_s": [20.0, 5.0]})
ONE = {**LAB, "servers": [{"count": 1, "gpu": "v", "gpus": 2}]}
ROWS = (
    {"model": "m", "gpus": 2, "restart_s": 3.0},
    {"gpu_type": "k", "stop_s": 2.0, "checkpoint_s": 0.5},
)


def lab(**runtime: Any) -> dict[str, Any]:
    return {**LAB, "runtime": runtime}


def test_rows_come_from_a_file_beside_the_cluster(tmp_path: Path) -> None:
    """CSV with blanks, Parquet with nulls, and rows in the TOML itself are one table."""
    (tmp_path / "costs.csv").write_text(
        "model,gpus,gpu_type,restart_s,stop_s,checkpoint_s\nm,2,,3,,\n,,k,,2,0.5\n"
    )
    pq.write_table(pa.Table.from_pylist([{**dict.fromkeys(ROWS[1]), **r} for r in ROWS]),
                   tmp_path / "costs.parquet")  # fmt: skip
    plain = gl.Cluster.from_dict(LAB).to_toml()
    wanted = gl.Cluster.from_dict(lab(rows=list(ROWS)))
    for name in ("costs.csv", "costs.parquet"):
        file = tmp_path / f"{name}.toml"
        file.write_text(f'{plain}\n[runtime]\ntable = "{name}"\n')
        read = gl.Cluster.from_toml(file)
        assert read.runtime == wanted.runtime
        assert gl.Cluster.from_dict(read.to_dict()) == read


def test_the_core_gets_numbers_for_labels() -> None:
    """Model m is the second label and type k the second type; no job has model x."""
    rows = [*ROWS, {"model": "x", "stop_s": 1.0}]
    runtime = gl.Cluster.from_dict(lab(job_noise=0.5, checkpoint_s=2.0, rows=rows)).runtime
    assert to_core(runtime, ["a", "m"], ["v", "k"]) == (
        [0.5, 0.0, 0.0, 2.0],
        [((1, 2, None), [None, 3.0, None, None]), ((None, None, 1), [None, None, 2.0, 0.5])],
    )
    assert to_core(None, [], []) is None


def test_a_run_overrides_single_keys() -> None:
    """The stop of 2 s stays, the restart is now 3 s: 20 + 5 + 5 s; the noise of the file is off."""
    cluster = {**ONE, "runtime": {"job_noise": 1.0, "rows": [{"restart_s": 3.0, "stop_s": 2.0}]}}
    result = gl.simulate(cluster, JOBS, "srtf", runtime={"job_noise": 0.0})
    assert result.jobs["finish_s"].to_pylist() == [30.0, 9.0]
    assert result.jobs["overhead_s"].to_pylist() == [5.0, 0.0]
    assert gl.run(result.spec, trace=JOBS).log_hash == result.log_hash
    assert not result.spec["cluster"]["runtime"].get("job_noise")


def test_models_that_no_job_has_are_counted() -> None:
    rows = [{"model": "m", "stop_s": 1.0}, {"model": "m", "gpus": 2, "stop_s": 2.0}]
    result = gl.simulate({**ONE, "runtime": {"rows": rows}}, JOBS)
    assert result.spec["notes"] == {"runtime_models_without_jobs": 1}
    labelled = JOBS.append_column("model", pa.array(["m", "m"]))
    assert gl.simulate({**ONE, "runtime": {"rows": rows}}, labelled).spec["notes"] == {}


def test_columns_are_there_with_the_table_alone(tmp_path: Path) -> None:
    names, keys = {"lost_s", "checkpoint_s"}, {"lost_fraction", "checkpoint_fraction"}
    plain = gl.simulate(ONE, JOBS, "srtf")
    assert not names & set(plain.jobs.column_names)
    assert not keys & set(plain.summary)
    empty = gl.simulate({**ONE, "runtime": {}}, JOBS, "srtf", segments=True)
    assert empty.jobs.drop_columns(sorted(names)).equals(plain.jobs)
    assert empty.log_hash == plain.log_hash
    assert [empty.summary["lost_fraction"], empty.summary["checkpoint_fraction"]] == [0.0, 0.0]
    empty.save(tmp_path / "out")
    assert gl.load_result(tmp_path / "out").jobs.equals(empty.jobs)


def test_what_checkpoints_and_failures_take() -> None:
    """2 of each 10 s are checkpoints; the failure at 25 takes 5 s. 60 s of progress, 2 GPUs.

    16 of 40 s are done by 20; from 30 on 24 s take 30 s. 55 s are held in all.
    """
    down = {"failures": {"table": [{"server": 0, "down_s": 25.0, "up_s": 30.0}]}}
    jobs = pa.table({"arrival_s": [0.0], "gpus": [2], "duration_s": [40.0]})
    options: dict[str, Any] = {"checkpoint_interval_s": 10.0, "runtime": {"checkpoint_s": 2.0}}
    result = gl.simulate({**ONE, **down}, jobs, "fifo", segments=True, **options)
    row = result.jobs.to_pylist()[0]
    assert (row["finish_s"], row["run_s"], row["lost_s"]) == (60.0, 55.0, 5.0)
    assert row["checkpoint_s"] == pytest.approx(11.0)
    assert result.summary["lost_fraction"] == pytest.approx(5.0 / 55.0)
    assert result.summary["checkpoint_fraction"] == pytest.approx(11.0 / 55.0)


def test_the_audit_finds_lost_time_that_does_not_add_up() -> None:
    """The job of the failure did its 40 s in 50 s at rate 0.8; a second more or less is wrong."""
    down = {"failures": {"table": [{"server": 0, "down_s": 25.0, "up_s": 30.0}]}}
    cluster = gl.Cluster.from_dict({**ONE, **down, "runtime": {"checkpoint_s": 2.0}})
    trace = gl.Trace.from_arrow(pa.table({"arrival_s": [0.0], "gpus": [2], "duration_s": [40.0]}))
    options: dict[str, Any] = {"checkpoint_interval_s": 10.0, "segments": True}
    result = gl.simulate(cluster, trace, "fifo", **options)
    gl.testing.check_result(result, cluster, trace)
    place = result.jobs.column_names.index("lost_s")
    for lost in (4.0, 6.0):
        jobs = result.jobs.set_column(place, "lost_s", pa.array([lost]))
        found = gl.testing.broken_laws(jobs, result.segments, cluster, trace)
        assert [law for law, _ in found] == ["lost-work"]


def test_noise_is_no_fault_of_a_run() -> None:
    """Some jobs are faster than the trace says, and the audit reports none of them."""
    cluster, trace = gl.Cluster.from_dict(ONE), gl.synth.philly(jobs=40, seed=3, max_gpus=2)
    result = gl.simulate(cluster, trace, "srtf", segments=True, runtime={"run_noise": 0.5})
    assert min(result.jobs["slowdown"].to_pylist()) < 0.9
    noisy = gl.Cluster.from_dict({**ONE, "runtime": {"run_noise": 0.5}})
    gl.testing.check_result(result, noisy, trace)
    with pytest.raises(gl.testing.LawBroken):
        gl.testing.check_result(result, cluster, trace)


BAD = [
    ({"job_noise": 2.5}, "runtime.job_noise"),
    ({"run_noise": -0.1}, "runtime.run_noise"),
    ({"straggler_noise": float("nan")}, "runtime.straggler_noise"),
    ({"checkpoint_s": float("inf")}, "runtime.checkpoint_s"),
    ({"noise": 0.1}, "runtime.noise"),
    ({"rows": [{"model": "m"}]}, "runtime.rows[0]"),
    ({"rows": [{"stop_s": -1.0}]}, "runtime.rows[0].stop_s"),
    ({"rows": [{"stop_s": 5e9}]}, "runtime.rows[0].stop_s"),
    ({"rows": [{"gpus": 0, "stop_s": 1.0}]}, "runtime.rows[0].gpus"),
    ({"rows": [{"gpu_type": "x", "stop_s": 1.0}]}, "runtime.rows[0].gpu_type"),
    ({"rows": [{"stop_s": 1.0}, {"restart_s": 1.0}]}, "runtime.rows[1]"),
    ({"table": "absent.csv"}, "runtime.table"),
]


@pytest.mark.parametrize(("runtime", "key"), BAD)
def test_bad_tables_are_refused(runtime: dict[str, Any], key: str) -> None:
    with refused(gl.ClusterError, key=key):
        gl.Cluster.from_dict(lab(**runtime))


def test_a_bad_row_is_named_by_its_kind_of_job() -> None:
    with pytest.raises(gl.ClusterError, match=r"restart_s, stop_s, checkpoint_s, got .*model.*m"):
        gl.Cluster.from_dict(lab(rows=[{"model": "m"}]))
    twice = [{"gpus": 2, "stop_s": 1.0}, {"gpus": 2, "restart_s": 1.0}]
    with pytest.raises(gl.ClusterError, match='has no earlier row, got "gpus = 2"'):
        gl.Cluster.from_dict(lab(rows=twice))
    with pytest.raises(gl.ClusterError, match='has no earlier row, got "all jobs"'):
        gl.Cluster.from_dict(lab(rows=[{"stop_s": 1.0}, {"restart_s": 1.0}]))


FILES = [
    ("model,cost\nm,1\n", "columns of model"),
    ("stop_s,stop_s\n1,2\n", "expected one column with this name"),
    ("stop_s\n", "at least one row"),
    ("gpus,stop_s\n0,1\n", "row 1"),
    ("gpus,stop_s\nx,1\n", "costs.csv"),
]


@pytest.mark.parametrize(("text", "words"), FILES)
def test_bad_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "costs.csv"
    path.write_text(text)
    with pytest.raises(gl.ClusterError, match=words):
        gl.Cluster.from_dict(lab(table=str(path)))


def test_the_public_timing_of_gavel_is_refused() -> None:
    jobs = pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [40.0]})
    with pytest.raises(gl.PolicyError, match=r"leave out \[runtime\]"):
        gl.simulate({**ONE, "runtime": {}}, jobs, "gavel-las", params={"compat": True})


def test_a_turn_must_outlast_a_restart_and_its_stop() -> None:
    for stop, is_short in ((2.0, True), (1.0, False)):
        cluster = {**ONE, "runtime": {"rows": [{"restart_s": 3.0, "stop_s": stop}]}}
        if is_short:
            with refused(gl.PolicyError, field="lease_s"):
                gl.simulate(cluster, JOBS, "themis", params={"lease_s": 5.0})
        else:
            gl.simulate(cluster, JOBS, "themis", params={"lease_s": 5.0})
