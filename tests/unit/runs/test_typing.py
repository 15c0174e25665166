"""Scripts of users under `mypy --strict`: what is right passes, and a slip is an error."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest

import gangline as gl
from gangline.cluster.schema import Sharing
from gangline.runs import options as declared
from gangline.runs.options import CheckedOptions
from gangline.runs.summary import SummaryKey
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
done = gl.sweep({"grid": {"policy": ["fifo"]}}, save="summary", executor="local")
"""
# One line, the code of the error, and what its message names.
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
    ('options: gl.RunOptions = {"restart": 30}', "typeddict-unknown-key", "restart"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says of each script, by its name; one run checks all."""
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
    }
    assert set(declared.SharingOptions.__annotations__) == set(Sharing.__struct_fields__)
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
            summary = dict(gl.simulate(cluster, trace, policy, **options).summary)
        except gl.PolicyError:
            continue  # no world for this policy
        kinds = {key: str(kind) for key, kind in gl.RunSummary.__annotations__.items()}
        assert gl.RunSummary.__required_keys__ <= set(summary) <= set(kinds)
        for key, value in summary.items():
            assert isinstance(value, int) is ("int" in kinds[key]), key


def test_no_argument_of_a_public_function_is_any() -> None:
    functions = [getattr(gl, name) for name in gl.__all__]
    for function in filter(inspect.isfunction, functions):
        for name, kind in function.__annotations__.items():
            assert "Any" not in kind or name == "return", (function.__name__, name, kind)
