from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import errors
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot


def test_every_public_error_is_one_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.GanglineError)


@pytest.mark.parametrize(
    "name", ["TraceError", "ClusterError", "PolicyError", "InfeasibleJobError"]
)
def test_errors_of_values_are_value_errors(name: str) -> None:
    assert issubclass(getattr(errors, name), ValueError)


@pytest.mark.parametrize("name", ["PlanError", "SolverError"])
def test_errors_of_the_engine_are_not_value_errors(name: str) -> None:
    assert not issubclass(getattr(errors, name), ValueError)


def test_trace_error_says_where_and_what() -> None:
    error = errors.TraceError.at("jobs.csv", 17, "num_gpu", "x", "an integer >= 1")
    assert str(error) == 'jobs.csv:17: num_gpu: expected an integer >= 1, got "x"'
    assert (error.path, error.line, error.column) == ("jobs.csv", 17, "num_gpu")
    assert (error.value, error.expected) == ("x", "an integer >= 1")


def test_many_trace_errors_are_folded_and_counted() -> None:
    each = [errors.TraceError.at("a.csv", line, "c", "?", "a number") for line in (2, 5)]
    folded = errors.TraceError.many(each, more=3)
    assert folded.line == 2
    assert list(folded.errors) == each
    assert str(folded).splitlines()[-1] == "and 3 more"


def test_facts_are_attributes_and_survive_pickling() -> None:
    error = errors.PlanError("bad plan", job=3, rule="capacity", server=1)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.job, copy.rule, copy.server, str(copy)) == (3, "capacity", 1, "bad plan")
    assert copy.job_id is None


MIXED = worlds.lab("1x2 V100", "2x2 K80", types={"K80": {"memory_gb": 12.0}})


@pytest.mark.parametrize(
    ("policy", "params", "job"),
    [
        ("fifo", {}, {"gpus": 5}),
        ("fifo", {}, {"memory_gb": 20.0}),
        ("fifo", {}, {"gpu_types": ["P100"]}),
        ("fifo", {"max_level": "server"}, {"gpus": 3}),
        ("hadar", {}, {"gpus": 7}),
        ("hadare", {"gpus_per_copy": 4}, {}),
        ("hadare", {}, {"memory_gb": 20.0}),
    ],
)
def test_why_a_job_can_never_run(
    policy: str, params: dict[str, object], job: dict[str, object], snapshot: Snapshot
) -> None:
    row = {"arrival_s": 0.0, "gpus": 1, "duration_s": 60.0, **job}
    trace = pa.table({name: [value] for name, value in row.items()})
    with refused(errors.InfeasibleJobError, snapshot):
        gl.simulate(MIXED, trace, policy, params=params)


def test_a_gang_over_several_types_can_run() -> None:
    trace = worlds.jobs("0 6 60")
    assert gl.simulate(MIXED, trace, "hadar").summary["finished"] == 1
    with pytest.raises(errors.InfeasibleJobError):
        gl.simulate(MIXED, trace, "fifo")
