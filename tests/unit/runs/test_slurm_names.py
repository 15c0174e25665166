"""Names in the tables of `slurm` that no job has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.errors import PolicyError
from gangline.policies.choice import resolve_policy
from gangline.runs.slurm_names import unused
from gangline.trace.read import as_trace
from refusals import refused

JOBS: dict[str, list[Any]] = {
    "job_id": ["a", "b"],
    "arrival_s": [0, 1],
    "gpus": [1, 1],
    "duration_s": [10.0, 10.0],
    "user": ["ann", "bob"],
    "account": ["nlp", "vision"],
    "partition": ["main", "long"],
    "qos": ["high", None],
}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"qos_user_gpus": {"normal": 1, "high": 2}, "qos_preempt": {"high": ["normal"]}}, []),
        (
            {"qos_user_gpus": {"nromal": 1, "x": 2}},
            ["`qos_user_gpus` names the QOS `nromal` (did you mean `normal`?) and `x`"],
        ),
        (
            {"qos_preempt": {"high": ["nrmal"]}},
            ["`qos_preempt` names the QOS `nrmal` (did you mean `normal`?)"],
        ),
        ({"qos_priority": {"idle": 1}, "qos_preempt": {"high": ["idle"]}}, []),
        (
            {"partition_types": {"man": ["A100"]}},
            ["`partition_types` names the partition `man` (did you mean `main`?)"],
        ),
        ({"account_parents": {"nlp": "science"}, "account_shares": {"science": 2}}, []),
        (
            {"account_parents": {"nlp": "science"}, "account_shares": {"sciences": 2}},
            ["`account_shares` names the account `sciences` (did you mean `science`?)"],
        ),
        ({"user_shares": {"nlp/ann": 2, "vision/bob": 1}}, []),
        ({"user_shares": {"nlp/bob": 2}}, ["`user_shares` names the user `nlp/bob`"]),
    ],
)
def test_names_that_no_job_has(params: dict[str, Any], said: list[str]) -> None:
    trace = as_trace(pa.table(JOBS))
    chosen = resolve_policy(gl.policies.Slurm(**params))
    assert unused(chosen, trace) == [f"slurm: {line}, which no job has" for line in said]


def test_without_a_column_all_jobs_have_the_default() -> None:
    trace = as_trace(pa.table({name: JOBS[name] for name in list(JOBS)[:4]}))
    params = {"qos_priority": {"normal": 1}, "partition_tier": {"default": 1, "gpu": 2}}
    assert unused(resolve_policy("slurm", params), trace) == [
        "slurm: `partition_tier` names the partition `gpu`, which no job has"
    ]


@pytest.mark.parametrize("command", ["run", "compare"])
def test_commands_say_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    pa.csv.write_csv(pa.table(JOBS), tmp_path / "jobs.csv")
    asked = ["--trace", str(tmp_path / "jobs.csv"), "--cluster", "1x8xA100", "--policy", "slurm"]
    assert main([command, *asked, "--set", "qos_user_gpus={nromal=1}"]) == 0
    note = "note: slurm: `qos_user_gpus` names the QOS `nromal` (did you mean `normal`?), which no"
    assert note in capsys.readouterr().err


QUEUE = {
    "job_id": ["a", "b"], "arrival_s": [0.0, 1.0], "gpus": [8, 8], "time_limit_s": [60.0, 60.0],
    "observed_start_s": [0.0, None], "trace_status": ["RUNNING", "PENDING"],
    "qos": ["normal", "normal"],
}  # fmt: skip
ENDED = {
    "job_id": ["a", "b"], "arrival_s": [0.0, 1.0], "gpus": [8, 8], "duration_s": [9.0, 9.0],
    "observed_start_s": [0.0, 9.0], "observed_finish_s": [9.0, 18.0], "qos": ["normal", "normal"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "jobs"),
    [
        ("eta --policy slurm --set", QUEUE),
        ("validate --policies slurm --set", ENDED),
    ],
)
def test_forecasts_and_validations_say_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, jobs: dict[str, list[Any]]
) -> None:
    pa.csv.write_csv(pa.table(jobs), tmp_path / "jobs.csv")
    world = ["--trace", str(tmp_path / "jobs.csv"), "--cluster", "1x8xA100"]
    assert main([*command.split(), "qos_user_gpus={nromal=16}", *world]) == 0
    told = capsys.readouterr()
    words = " ".join((told.out + told.err).split())
    assert "slurm: `qos_user_gpus` names the QOS `nromal` (did you mean `normal`?)" in words


def test_sweeps_say_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pa.csv.write_csv(pa.table(JOBS), "jobs.csv")
    Path("a.toml").write_text(
        'name = "a"\n[grid]\ntrace = ["jobs.csv"]\ncluster = ["1x8xA100"]\n'
        'policy = ["fifo", "slurm"]\nset."slurm.qos_user_gpus" = [{nromal = 16}]\nseed = [0, 1]\n'
    )
    assert main(["sweep", "a.toml"]) == 0
    assert capsys.readouterr().err.count("`qos_user_gpus` names the QOS `nromal`") == 1


def test_a_gpu_type_that_the_cluster_lacks_is_refused() -> None:
    """In another case it would leave out all jobs of the partition, or stop the run for them."""
    params = {"partition_types": {"main": ["a100"]}}
    with refused(PolicyError, field="partition_types.main", value="a100") as caught:
        gl.simulate("1x8xA100", pa.table(JOBS), "slurm", params=params, on_infeasible="drop")
    assert str(caught.value) == (
        "slurm: partition_types.main = a100: expected GPU types of the cluster: A100"
    )


def test_partitions_that_bind_one_policy_only_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {name: JOBS[name] for name in list(JOBS)[:4]} | {"partition": ["a", "a"]}
    pq.write_table(pa.table(jobs), tmp_path / "jobs.parquet")
    world = ["--trace", str(tmp_path / "jobs.parquet"), "--cluster", "1x8xA100"]
    types = ["--set", 'slurm.partition_types={a=["A100"]}']
    note = "note: only slurm ties partitions to GPU types"
    # the baseline may be named without its parameters
    both = ["compare", "--policies", "slurm,fifo", "--baseline", "slurm", *world, *types]
    assert main(both) == 0
    assert note in capsys.readouterr().err
    assert main(["compare", "--policies", "slurm,fifo", *world]) == 0
    assert note not in capsys.readouterr().err
    assert main(["run", "--policy", "slurm", *world, *types]) == 0
    assert note not in capsys.readouterr().err
