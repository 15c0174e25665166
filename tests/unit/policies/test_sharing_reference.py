"""Memory, slowdown factors of every kind and the numbers of shared runs in the slow simulator."""

from __future__ import annotations

import math
from typing import Any

import pytest

import reference
from reference.sharing import Rates
from reference.world import GIB, GpuType, Job

TYPES = [GpuType("v", 16 * GIB, 1.0), GpuType("k", 16 * GIB, 1.0)]


def rates_of(sharing: dict[str, Any]) -> Rates:
    return Rates({"cluster": {}, "sharing": sharing}, TYPES, [])


def job(model: str | None, gpus: int = 1, batch: int | None = None, memory: int = 0) -> Job:
    return Job(0, "j", 0, gpus, 1.0, model, batch, memory, {0: 1.0}, duration_known=True)


def test_memory_by_batch() -> None:
    """16 GB, 10 GB at 32: 7.5 at 16, 6.25 at 8, 5.625 at 4; the last fits beside the full one."""
    rates, mine = rates_of({}), job("a", batch=32, memory=10 * GIB)
    wanted = {None: 10.0, 32: 10.0, 16: 7.5, 8: 6.25, 4: 5.625}
    assert {b: rates.memory(mine, b) / GIB for b in wanted} == wanted
    fits = [b for b in (32, 16, 8, 4) if 10 * GIB + rates.memory(mine, b) <= TYPES[0].memory]
    assert fits == [4]
    assert rates_of({"memory_fixed_fraction": 0.0}).memory(job("a", 1, 3, 10), 2) == 7  # 6.67
    assert rates_of({"memory_fixed_fraction": 0.0}).memory(job("a", 1, 4, 10), 1) == 3  # 2.5 up


def test_side_by_side_from_start_to_end() -> None:
    """Two equal jobs: at 1.5 a third of their time is lost; at 1.2 a GPU does the work of 1.67."""
    jobs = [{"job_id": n, "arrival_s": 0, "gpus": 1, "duration_s": 100} for n in ("A", "B")]
    cluster = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"gpu": "g", "gpus": 1}],
    }
    world = {"cluster": cluster, "jobs": jobs, "sharing": {"xi": 1.5}}
    found = reference.run(world, "toy-share").summary
    assert found["share_fraction"] == pytest.approx(1 / 3)
    assert found["useful_utilization"] == pytest.approx(2 / 3 * found["gpu_utilization"])
    assert found["share_gpu_fraction"] == 1.0
    assert found["xi_mean"] == pytest.approx(1.5)
    assert found["shares_started"] == 2  # each has the other right after its start
    found = reference.run({**world, "sharing": {"xi": 1.2}}, "toy-share").summary
    assert found["packing_gain"] == pytest.approx(2 / 1.2)
    alone = reference.run(world, "fifo").summary
    assert "packing_gain" not in alone
    assert alone["share_fraction"] == 0.0


def row(xi: float | None, **more: Any) -> dict[str, Any]:
    return {"model": "a", "co_model": "b", "xi": xi, **more}


