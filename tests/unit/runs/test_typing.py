"""Tests users' scripts under `mypy --strict`: right code passes, and a mistake is an error."""

from __future__ import annotations

import collections.abc
import dataclasses
import os
import re
import subprocess
import sys
import typing
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pytest

import gangline as gl
from gangline import _core
from gangline.cluster.schema import (
    ClusterDict,
    ClusterKeys,
    GpuType,
    GpuTypeDict,
    Runtime,
    ServerBlock,
    ServerBlockDict,
    Sharing,
)
from gangline.lp.instance import Settings, SolveSettings
from gangline.runs import options as declared
from gangline.runs import summary
from gangline.runs.options import CheckedOptions
from gangline.runs.summary import SummaryKey
from gangline.trace.synth import bsbf_jobs, dally_jobs, gavel_jobs, hadar_jobs, keywords
from meta.house import PACKAGE, ROOT
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

HEAD = """import gangline as gl
lab = gl.Cluster.homogeneous(servers=2, gpus=4)
jobs = "synth:philly?jobs=30&seed=1&max_gpus=8"
"""
RIGHT = """
options: gl.RunOptions = {"seed": 1, "on_infeasible": "drop", "timeline": 60.0}
result = gl.simulate(lab, jobs, "las", params={"quantum_s": 60.0}, **options)
result = gl.simulate(lab, jobs, restart_s=30, segments=True, sharing={"xi": 1.5})
mean_s: float = result.summary["jct_mean_s"]
finished: int = result.summary["finished"]
spec = gl.RunSpec.make(lab, jobs, "fifo", seed=3, count_arrivals="2d,9d")
both = gl.compare(lab, jobs, ["fifo", "srtf"], seeds=[0, 1], restart_by_model={"bert": 3.0})
plan = gl.plan_capacity(lab, jobs, keep="p95_wait < 1h", vary="load", restart_s=30.0)
answer: float | None = plan.answer
contest = gl.plan_capacity(lab, jobs, ["fifo", "srtf"], keep="p95_wait < 1h", workers=1)
plans = contest.plans
trace = gl.read_trace(jobs)
numbers = [trace.numbers(name) for name in ("gpus", "arrival_s")]
columns = [trace.column(name) for name in trace.columns]
label: str = result.spec["policy"]["label"]
gpus: list[int] = [block["gpus"] for block in lab.to_dict()["servers"]]
row_s: float = both.rows[0]["jct_mean_s"]
first: str = both.means()[0]["policy"]
drawn = gl.synth.philly(jobs=5, seed=1, arrivals="poisson", models=["bert"])
shares = gl.lp.solve("gavel-las", rates=[[1.0]], scale=[1], capacity=[1], time_limit_s=9.0).shares
world = gl.testing.World({"servers": []}, [{"job_id": "a", "gpus": 1}])
again = world.simulate("fifo", until_s=9.0)
done = gl.sweep({"grid": {"policy": ["fifo"]}}, save="summary", executor="local")
"""
# One line of code, the code of the error, and a part of its message.
WRONG = [
    ("gl.simulate(lab, jobs, restart=30)", "call-arg", "restart"),
    ('gl.simulate(lab, jobs, restart_s="30 s")', "arg-type", "restart_s"),
    ('gl.simulate(lab, jobs, on_infeasible="skip")', "arg-type", "on_infeasible"),
    ('gl.simulate(lab, jobs, timeline="all")', "arg-type", "timeline"),
    ('gl.simulate(lab, jobs, sharing={"x": 1.5})', "arg-type", "SharingOptions"),
    ("gl.compare(lab, jobs, ['fifo'], seed=1)", "call-arg", "seed"),
    ("gl.compare(lab, jobs, ['fifo'], segment=True)", "call-arg", "segment"),
    ("gl.plan_capacity(lab, jobs, keep='p95_wait < 1h', restart=30)", "call-overload", "restart"),
    ("gl.plan_capacity(lab, jobs, keep='p95_wait < 1h', vary='gpus')", "call-overload", ""),
    ("gl.plan_capacity(lab, jobs, keep='p95_wait < 1h', timeline='off')", "call-overload", ""),
    ("gl.sweep({}, save='all')", "arg-type", "save"),
    ("gl.sweep({}, executor='ray')", "arg-type", "executor"),
    ("gl.sweep({}, worker=2)", "call-arg", "worker"),
    ("gl.RunSpec.make(lab, jobs, checkpoint_s=60)", "call-arg", "checkpoint_s"),
    ('gl.simulate(lab, jobs).summary["jct_mean"]', "typeddict-item", "jct_mean"),
    ('text: str = gl.simulate(lab, jobs).summary["jct_mean_s"]', "assignment", "float"),
    ('gl.compare(lab, jobs, ["fifo"]).statistics("jct_mean")', "arg-type", "statistics"),
    ('gl.compare(lab, jobs, ["fifo"]).statistics()[0]["median"]', "typeddict-item", "median"),
    ('gl.policies.Dally(renewal="keeps")', "arg-type", "renewal"),
    ('gl.read_trace(jobs).column("gpu")', "arg-type", "column"),
    ('gl.read_trace(jobs).numbers("duration")', "call-overload", "numbers"),
    ('gl.read_trace(jobs).numbers("model")', "call-overload", "numbers"),
    ('text: str = gl.read_trace(jobs).numbers("gpus")', "assignment", "int"),
    ('gl.simulate(lab, jobs).spec["policies"]', "typeddict-item", "policies"),
    ('seed: str = gl.simulate(lab, jobs).spec["seed"]', "assignment", "int"),
    ('lab.to_dict()["servers"][0]["cpu"]', "typeddict-item", "cpu"),
    ('gl.compare(lab, jobs, ["fifo"]).rows[0]["mean"]', "typeddict-item", "mean"),
    ('gl.synth.pai(jobs=5, arrivals="static")', "arg-type", "arrivals"),
    ("gl.synth.hadar(jobs=5, lam=1.0)", "call-arg", "lam"),
    ('gl.lp.solve("gavel-las", rates=[], scale=[], capacity=[], limit_s=9)', "call-arg", "limit_s"),
    ('gl.testing.World({}, []).simulate("fifo", until=9.0)', "call-arg", "until"),
    ('options: gl.RunOptions = {"restart": 30}', "typeddict-unknown-key", "restart"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return mypy's output for each script, by name; one run checks all scripts."""
    folder: Path = tmp_path_factory.mktemp("scripts")
    (folder / "right.py").write_text(HEAD + RIGHT)
    for number, (line, _, _) in enumerate(WRONG):
        (folder / f"wrong_{number}.py").write_text(f"{HEAD}{line}\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--config-file="]
    command += ["--cache-dir", str(ROOT / "target" / "mypy-scripts"), "--ignore-missing-imports"]
    every = sorted(str(path) for path in folder.glob("*.py"))
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [*command, *every], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"(?:.*/)?(\w+)\.pyi?:\d+: error: (.*)", line):
            lines.setdefault(match[1], []).append(match[2])
    return lines


def test_right_scripts_pass(found: dict[str, list[str]]) -> None:
    assert found.get("right") is None


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[line for line, _, _ in WRONG])
def test_a_slip_is_an_error(found: dict[str, list[str]], number: int) -> None:
    _, code, name = WRONG[number]
    errors = [text for text in found[f"wrong_{number}"] if f"[{code}]" in text]
    assert any(name in text for text in errors), found[f"wrong_{number}"]


