"""What a page needs of one run: a few thousand numbers, whatever the number of jobs.

Tables of a run may be dropped as soon as its digest is made, so a report of many runs costs the
memory of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from gangline.result import Result

    Floats = npt.NDArray[np.float64]

__all__ = ["POINTS", "Digest", "Group", "Loss", "ModelTime", "Steps", "digest", "jain", "steps"]

POINTS = 2000  # most points of a line: more than a wide screen has columns
_CURVE_POINTS = 600  # of a cumulative curve, which is smooth
# Ours: as many as fit on a wide screen without becoming a blur; three values are kept of each.
_BUCKETS = 400
_HOUR_S = 3600.0
_BITS = np.array([byte.bit_count() for byte in range(256)])  # GPUs in each byte of a mask


@dataclass(frozen=True)
class Steps:
    """A step function of time, or its mean per bucket with the least and the greatest value.

    Attributes
    ----------
    time_s, mean, low, high : float arrays of one length
        `low` and `high` equal `mean` where nothing was folded.
    """

    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Group:
    """Finished jobs that have something in common."""

    name: str
    jobs: int
    gpu_seconds: float
    jct_mean_s: float
    queue_mean_s: float


@dataclass(frozen=True)
class Loss:
    """What the jobs of one model lost to communication.

    Attributes
    ----------
    model : str
        Label.
    gpus_max : int
        Largest gang.
    gpu_h : float
        GPU-hours held.
    lost_gpu_h : (float, float, float)
        GPU-hours lost in one server, in one rack, over racks.
    """

    model: str
    gpus_max: int
    gpu_h: float
    lost_gpu_h: tuple[float, float, float]


@dataclass(frozen=True)
class ModelTime:
    """Where the jobs of one model ran, and how fairly.

    Attributes
    ----------
    model : str
        Label.
    gpu_h : dict of str to float
        GPU-hours held, by GPU type of the cluster.
    ftf_mean : float
        Mean finish-time fairness of its finished jobs; nan if none finished.
    """

    model: str
    gpu_h: dict[str, float]
    ftf_mean: float


@dataclass(frozen=True)
class Digest:
    """One run in small: its recipe, its summary, its curves.

    Attributes
    ----------
    spec, summary : dict
        As in the result.
    curves : dict of str to float array
        Sorted samples of `jct_s`, `queue_s` and `ftf`, at evenly spread shares of the jobs.
    lines : dict of str to Steps
        `gpus_busy` and `jobs_waiting` over time, in seconds since the first arrival.
    gangs, users : list of Group
        By size of gang in powers of two, by user (none if the trace names none).
    busy_gpu_s : dict of str to float
        GPU-seconds held, by GPU type; empty if the run kept no time line.
    jain : float
        Jain's index over the users' mean finish-time fairness; over jobs where no user is named.
    losses : list of Loss
        By model, in the order of the trace, finished or not; empty without a network.
    model_times : list of ModelTime
        By model, most GPU time first, finished or not; empty if the run kept no segments or the
        trace names no models.
    """

    spec: dict[str, Any]
    summary: dict[str, Any]
    curves: dict[str, Floats]
    lines: dict[str, Steps]
    gangs: list[Group]
    users: list[Group]
    busy_gpu_s: dict[str, float]
    jain: float
    losses: list[Loss] = field(default_factory=list)
    model_times: list[ModelTime] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Label of the policy."""
        return str(self.spec["policy"]["label"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.spec["seed"])

    @property
    def time_share(self) -> dict[str, float]:
        """Of all GPU time held, the share on each GPU type; empty if nobody knows.

        Examples
        --------
        >>> import gangline as gl
        >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2, gpu="V100")
        >>> digest(gl.simulate(lab, "synth:philly?jobs=5&seed=1&max_gpus=2")).time_share
        {'V100': 1.0}
        """
        total = sum(self.busy_gpu_s.values())
        if not total:
            return {}
        return {name: held / total for name, held in self.busy_gpu_s.items()}

    @property
    def changed(self) -> dict[str, Any]:
        """Parameters that differ from the policy's defaults; all of a policy of one's own."""
        from gangline.policies.registry import registry

        policy = self.spec["policy"]
        given: dict[str, Any] = policy["params"]
        if policy["name"] not in registry:
            return given
        default = registry[policy["name"]]().params()
        return {key: value for key, value in given.items() if default.get(key) != value}


def digest(result: Result) -> Digest:
    """Return the digest of a run.

    Raises
    ------
    ResultError
        If a table of a saved result cannot be read or lacks a column.
    """
    from gangline.errors import ResultError

    try:
        jobs = result.jobs
        lost, spread = _losses(jobs), _model_times(result)
        jobs = jobs.filter(jobs["jct_s"].is_valid()) if jobs["jct_s"].null_count else jobs
        users = _named(jobs, "user")
        return Digest(
            spec=result.spec,
            summary=result.summary,
            curves={name: _curve(_floats(jobs, name)) for name in ("jct_s", "queue_s", "ftf")},
            lines=_lines(result),
            gangs=_gangs(jobs),
            users=_groups(jobs, *users) if users is not None else [],
            busy_gpu_s=_busy_by_type(result.timeline),
            jain=_evenness(jobs, users),
            losses=lost,
            model_times=spread,
        )
    except KeyError as error:
        message = f"{result.policy}: the tables of this result lack {error}; run it again"
        raise ResultError(message) from None


def steps(time_s: Floats, values: Floats, *, buckets: int = _BUCKETS, most: int = POINTS) -> Steps:
    """Fold a step function into equal parts of its span; up to 2,000 points are kept as they are.

    Parameters
    ----------
    time_s, values : float arrays of one length
        The value from each instant on; instants do not decrease.
    buckets : int
        Equal parts of the span; each keeps its time-weighted mean, its least and its greatest
        value, so no peak is lost however short it was.
    most : int
        Up to so many points nothing is folded.

    Examples
    --------
    >>> folded = steps(np.arange(9.0), np.array([0, 9.0, 0, 0, 0, 0, 0, 4, 0]), buckets=2, most=4)
    >>> folded.high.tolist(), folded.mean.tolist()
    ([9.0, 4.0], [2.25, 1.0])
    """
    if len(time_s) <= most:
        return Steps(time_s, values, values, values)
    edges = np.linspace(time_s[0], time_s[-1], buckets + 1)
    # A bucket sees the row in force when it begins and every row inside it.
    first = np.searchsorted(time_s, edges[:-1], "right") - 1
    last = np.maximum(np.searchsorted(time_s, edges[1:], "left"), first + 1)
    pairs = np.column_stack([first, last]).ravel()
    padded = np.append(values, values[-1])
    low = np.minimum.reduceat(padded, pairs)[::2]
    high = np.maximum.reduceat(padded, pairs)[::2]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(time_s))])
    mean = np.diff(np.interp(edges, time_s, area)) / np.diff(edges)
    return Steps(edges[:-1], np.clip(mean, low, high), low, high)