@pytest.mark.parametrize(
    ("rows", "gang", "t", "wanted"),
    [
        ([row(1.5)], 1, 0, 1.5),
        ([row(1.5)], 4, 1, 1.5),
        ([row(1.5), row(1.7, gpu_type="k")], 1, 0, 1.5),
        ([row(1.5), row(1.7, gpu_type="k")], 1, 1, 1.7),
        # the gang size comes before the type
        ([row(1.1, gpus=4), row(1.2, gpus=4, gpu_type="v"), row(1.3, gpu_type="v")], 4, 0, 1.2),
        ([row(1.1, gpus=4), row(1.2, gpu_type="v")], 4, 0, 1.1),
        ([row(1.2, gpus=1), row(1.3)], 4, 0, 1.3),
        ([row(1.2, gpus=1), row(1.4, gpus=1, gpu_type="v")], 4, 0, 1.4),
        ([row(1.2, gpus=1), row(1.4, gpus=1, gpu_type="v")], 4, 1, 1.2),
        # batches of the jobs are 8 and 16
        ([row(1.5), row(2.0, batch_size=8, co_batch_size=16)], 1, 0, 2.0),
        ([row(1.5), row(2.0, batch_size=16, co_batch_size=8)], 1, 0, 1.5),
        ([row(1.5, gpu_type="v"), row(2.0, batch_size=8, co_batch_size=16)], 1, 0, 1.5),
        # noise; the first row decides, also if it says nothing
        ([row(0.97)], 1, 0, 1.0),
        ([row(1.5), row(0.0, gpu_type="v")], 1, 0, None),
        ([row(1.5), row(None, gpu_type="v")], 1, 0, None),
        ([row(1.5), row(math.nan, gpus=4)], 4, 0, None),
        ([row(1.5, gpus=2)], 1, 0, None),
        ([], 1, 0, None),
    ],
)
def test_which_row_counts(
    rows: list[dict[str, Any]], gang: int, t: int, wanted: float | None
) -> None:
    sharing = {"interference": "table", "rows": rows, "missing": "infeasible"}
    slow = rates_of(sharing)
    a, b = job("a", gang, 8), job("b", gang, 16)
    assert slow.one_way(a, b, t) == wanted
    assert not slow.can_pair(a, b, t)  # the other way there is no row
    if wanted is None:
        filled = rates_of({**sharing, "missing": "constant", "xi": 3.0})
        assert filled.one_way(a, b, t) == 3.0
        with pytest.raises(reference.ClusterError):
            rates_of({**sharing, "missing": "error"}).one_way(a, b, t)


def test_gangs_need_a_row_of_their_own_where_asked_for() -> None:
    rows = [row(1.2, gpus=1), {**row(1.3, gpus=1), "model": "b", "co_model": "a"}]
    own = {"interference": "table", "rows": rows, "gang_fallback": "infeasible"}
    slow = rates_of(own)
    assert slow.one_way(job("a"), job("b"), 0) == 1.2
    assert slow.one_way(job("a", 2), job("b", 2), 0) is None  # no error: it may not share
    assert slow.one_way(job("a", 2), job("b", 1), 0) is None  # the slowed one's gang counts
    assert slow.one_way(job("a", 1), job("b", 2), 0) == 1.2


def test_matrix() -> None:
    matrix = {"interference": "matrix", "models": ["a", "b"], "matrix": [[1.5, 0.9], [0.9, 2.0]]}
    slow = rates_of(matrix)
    assert slow.one_way(job("a"), job("a", 4), 1) == 1.5
    assert slow.one_way(job("a"), job("b"), 0) == slow.one_way(job("b"), job("a"), 0) == 1.0
    assert slow.interference.clamped == 2
    with pytest.raises(reference.ClusterError):
        slow.one_way(job("a"), job(None), 0)
    askew = {**matrix, "matrix": [[1.5, 1.2], [1.3, 2.0]]}
    assert rates_of({**askew, "symmetric": False}).one_way(job("b"), job("a"), 0) == 1.3
    bad: list[dict[str, Any]] = [
        askew,
        {**matrix, "models": ["a", "a"]},
        {**matrix, "matrix": [[1.5, 1.2]]},
        {**matrix, "matrix": [[1.5], [1.2]]},
        {**matrix, "matrix": [[math.inf, 1.2], [1.2, 1.0]]},
    ]
    for sharing in bad:
        with pytest.raises(reference.ClusterError):
            rates_of(sharing)


def test_utilisation() -> None:
    slow = rates_of({"interference": "analytic", "util": {"a": 0.75, "b": 0.5, "c": 0.25}})
    assert slow.one_way(job("a"), job("b"), 0) == slow.one_way(job("b"), job("a"), 0) == 1.3125
    assert slow.one_way(job("b"), job("c"), 0) == 1.05  # there is room for both
    for bad in ({"util": {"a": 1.5}}, {"util": {"a": 0.0}}, {"util": {}, "kappa": math.nan}):
        with pytest.raises(reference.ClusterError):
            rates_of({"interference": "analytic", **bad})