def test_keywords_are_the_options_there_are() -> None:
    assert set(declared.RunOptions.__annotations__) == {
        *CheckedOptions.__struct_fields__,
        "sharing",
        "runtime",
    }
    assert set(declared.SharingOptions.__annotations__) == set(Sharing.__struct_fields__)
    assert set(declared.RuntimeOptions.__annotations__) == set(Runtime.__struct_fields__)
    assert get_args(SummaryKey) == tuple(gl.RunSummary.__annotations__)


@pytest.mark.parametrize("name", ["restart", "restart_S", "check_point_interval_s", "segment"])
def test_a_slip_at_run_time_names_the_option(name: str, snapshot: Snapshot) -> None:
    options: dict[str, Any] = {name: 30}
    table = pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]})
    with refused(gl.OptionError, snapshot, field=name):
        gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=1), table, **options)


@pytest.mark.parametrize("policy", ["fifo", "gavel-cost", "sjf-bsbf"])
def test_the_summary_has_the_keys_of_its_type(policy: str) -> None:
    for cluster, trace, options in gl.testing.small_worlds():
        try:
            found = dict(gl.simulate(cluster, trace, policy, **options).summary)
        except gl.PolicyError:
            continue  # no world for this policy
        kinds = {key: str(kind) for key, kind in gl.RunSummary.__annotations__.items()}
        assert gl.RunSummary.__required_keys__ <= set(found) <= set(kinds)
        for key, value in found.items():
            assert isinstance(value, int) is ("int" in kinds[key]), key