def jain(values: Floats) -> float:
    """Return Jain's index of evenness: 1 if all are equal, 1/n if one has all.

    Examples
    --------
    >>> jain(np.array([2.0, 2.0])), jain(np.array([1.0, 0.0, 0.0, 0.0]))
    (1.0, 0.25)
    """
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0.0 else float("nan")


def _floats(table: pa.Table, name: str) -> Floats:
    values = table[name].to_numpy()
    return np.asarray(values, np.float64)


def _curve(values: Floats) -> Floats:
    """Return sorted samples at evenly spread shares; the least and the greatest are among them."""
    values = np.sort(values[np.isfinite(values)])
    if len(values) <= _CURVE_POINTS:
        return values
    picks = np.linspace(0, len(values) - 1, _CURVE_POINTS).round().astype(np.int64)
    return np.asarray(values[picks])


def _lines(result: Result) -> dict[str, Steps]:
    """Return what is drawn over time, in seconds since the first arrival."""
    timeline, arrival_s = result.timeline, _floats(result.jobs, "arrival_s")
    # A trace may have a clock of its own; servers may fail before anybody has come.
    time_s = np.maximum(_floats(timeline, "t_s") - arrival_s.min(initial=np.inf), 0.0)
    return {name: steps(time_s, _floats(timeline, name)) for name in ("gpus_busy", "jobs_waiting")}


def _busy_by_type(timeline: pa.Table) -> dict[str, float]:
    if timeline.num_rows == 0:
        return {}  # the run kept no time line
    length = np.diff(_floats(timeline, "t_s"))
    prefix = "gpus_busy_"
    return {
        name.removeprefix(prefix): float((_floats(timeline, name)[:-1] * length).sum())
        for name in timeline.column_names
        if name.startswith(prefix)
    }


