"""The measurement of examples/gpu_profile, on a CPU, and its kept results."""

from __future__ import annotations

import json

import pytest
from examples.gpu_profile import report
from examples.gpu_profile.__main__ import HERE, read_jobs
from examples.gpu_profile.jobs import Job, carry_out, predict, rates_alone, slowdowns
from examples.gpu_profile.measure import Worker, profile, steps_at

# Alone a does 10 steps/s and b 4; together a does 5 and b 2, and two of a do 4 each.
MEASURED = {
    "alone": [
        {"model": "a", "passes": 1, "per_s": [10.0]},
        {"model": "a", "passes": 2, "per_s": [7.0]},
        {"model": "b", "passes": 1, "per_s": [4.0]},
    ],
    "alone_again": [{"model": "a", "per_s": [10.0]}, {"model": "b", "per_s": [4.0]}],
    "pairs": [
        {"models": ["a", "a"], "per_s": [[4.0, 4.0]]},
        {"models": ["a", "b"], "per_s": [[5.0, 2.0]]},
        {"models": ["b", "b"], "per_s": [[2.0, 2.0]]},
    ],
}


def test_slowdown_factors_are_rates_alone_over_rates_together() -> None:
    assert rates_alone(MEASURED) == {"a": 10.0, "b": 4.0}
    assert slowdowns(MEASURED) == {
        ("a", "a"): 2.5,
        ("a", "b"): 2.0,
        ("b", "a"): 2.0,
        ("b", "b"): 2.0,
    }


def test_steps_between_two_looks_are_in_proportion() -> None:
    found = {"ends_s": [10.0, 12.0, 16.0], "steps": [0, 4, 8]}
    assert [steps_at(found, at) for at in (11.0, 12.0, 15.0, 20.0)] == [2.0, 4.0, 7.0, 8.0]


def test_a_job_that_waits_names_what_starts_it() -> None:
    jobs = [Job("x", "a", 0.0, 30, 3.0), Job("y", "b", 1.0, 8, 2.0)]
    found = predict(MEASURED, jobs, "fifo")
    assert found["x"] == {"start_s": 0.0, "finish_s": 3.0, "after": None}
    assert found["y"] == {"start_s": 3.0, "finish_s": 5.0, "after": "x"}


def test_workers_measure_and_run_jobs_in_order() -> None:
    measured = profile({"python": 64}, "cpu", seconds=0.3, repeats=1, passes=(1, 2))
    assert [one["passes"] for one in measured["alone"]] == [2, 1]
    rate = rates_alone(measured)["python"]
    assert rate > 0.0
    jobs = [Job("x", "python", 0.0, 50, 50 / rate), Job("y", "python", 0.0, 20, 20 / rate)]
    twins = {"python": [Worker("python", 64, 1, "cpu") for _ in "ab"]}
    try:
        for worker in twins["python"]:
            worker.answer()
        done = carry_out("fifo", jobs, predict(measured, jobs, "fifo"), twins)
    finally:
        for worker in twins["python"]:
            worker.stop()
    first, second = done
    assert first.real_finish_s > first.real_start_s >= 0.0
    assert second.real_start_s >= first.real_finish_s


def test_a_worker_that_dies_is_named() -> None:
    worker = Worker("unknown", 1, 1, "cpu")
    with worker, pytest.raises(RuntimeError, match="unknown: the worker ended with"):
        worker.answer()


def test_results_are_those_of_the_kept_measurements() -> None:
    measured = json.loads((HERE / "h100.json").read_text("utf-8"))
    text = report.write(measured, read_jobs(HERE / "h100_jobs.csv"))
    assert (HERE / "RESULTS.md").read_text("utf-8") == text
    table = text.partition("## Thirty jobs\n\n")[2].partition("\n\n")[0]
    assert table in (HERE / "README.md").read_text("utf-8")
