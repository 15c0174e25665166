"""HadarE: what it refuses, its presets, and what its copies do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl

LAB = gl.Cluster.from_dict(
    {
        "name": "lab",
        "gpu_types": [
            {"name": "fast", "memory_gb": 16, "speed": 2.0},
            {"name": "slow", "memory_gb": 16, "speed": 1.0},
        ],
        "servers": [
            {"count": 1, "gpu": "fast", "gpus": 4, "rack": 0},
            {"count": 2, "gpu": "slow", "gpus": 2, "rack": 1},
        ],
    }
)


def jobs(count: int, duration_s: float = 5000.0, gpus: int = 2) -> pa.Table:
    columns = {
        "arrival_s": [0.0] * count,
        "gpus": [gpus] * count,
        "duration_s": [duration_s] * count,
    }
    return pa.table(columns)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_copies": 0}, "max_copies"),
    ({"gpus_per_copy": 1.5}, "gpus_per_copy"),
    ({"utility": "ftf"}, "utility"),
    ({"min_share": 1.5}, "min_share"),
    ({"fill": False}, "fill"),
    ({"round_s": 1.0}, "round_s"),  # no time is left after a consolidation of 1 s
]


@pytest.mark.parametrize(("params", "field"), BAD)
def test_bad_parameters_are_refused_before_the_run(params: dict[str, Any], field: str) -> None:
    with pytest.raises(gl.PolicyError) as caught:
        gl.simulate(LAB, jobs(1), "hadare", params=params)
    assert (caught.value.policy, caught.value.field) == ("hadare", field)


def test_presets_are_names_with_settings() -> None:
    made = {name: gl.policies.make(f"hadare-{name}").changed() for name in ("paper", "lab")}
    assert made == {"paper": {"price_pass": True}, "lab": {"gpus_per_copy": 1}}
    assert gl.policies.make("hadare-nofork").changed() == {"max_copies": 1}


def test_a_job_alone_uses_every_server_at_the_sum_of_their_rates() -> None:
    run = gl.simulate(LAB, jobs(1), "hadare", params={"c0_s": 0.0}, segments=True)
    # per GPU 1 and 0.5 of the traced gang of two at speed 1: 4 x 1 + 2 x 2 x 0.5 iterations/s
    assert run.summary["makespan_s"] == pytest.approx(5000.0 / 6.0, abs=1e-6)
    assert {row["part"] for row in run.segments.to_pylist()} == {0, 1, 2}
    assert run.summary["gpu_utilization"] == pytest.approx(1.0)
    lab = gl.simulate(LAB, jobs(1), "hadare-lab", params={"c0_s": 0.0})
    assert lab.summary["makespan_s"] == pytest.approx(5000.0 / 2.0, abs=1e-6)


def test_one_copy_never_holds_two_servers() -> None:
    run = gl.simulate(LAB, jobs(5), "hadare-nofork", segments=True)
    rows = run.segments.to_pylist()
    for a in rows:
        for b in rows:
            if a is not b and a["job_id"] == b["job_id"]:
                assert a["end_s"] <= b["start_s"] or b["end_s"] <= a["start_s"]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_as_many_servers_are_busy_as_copies_can_use(copies: int) -> None:
    for count in (1, 2, 3, 4):
        params = {"max_copies": copies, "c0_s": 0.0}
        run = gl.simulate(LAB, jobs(count), "hadare", params=params, segments=True)
        first = [row for row in run.segments.to_pylist() if row["start_s"] == 0.0]
        assert len(first) == min(3, count * copies)