def _losses(jobs: pa.Table) -> list[Loss]:
    tiers = ("comm_server_s", "comm_rack_s", "comm_network_s")
    if any(name not in jobs.column_names for name in tiers):
        return []  # no network, or a result of an earlier version
    codes, names = _named(jobs, "model") or (np.zeros(jobs.num_rows, np.int64), ["(not named)"])
    gpus = _floats(jobs, "gpus")
    held = np.bincount(codes, _floats(jobs, "gpu_seconds"), len(names)) / _HOUR_S
    lost = [np.bincount(codes, gpus * _floats(jobs, name), len(names)) / _HOUR_S for name in tiers]
    return [
        Loss(
            names[i],
            int(gpus[codes == i].max()),
            float(held[i]),
            (float(lost[0][i]), float(lost[1][i]), float(lost[2][i])),
        )
        for i in np.unique(codes).tolist()
    ]


def _model_times(result: Result) -> list[ModelTime]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from gangline.cluster import Cluster

    named = _named(result.jobs, "model") if result.has_segments else None
    if named is None:
        return []
    codes, names = named
    jobs, segments = result.jobs, result.segments
    cluster = Cluster.from_dict({k: result.spec["cluster"][k] for k in ("gpu_types", "servers")})
    types = [kind.name for kind in cluster.gpu_types]
    of_server = cluster.server_arrays()["type"].astype(np.int64)
    row = pc.index_in(
        segments["job_id"].cast(pa.string()), value_set=jobs["job_id"].cast(pa.string())
    )
    seconds = _floats(segments, "end_s") - _floats(segments, "start_s")
    mask = np.ascontiguousarray(segments["gpu_mask"].to_numpy(), np.uint64)
    gpus = _BITS[mask.view(np.uint8)].reshape(-1, 8).sum(axis=1)
    place = codes[row.to_numpy()] * len(types) + of_server[segments["server"].to_numpy()]
    held = np.bincount(place, seconds * gpus, len(names) * len(types)) / _HOUR_S
    held = held.reshape(len(names), len(types))
    rho = _floats(jobs, "ftf")
    found = []
    for i in np.argsort(-held.sum(axis=1), kind="stable").tolist():
        own = rho[(codes == i) & np.isfinite(rho)]
        if held[i].sum() > 0.0:
            mean = float(own.mean()) if len(own) else float("nan")
            found.append(ModelTime(names[i], dict(zip(types, held[i].tolist(), strict=True)), mean))
    return found


def _named(jobs: pa.Table, name: str) -> tuple[npt.NDArray[np.int64], list[str]] | None:
    """Return each job's number by a column of names, and the names; None where all are absent."""
    import pyarrow as pa

    column = jobs[name].combine_chunks()
    if column.null_count == len(column):
        return None
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = [str(name) for name in column.dictionary.to_pylist()]
    codes = column.indices.fill_null(len(names)).to_numpy().astype(np.int64)
    return codes, [*names, "(not named)"]


def _gangs(jobs: pa.Table) -> list[Group]:
    gpus = np.maximum(_floats(jobs, "gpus").astype(np.int64), 1)
    codes = np.ceil(np.log2(gpus) - 1e-9).astype(np.int64)
    names = []
    for code in range(int(codes.max(initial=0)) + 1):
        inside = gpus[codes == code]
        low, high = (int(inside.min()), int(inside.max())) if len(inside) else (0, 0)
        names.append(str(low) if low == high else f"{low} to {high}")
    return _groups(jobs, codes, names)


def _groups(jobs: pa.Table, codes: npt.NDArray[np.int64], names: list[str]) -> list[Group]:
    """Return one group per code that occurs, in the order of the codes."""
    count = np.bincount(codes, minlength=len(names))
    sums = [
        np.bincount(codes, _floats(jobs, name), len(names))
        for name in ("gpu_seconds", "jct_s", "queue_s")
    ]
    return [
        Group(names[i], int(n), float(sums[0][i]), float(sums[1][i] / n), float(sums[2][i] / n))
        for i, n in enumerate(count)
        if n
    ]


def _evenness(jobs: pa.Table, users: tuple[npt.NDArray[np.int64], list[str]] | None) -> float:
    rho = _floats(jobs, "ftf")
    known = np.isfinite(rho)
    if users is None:
        return jain(rho[known])
    codes = users[0][known]
    count = np.bincount(codes)
    total = np.bincount(codes, rho[known])
    return jain(total[count > 0] / count[count > 0])
