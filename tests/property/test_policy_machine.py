"""Checks that the state machine of `gangline.testing` drives our policies and finds wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

import gangline as gl
from gangline.testing import gallery, strategies
from gangline.testing.machine import machine

SETTINGS = settings(
    max_examples=max(5, settings().max_examples // 4),
    stateful_step_count=15,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("name", ["fifo", "srtf", "dally", "hadar", "sjf-bsbf"])
def test_our_policies_end_every_job_while_servers_fail(name: str) -> None:
    run_state_machine_as_test(machine(name), settings=SETTINGS)


def test_a_policy_in_python_is_driven_too() -> None:
    run_state_machine_as_test(machine(gallery.Sound()), settings=SETTINGS)


class NeverAgain(gallery.Sound):
    """Starts no job that has run before, so a job that a failure evicts waits for ever."""

    def start(self, view: gl.View) -> None:
        self.ran: set[int] = set()

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        self.ran.update(changes.started.tolist())
        return super().decide(view, changes)

    def may_start(self, job: int, gpus: int, view: gl.View) -> bool:
        return job not in self.ran


def test_a_policy_that_forgets_jobs_of_failed_servers_is_found() -> None:
    # no server fails, so there is no error
    gl.testing.check_policy(NeverAgain(), [strategy_world()])
    wrong = machine(NeverAgain(), worlds=strategies.plain_worlds())
    with pytest.raises(gl.StalledError):
        run_state_machine_as_test(wrong, settings=settings(SETTINGS, max_examples=50))


def strategy_world() -> gl.testing.World:
    row = {"arrival_s": 0.0, "gpus": 1, "duration_s": 2.0}
    return gl.testing.World(
        {
            "gpu_types": [{"name": "A", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "A", "gpus": 1}],
        },
        [{"job_id": "a", **row}, {"job_id": "b", **row}],
    )


class Raises(gallery.Sound):
    """Fails in its own code."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        raise KeyError("of the user")


def test_what_a_policy_raises_passes_untouched() -> None:
    with pytest.raises(KeyError, match="of the user"):
        run_state_machine_as_test(machine(Raises()), settings=SETTINGS)