GAVEL = {
    "v": {
        "('a', 1)": {"null": 10.0, "('a', 1)": [5.0, 5.0], "('b', 1)": [8.0, 2.0]},
        "('b', 1)": {"null": 3.0, "('a', 1)": [2.0, 8.0], "('b', 1)": [0.0, 0.0]},
        "('a', 2)": {"null": 18.0, "('a', 2)": [0.0, 0.0], "('b', 2)": [9.0, 2.0]},
        "('b', 2)": {"null": 5.0, "('a', 2)": [2.0, 9.0]},
    },
    "v_unconsolidated": {"('a', 1)": {"null": 10.0, "('a', 1)": [1.0, 1.0]}},
}


def test_gavel() -> None:
    given = {"interference": "gavel", "throughputs": GAVEL, "missing": "infeasible"}
    slow = rates_of(given)
    assert slow.one_way(job("a"), job("b"), 0) == 1.25
    assert slow.one_way(job("b"), job("a"), 0) == 1.5
    assert slow.one_way(job("a", 2), job("b", 2), 0) == 2.0
    assert slow.one_way(job("b", 2), job("a", 2), 0) == 2.5
    # a gang that was not measured takes the pair of one GPU
    assert slow.one_way(job("a", 2), job("a", 2), 0) == 2.0
    assert slow.one_way(job("a", 4), job("b", 4), 0) == 1.25
    strict = rates_of({**given, "gang_fallback": "infeasible", "missing": "error"})
    assert strict.one_way(job("a", 2), job("a", 2), 0) is None
    assert strict.one_way(job("a", 4), job("b", 4), 0) is None
    # listed with a 0: may not share, also where absent pairs are an error
    error = rates_of({**given, "missing": "error"})
    assert error.one_way(job("b"), job("b"), 0) is None
    assert error.one_way(job("b", 4), job("b", 4), 0) is None
    for a, b, t in ((job("a"), job("b"), 1), (job("a"), job("c"), 0)):
        with pytest.raises(reference.ClusterError):
            error.one_way(a, b, t)


def test_what_is_refused_before_the_run() -> None:
    jobs = [
        {"job_id": "A", "arrival_s": 0, "gpus": 1, "duration_s": 10, "model": "a"},
        {"job_id": "B", "arrival_s": 0, "gpus": 1, "duration_s": 10, "model": "b"},
        {"job_id": "C", "arrival_s": 0, "gpus": 1, "duration_s": 10, "model": "c"},
    ]
    jobs[2]["gpu_types"] = ["k"]
    world: dict[str, Any] = {
        "cluster": {
            "gpu_types": [{"name": "v", "memory_gb": 16}, {"name": "k", "memory_gb": 16}],
            "servers": [{"gpu": "v", "gpus": 1}, {"gpu": "k", "gpus": 1}],
        },
        "jobs": jobs,
    }
    with pytest.raises(reference.PolicyError):  # no source
        reference.run(world, "toy-share")
    rows = [
        {"model": a, "co_model": b, "xi": 1.5, **({"gpu_type": "k"} if "c" in (a, b) else {})}
        for a in "abc"
        for b in "abc"
        if a != b
    ]
    # none needs a partner of its own label, nor C one on v
    sharing = {"interference": "table", "rows": rows}
    assert reference.run({**world, "sharing": sharing}, "toy-share").decisions > 0
    with pytest.raises(reference.ClusterError) as caught:
        reference.run({**world, "sharing": {**sharing, "rows": rows[:-2]}}, "toy-share")
    assert caught.value.facts["pairs"] == {("c", "a"), ("c", "b")}
    bad: list[dict[str, Any]] = [
        {"interference": "magic", "xi": 1.5},
        {"xi": 0.9},
        {"xi": math.nan},
        {"interference": "table", "rows": rows, "missing": "constant"},
        {"interference": "table", "rows": [rows[0], rows[0]]},
        {"interference": "table", "rows": [{**rows[0], "xi": math.inf}]},
        {"interference": "table", "rows": [{**rows[0], "batch_size": 8}]},
        {"interference": "table", "rows": [{**rows[0], "mode": "mps"}]},
    ]
    for sharing in bad:
        with pytest.raises(reference.ClusterError):
            reference.run({**world, "sharing": sharing}, "toy-share")