@pytest.mark.parametrize("shape", ["philly", "helios", "pai", "uniform"])
def test_keywords_of_a_generator_of_the_core_are_its_parameters(shape: str) -> None:
    rows = {row["name"]: row for row in _core.synth_parameters(shape)}
    kind = keywords.UniformKeywords if shape == "uniform" else keywords.ShapeKeywords
    names = {**vars(typing), **vars(collections.abc), "Models": object}
    hints = get_type_hints(kind, None, names)
    assert set(hints) == set(rows) - {"jobs", "seed"}
    assert set(get_args(hints["arrivals"])) == set(rows["arrivals"]["choices"])


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (keywords.GavelKeywords, gavel_jobs.GavelParameters),
        (keywords.BsbfKeywords, bsbf_jobs.BsbfParameters),
        (keywords.DallyKeywords, dally_jobs.BatchParameters),
        (keywords.DallyPoissonKeywords, dally_jobs.PoissonParameters),
        (keywords.DallyWeekKeywords, dally_jobs.WeekParameters),
        (keywords.HadarKeywords, hadar_jobs.HadarParameters),
    ],
)
def test_keywords_of_a_generator_are_its_parameters(kind: type, parameters: type) -> None:
    fields = {field.name for field in msgspec.structs.fields(parameters)}
    assert set(kind.__annotations__) == fields - {"jobs", "seed"}


def test_settings_of_a_solve_are_those_there_are() -> None:
    settings = {field.name for field in dataclasses.fields(Settings)}
    assert set(SolveSettings.__annotations__) == {*settings, "partitions"}


def test_the_keys_of_a_cluster_are_those_of_its_type() -> None:
    pairs = ((ClusterDict, ClusterKeys), (GpuTypeDict, GpuType), (ServerBlockDict, ServerBlock))
    for keys, struct in pairs:
        assert set(keys.__annotations__) == set(struct.__struct_fields__), keys
    for name in gl.Cluster.presets():
        cluster = gl.Cluster.preset(name).to_dict()
        assert ClusterDict.__required_keys__ <= set(cluster), name


@pytest.mark.parametrize("policy", ["fifo", "gavel-las", "sjf-bsbf", "hadare"])
def test_the_spec_has_the_keys_of_its_type(policy: str) -> None:
    for cluster, trace, options in gl.testing.small_worlds():
        try:
            spec = gl.simulate(cluster, trace, policy, **options).spec
        except gl.PolicyError:
            continue  # no world for this policy
        for keys, kind in (
            (set(spec), summary.SpecDict),
            (set(spec["policy"]), summary.PolicyEntry),
            (set(spec["trace"]), summary.TraceEntry),
        ):
            assert kind.__required_keys__ <= keys <= set(kind.__annotations__), kind


def test_rows_have_the_keys_of_their_type() -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    found = gl.compare(lab, "synth:philly?jobs=10&seed=0&max_gpus=8", ["fifo"], trace_seeds=[0, 1])
    row, mean = found.rows[0], found.means()[0]
    assert set(row) - set(gl.RunSummary.__annotations__) == {"policy", "seed", "trace_seed"}
    assert set(mean) - set(gl.RunSummary.__annotations__) == {"policy", "seeds"}
