"""Runs the public conformance suite on every policy of gangline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from gangline import _core, policies
from gangline.errors import GanglineError
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot


def shares_gpus(name: str) -> bool:
    """Return whether a policy with default parameters needs slowdown factors."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    job = pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]})
    try:
        gl.simulate(lab, job, name)
    except GanglineError as error:  # also of other inputs that a policy asks for
        return str(error).startswith("sharing: ")
    return False


def test_policies_of_the_family_share_gpus() -> None:
    family = [entry["name"] for entry in _core.registry() if entry["family"] == "sharing"]
    assert family
    assert [name for name in family if not shares_gpus(name)] == []
    assert not shares_gpus("fifo")


@pytest.mark.parametrize("name", list(policies.registry))
def test_every_policy_keeps_every_law(name: str) -> None:
    gl.testing.check_policy(name)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("fifo", {"placement": "spread"}),
    ("fifo-skip", {"placement": "random"}),
    ("sjf", {"placement": "random_server", "estimate_error": 1.0}),
    ("easy", {"placement": "count", "estimate_error": 0.5}),
    ("srtf", {"placement": "yarn", "yarn_cross_rack": True, "preempt_min_run_s": 20.0}),
    ("srsf", {"slots": "aligned", "fit": "first"}),
    ("las", {"limits": [50.0, 300.0], "promote_knob": 1.0}),
    ("las", {"discretised": False, "las_quantum": 30.0}),
    ("gittins", {"limits": [50.0, 300.0], "delta": 40.0, "las_time": True}),
    # Turns are longer than a restart and a checkpoint interval, so that jobs make progress.
    ("toy-round", {"round_s": 40.0}),
    ("toy-timer", {"delay_s": 25.0}),
]


@pytest.mark.parametrize(("name", "params"), VARIANTS)
def test_variants_keep_every_law(name: str, params: dict[str, Any]) -> None:
    worlds = gl.testing.small_worlds()
    if params.get("promote_knob"):
        # A job that is promoted again and again could be preempted before each checkpoint.
        worlds = [world for world in worlds if "checkpoint_interval_s" not in world[2]]
    gl.testing.check_policy(name, worlds, params=params)


def test_sharing_keeps_every_law(snapshot: Snapshot) -> None:
    gl.testing.check_policy("toy-share")
    with refused(gl.testing.LawBroken, snapshot):
        gl.testing.check_policy("toy-share", max_share=1)
    gl.testing.check_policy("toy-share", params={"halve": True}, max_share=2)


# the rule `skew` may refuse a gang
REFUSING = [
    name for name, kind in policies.registry.items() if kind().params().get("placement") == "skew"
]
CONSERVING = [
    entry["name"]
    for entry in _core.registry()
    if entry["work_conserving"] and entry["name"] not in REFUSING
]


@pytest.mark.parametrize("name", CONSERVING)
def test_policies_that_skip_nobody_leave_no_fitting_job_waiting(name: str) -> None:
    gl.testing.check_policy(name, laws=["work-conserving"])


def test_a_head_that_blocks_others_is_no_work_conservation() -> None:
    with pytest.raises(gl.testing.LawBroken) as caught:
        gl.testing.check_policy("fifo", laws=["work-conserving"])
    assert caught.value.law == "work-conserving"


@pytest.mark.parametrize("name", ["srtf", "las"])
def test_checkpoints_without_failures_keep_every_law(name: str) -> None:
    """Work that a preemption undoes is done again, so rate x time exceeds the work."""
    tight, trace, _ = gl.testing.small_worlds()[0]
    for interval_s in (1.0, 7.5, 25.0):
        world = (tight, trace, {"checkpoint_interval_s": interval_s, "restart_s": 2.0})
        gl.testing.check_policy(name, [world])


@pytest.mark.parametrize("name", ["gavel-las", "gavel-max-sum"])
def test_pairs_in_rounds_keep_every_law(name: str) -> None:
    gl.testing.check_policy(name, params={"packed": True}, max_share=2)


@pytest.mark.parametrize("name", ["fifo", "las", "srtf"])
def test_drawn_failures_keep_every_law(name: str) -> None:
    lab = gl.Cluster.from_dict(
        {
            **gl.Cluster.homogeneous(servers=6, gpus=4, servers_per_rack=2).to_dict(),
            "failures": {"mtbf_hours": 20.0, "mttr_hours": 1.0},
        }
    )
    trace = gl.synth.philly(jobs=60, seed=2, max_gpus=8)
    gl.testing.check_policy(name, [(lab, trace, {"seed": 3, "restart_s": 30.0})])


def test_a_class_is_no_policy() -> None:
    class Idle(gl.Policy):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            return gl.Plan()

    wrong: Any = Idle
    for ask in (gl.testing.check_policy, gl.testing.counterexample):
        with refused(gl.PolicyError, value="the class Idle; pass an instance: Idle()"):
            ask(wrong, 2)
