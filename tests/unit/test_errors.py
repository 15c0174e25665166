from __future__ import annotations

import pickle

import pytest

from gangline import errors


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
