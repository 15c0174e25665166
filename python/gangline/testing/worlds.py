"""Defines worlds in which policies are tested: a cluster, jobs and run options as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gangline.runs.options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Unpack

    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

    WorldLike: TypeAlias = "World | tuple[ClusterLike, TraceLike, RunOptions]"

__all__ = ["TIME_SCALES", "World", "small_worlds"]

TIME_SCALES = (1.0, 60.0, 3600.0)
"""Factors for times in generated worlds: jobs of seconds, minutes and hours. Our own choice."""


class SimulateKeywords(RunOptions, total=False):
    """The arguments of `gangline.simulate`, except cluster, trace and policy."""

    params: Mapping[str, object] | None
    progress: bool | Progress


@dataclass(frozen=True)
class World:
    """A cluster, jobs and run options, as data that can be printed.

    A world can be unpacked into `cluster, trace, options`.

    Attributes
    ----------
    cluster_keys : dict
        The keys of the cluster, as for `gangline.Cluster.from_dict`.
    jobs : list of dict
        Jobs as rows of a native trace. A key may be absent, or its value may be None.
    options : dict
        Options of `gangline.simulate`.

    Examples
    --------
    >>> import gangline as gl
    >>> world = gl.testing.World(
    ...     {
    ...         "gpu_types": [{"name": "A", "memory_gb": 16}],
    ...         "servers": [{"count": 1, "gpu": "A", "gpus": 1}],
    ...     },
    ...     [{"job_id": "a", "arrival_s": 0.0, "gpus": 1, "duration_s": 2.0}],
    ... )
    >>> world.simulate("fifo").summary["makespan_s"]
    2.0
    >>> cluster, trace, options = world
    >>> len(trace)
    1
    """

    cluster_keys: dict[str, Json]
    jobs: list[dict[str, Json]]
    options: dict[str, Json] = field(default_factory=dict)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster."""
        from gangline.cluster.description import Cluster

        return Cluster.from_dict(self.cluster_keys)

    @cached_property
    def trace(self) -> Trace:
        """The jobs as a trace."""
        from gangline.trace.jobs.table import Trace

        return Trace.from_arrow(_table(self.jobs))

    def __iter__(self) -> Iterator[Cluster | Trace | dict[str, Json]]:
        return iter((self.cluster, self.trace, self.options))

    def simulate(self, policy: PolicyLike, **more: Unpack[SimulateKeywords]) -> Result:
        """Simulate the world under a policy, with the world's options and any additional ones.

        Parameters
        ----------
        policy : policy
            As for `gangline.simulate`.
        **more
            More arguments for `gangline.simulate`; `segments` is True by default.

        Returns
        -------
        Result
            Result of `gangline.simulate`.
        """
        from gangline.runs.simulate import simulate

        given: dict[str, Any] = {"segments": True, **self.options, **more}
        result = simulate(self.cluster, self.trace, policy, **given)
        if given["segments"]:
            self._runs[:] = [result]
        return result

    @cached_property
    def _runs(self) -> list[Result]:
        return []

    @property
    def last(self) -> Result | None:
        """The latest result of this world's `simulate` that has segments, for charts."""
        return self._runs[-1] if self._runs else None


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows of a native trace as a table; columns that are empty in all rows are left out."""
    import pyarrow as pa

    whole = ("gpus", "batch_size", "min_gpus", "max_gpus")
    numbers = ("arrival_s", "duration_s", "iterations", "memory_gb", "weight", "deadline_s")
    kinds = dict.fromkeys(whole, pa.int32()) | dict.fromkeys(numbers, pa.float64())
    kinds["gpu_types"] = pa.list_(pa.string())
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], kinds.get(name, pa.string()))
            for name in names
        }
    )


def small_worlds() -> list[tuple[Cluster, Trace, RunOptions]]:
    """Return small and awkward worlds in which every gang fits on a single server.

    The worlds cover ties, mixed servers and overheads, and also failures and checkpoints,
    separately and together. They also cover contended uplinks, elastic jobs, and jobs that slow
    each other down in pairs; these jobs have many models, batches, memory and deadlines.

    Examples
    --------
    >>> import gangline as gl
    >>> len(gl.testing.small_worlds())
    9
    """
    from gangline.trace.jobs.table import Trace

    tight, mixed, broken, racks, models, elastic = _clusters()
    few, many = (Trace.from_arrow(_jobs(count, most)) for count, most in ((40, 4), (60, 8)))
    labelled = Trace.from_arrow(_labelled(_jobs(40, 8)))
    drop: RunOptions = {"on_infeasible": "drop"}  # for policies that cannot run every gang
    return [
        (tight, few, {**drop}),
        (tight, few, {**drop, "restart_s": 7.0, "first_start_s": 2.0}),
        (mixed, many, {**drop, "restart_s": 3.0}),
        (broken, many, {**drop, "restart_s": 3.0}),
        (broken, many, {**drop, "checkpoint_interval_s": 25.0}),
        (tight, few, {**drop, "checkpoint_interval_s": 25.0, "restart_s": 7.0}),
        (racks, labelled, {**drop, "restart_s": 3.0}),
        (models, labelled, {**drop, "restart_s": 3.0, "restart_by_model": {"VGG11": 9.0}}),
        (elastic, labelled, {**drop, "restart_s": 3.0, "first_start_s": 1.0}),
    ]


def _clusters() -> list[Cluster]:
    """Return the clusters for `small_worlds`, each with a slowdown factor for sharing policies."""
    from gangline.cluster.description import Cluster

    first = {"name": "A", "memory_gb": 16, "price_per_hour": 1.0}
    second = {"name": "B", "memory_gb": 32, "speed": 2.0, "price_per_hour": 2.5}
    tight = {
        "name": "tight",
        "gpu_types": [first],
        "servers": [{"count": 2, "gpu": "A", "gpus": 4, "rack": 0}],
        "sharing": {"xi": 1.25},
    }
    mixed = {
        "name": "mixed",
        "gpu_types": [first, second],
        "servers": [
            {"count": 3, "gpu": "A", "gpus": 4, "rack": "fill:2"},
            {"count": 2, "gpu": "B", "gpus": 8, "rack": "fill:1"},
        ],
        "sharing": {"xi": 1.25},
    }
    down = [
        {"server": 0, "down_s": 50.0, "up_s": 400.0},
        {"server": 3, "down_s": 90.0, "up_s": 91.0},
    ]
    racks = {
        "name": "racks",
        "gpu_types": [first],
        "servers": [
            {"count": 1, "gpu": "A", "gpus": 8, "rack": 0},
            {"count": 6, "gpu": "A", "gpus": 2, "rack": "fill:2"},
        ],
        "network": {
            "preset": "pcie-25g",
            "default_model": "ResNet50",
            "network": {"uplink_bw": 2e9},
            "contention": "maxmin",
        },
        "sharing": {"xi": 1.25},
    }
    pairs = [
        {"model": slowed, "co_model": other, "xi": 1.0 + 0.15 * i + 0.1 * j}
        for i, slowed in enumerate(_MODELS)
        for j, other in enumerate(_MODELS)
    ]
    sharing = {"interference": "table", "rows": pairs, "missing": "constant", "xi": 1.5}
    return [
        Cluster.from_dict(data)
        for data in (
            tight,
            mixed,
            {**mixed, "failures": {"table": down}},
            racks,
            {**mixed, "name": "models", "sharing": sharing},
            {**mixed, "name": "elastic", "elastic": {"models": _elastic()}},
        )
    ]


_MODELS = ("VGG11", "ResNet50", "BERT-large")


def _elastic() -> dict[str, dict[str, Any]]:
    """Return two elastic models: one with a single phase of gradient noise, one with three."""
    fit = {"a_c": 0.05, "b_c": 0.002, "a_n": 0.2, "b_n": 0.01, "a_r": 0.05, "b_r": 0.002}
    limits = {"init_batch": 32, "max_batch": 512, "min_pass_batch": 4, "max_pass_batch": 64}
    noise = [[0.0, 1.0, 0.5], [0.3, 0.5, 1.0], [0.8, 0.1, 2.0]]
    common = {**fit, **limits, "gamma": 1.5}
    return {"VGG11": common, "ResNet50": {**common, "max_gpus": 12, "noise": noise}}


def _jobs(count: int, most: int) -> pa.Table:
    """Return jobs built by a fixed rule: grouped arrivals, gangs of all sizes, some short jobs."""
    import pyarrow as pa

    index = np.arange(count)
    gpus = np.asarray([1, 1, 2, 1, 4, 1, 2, 8])[index % 8]
    return pa.table(
        {
            "job_id": [f"job-{i}" for i in index],
            "arrival_s": (index // 3) * 11.0,
            "gpus": np.minimum(gpus, most).astype(np.int32),
            "duration_s": 0.5 + (index * 37 % 101) * 3.0,
            "user": [f"user-{i % 5}" for i in index],
        }
    )


def _labelled(jobs: pa.Table) -> pa.Table:
    """Add optional columns: models, batches, memory, weights and deadlines."""
    import pyarrow as pa

    index = np.arange(len(jobs))
    loose = jobs["arrival_s"].to_numpy() + 20.0 * jobs["duration_s"].to_numpy()
    more = {
        "model": [[*_MODELS, None][i % 4] for i in index],
        "batch_size": pa.array([[None, 32, 48][i % 3] for i in index], pa.int32()),
        "memory_gb": [[None, 4.0, 9.0, 12.0, 16.0][i % 5] for i in index],
        "weight": [[1.0, 1.0, 2.5][i % 3] for i in index],
        "deadline_s": [at if i % 2 else None for i, at in enumerate(loose.tolist())],
    }
    for name, column in more.items():
        jobs = jobs.append_column(name, pa.array(column))
    return jobs
