"""Checks that `slurm` and its slow version agree to the nanosecond in worlds with its columns."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.test_parity import compare

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
USERS = ("ann", "bob", "default", None)
ACCOUNTS = ("lab", "sub", "shop", None)
PARTITIONS = ("fast", "slow", None)
QOS = ("high", "low", "mid", None)
TYPES = ("a", "b")
SECONDS = (1.0, 7.5, 20.0, 30.0, 45.0, 60.0, 90.0, 100.0, 180.0, 333.0)
Row = dict[str, Any]


@st.composite
def jobs(draw: st.DrawFn, index: int, types: int) -> Row:
    """Draw a job; labels and limits are often absent."""
    sizes = [1, 1, 2, 2, 3, 4, 6, 8]
    row: Row = {
        "job_id": f"j{index}",
        "arrival_s": draw(st.sampled_from([0.0, 0.0, 1.0, 2.0, 29.5, 30.0, 31.0, 60.0, 75.25])),
        "gpus": draw(st.sampled_from(sizes)),
        "duration_s": draw(st.sampled_from(SECONDS)),
        "user": draw(st.sampled_from(USERS)),
        "account": draw(st.sampled_from(ACCOUNTS)),
        "partition": draw(st.sampled_from(PARTITIONS)),
        "qos": draw(st.sampled_from(QOS)),
        "time_limit_s": draw(st.sampled_from([None, *SECONDS])),
        "nice": draw(st.sampled_from([None, 0, 3, -50, 400])),
    }
    if types == 2 and draw(st.integers(0, 3)) == 0:
        row["gpu_types"] = [draw(st.sampled_from(TYPES))]
    return row


@st.composite
def worlds(draw: st.DrawFn) -> Row:
    """Draw a small cluster with more jobs than it holds."""
    types = draw(st.integers(1, 2))
    blocks = [
        {
            "count": draw(st.integers(1, 3)),
            "gpu": TYPES[draw(st.integers(0, types - 1))],
            "gpus": draw(st.sampled_from([1, 2, 4])),
            "rack": draw(st.integers(0, 1)),
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    cluster: Row = {
        "name": "lab",
        "gpu_types": [{"name": name, "speed": 1.0 + 0.5 * i} for i, name in enumerate(TYPES)],
        "servers": [*blocks, *({"count": 1, "gpu": name, "gpus": 2} for name in TYPES)],
    }
    if draw(st.integers(0, 3)) == 0:
        down = draw(st.sampled_from([0.0, 20.0, 30.0, 61.0]))
        up = down + draw(st.sampled_from([5.0, 40.0, 100.0]))
        cluster["failures"] = {"table": [{"server": 0, "down_s": down, "up_s": up}]}
    rows = [draw(jobs(index, types)) for index in range(draw(st.integers(3, 14)))]
    run = {
        "on_infeasible": "drop",
        "restart_s": draw(st.sampled_from([0.0, 0.0, 4.0])),
        "seed": draw(st.integers(0, 3)),
    }
    return {"cluster": cluster, "jobs": rows, "run": run}


def named(names: tuple[str | None, ...], values: list[Any]) -> st.SearchStrategy[Row]:
    """Draw a table with some of the names."""
    return st.dictionaries(
        st.sampled_from([name for name in names if name]), st.sampled_from(values)
    )


PREEMPT = [
    {"high": ["low"]},
    {"high": ["low", "mid", "normal"], "mid": ["low"]},
    {"high": ["low"], "mid": ["low", "nobody"]},
]
PARAMETERS: dict[str, st.SearchStrategy[Any]] = {
    "weight_age": st.sampled_from([1, 1000, 100_000]),
    "weight_fairshare": st.sampled_from([1, 1000, 100_000]),
    "weight_job_size": st.sampled_from([1, 1000]),
    "weight_partition": st.sampled_from([10, 1000]),
    "weight_qos": st.sampled_from([10, 1000]),
    "weight_gpu": st.sampled_from([-300, 300]),
    "max_age_s": st.sampled_from([10.0, 100.0]),
    "favor_small": st.booleans(),
    "small_relative_to_time": st.booleans(),
    "fairshare": st.sampled_from(["tree", "classic"]),
    "half_life_s": st.sampled_from([0.0, 10.0, 100.0]),
    "calc_period_s": st.sampled_from([1.0, 10.0, 30.0]),
    "dampening": st.sampled_from([0.5, 3.0]),
    "account_parents": st.sampled_from([{"sub": "lab"}, {"sub": "lab", "lab": "all"}]),
    "account_shares": named(ACCOUNTS, [0, 1, 2, 7]),
    "user_shares": st.dictionaries(
        st.sampled_from(["lab/ann", "sub/ann", "shop/bob", "/ann", "new/eve"]),
        st.sampled_from([0, 2, 5]),
    ),
    "partition_tier": named((*PARTITIONS, "default"), [0, 1, 2]),
    "partition_factor": named((*PARTITIONS, "default"), [0, 1, 3]),
    "partition_types": named(PARTITIONS, [["a"], ["b"], ["b", "a"]]),
    "qos_priority": named((*QOS, "normal"), [0, 5, 10]),
    "qos_usage_factor": named((*QOS, "normal"), [0.0, 0.5, 2.0]),
    "qos_preempt": st.sampled_from(PREEMPT),
    "preempt_exempt_s": st.sampled_from([0.0, 25.0]),
    "qos_exempt_s": named((*QOS, "normal"), [0.0, 10.0, 60.0]),
    "youngest_first": st.booleans(),
    "strict_order": st.booleans(),
    "reorder_count": st.sampled_from([0, 1, 2, 5]),
    "requeue_delay_s": st.sampled_from([0.0, 10.0, 120.0]),
    "qos_grp_gpus": named((*QOS, "normal"), [2, 4, 6]),
    "qos_user_gpus": named((*QOS, "normal"), [1, 4]),
    "qos_user_jobs": named((*QOS, "normal"), [1, 2]),
    "account_grp_gpus": named((*ACCOUNTS, "all"), [2, 4, 8]),
    "default_limit_s": st.sampled_from([15.0, 60.0, 100.0]),
    "limit_factor": st.sampled_from([0.5, 1.0, 2.0]),
    "queue_depth": st.sampled_from([0, 1, 3]),
    "sched_interval_s": st.sampled_from([0.0, 20.0, 45.0]),
    "backfill": st.sampled_from([True, True, False]),
    "bf_interval_s": st.sampled_from([5.0, 10.0, 30.0]),
    "bf_window_s": st.sampled_from([20.0, 100.0, 300.0]),
    "bf_resolution_s": st.sampled_from([1.0, 7.0, 60.0]),
    "bf_max_job_test": st.sampled_from([1, 2, 5]),
    "bf_max_job_user": st.sampled_from([0, 1, 2]),
    "placement": st.sampled_from(["spread", "random", "count", "yarn"]),
    "fit": st.sampled_from(["first", "best"]),
}
TERMS = [name for name in PARAMETERS if name.startswith("weight_")]


@st.composite
def parameters(draw: st.DrawFn) -> Row:
    """Draw about a third of the parameters, and those of one mechanism more often."""
    chosen = {
        name: draw(values) for name, values in PARAMETERS.items() if draw(st.integers(0, 3)) == 0
    }
    if draw(st.booleans()):
        chosen.setdefault("qos_preempt", draw(PARAMETERS["qos_preempt"]))
    if draw(st.booleans()):
        for name in TERMS:
            chosen.setdefault(name, draw(PARAMETERS[name]))
    return chosen


@settings(suppress_health_check=QUIET, max_examples=max(100, settings().max_examples))
@given(world=worlds(), params=parameters())
def test_slurm_agrees_with_its_slow_version(world: Row, params: Row) -> None:
    compare(world, "slurm", params)
