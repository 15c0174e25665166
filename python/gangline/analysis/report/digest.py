"""Reduces a run to the data for a page: a few thousand numbers for any number of jobs.

The tables of a run can be dropped once its digest has been made, so a report on many runs needs
only as much memory as one run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.analysis.report.excerpt import Excerpt, excerpt
from gangline.analysis.report.pair_times import PairTime, pair_times
from gangline.analysis.report.shapes import Shapes, gangs, shapes
from gangline.analysis.report.stories import Story, alone_s, stops, worst
from gangline.analysis.report.waiting import REASONS, Waits, floats, idle_share, waits
from gangline.runs.arrival_window import counted, of_spec
from gangline.runs.explain.life import Segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.runs.explain.face import Again
    from gangline.runs.premises import Lack
    from gangline.runs.result import Result
    from gangline.runs.summary import RunSummary, SpecDict

    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = [
    "LENGTHS",
    "POINTS",
    "Digest",
    "Group",
    "Loss",
    "ModelTime",
    "Steps",
    "curve",
    "digest",
    "gpus_by_type",
    "jain",
    "length_codes",
    "size_codes",
    "steps",
]

POINTS = 2000  # the maximum number of points of a line; a wide screen has fewer columns
_CURVE_POINTS = 600  # the same for a cumulative curve, which is smooth
# Our own choice: a wide screen shows this number of buckets without a blur; each bucket has three
# values.
_BUCKETS = 400
_TAIL_BUCKETS = 50
_COARSE = 0.01  # our own choice: a timeline is not used if its GPU time has a larger relative error
_HOUR_S = 3600.0
_LENGTH_EDGES_S = (600.0, 3600.0, 6 * 3600.0, 86400.0)  # our own choice: familiar lengths of jobs
LENGTHS = ("up to 10 min", "10 min to 1 h", "1 h to 6 h", "6 h to 1 d", "over 1 d")
_ROUNDING = 1e-9  # relative; the rho of an undisturbed job differs from 1 by a few times 2e-16


@dataclass(frozen=True)
class Steps:
    """A step function of time, or its mean, minimum and maximum per bucket.

    Attributes
    ----------
    time_s, mean, low, high : float arrays of one length
        `low` and `high` equal `mean` where no points were merged.
    """

    time_s: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Group:
    """Finished jobs that have a property in common."""

    name: str
    jobs: int
    gpu_seconds: float
    jct_mean_s: float


@dataclass(frozen=True)
class Loss:
    """The GPU time that the jobs of one model lost to communication.

    Attributes
    ----------
    model : str
        Label of the model.
    gpus_max : int
        Number of GPUs of the largest gang.
    gpu_h : float
        GPU-hours held.
    lost_gpu_h : (float, float, float)
        GPU-hours lost within one server, within one rack, and across racks.
    """

    model: str
    gpus_max: int
    gpu_h: float
    lost_gpu_h: tuple[float, float, float]


@dataclass(frozen=True)
class ModelTime:
    """The GPU types on which the jobs of one model ran, and the jobs' fairness.

    Attributes
    ----------
    model : str
        Label of the model.
    gpu_h : dict of str to float
        GPU-hours held, by GPU type of the cluster.
    ftf_mean : float
        Mean finish-time fairness of the model's finished jobs; nan if none finished.
    """

    model: str
    gpu_h: dict[str, float]
    ftf_mean: float


@dataclass(frozen=True)
class Digest:
    """The parts of a run that a page needs: its spec, its summary and its curves.

    If the run counts only the arrivals in a window, numbers of jobs cover only these jobs. Lines
    over time, GPU time and `jct_s` cover the whole run.

    Attributes
    ----------
    spec, summary : dict
        The spec and the summary of the result.
    curves : dict of str to float array
        Sorted samples of `jct_s` and `ftf` at evenly spaced quantiles.
    lines : dict of str to Steps
        `gpus_busy` and `jobs_waiting` over time, in seconds since the first arrival.
    gangs, lengths, users : list of Group
        Groups by gang size (in powers of two), by run time alone on the fastest GPUs, and by user
        (empty if the trace names no users).
    busy_gpu_s : dict of str to float
        GPU-seconds held, by GPU type; empty if the run has no timeline.
    worse_off : float
        Share of the finished jobs whose finish-time fairness exceeds 1 by more than rounding
        (1e-9); nan if none finished.
    idle_while_waiting : float
        Share of all GPU time that was idle while a job waited; nan if the run has no timeline or
        only a coarse one.
    behind_head : float
        Share of the jobs' waiting time before their first start that is due to head-of-line
        blocking, as defined by `waiting.Waits.behind_head`; nan if no job waited or the tables do
        not show it.
    busy_until_s : float
        Seconds from the first arrival to the last arrival or the end of the last wait, whichever is
        later.
    jain : float
        Jain's index of the users' mean finish-time fairness, or of the jobs' if the trace names no
        users.
    losses : list of Loss
        Losses by model, including unfinished jobs, in the order of the trace; empty without a
        network.
    model_times : list of ModelTime
        Times by model, including unfinished jobs, ordered by decreasing GPU time; empty if the run
        has no segments or the trace names no models.
    shapes : Shapes, optional
        Gangs that span several GPU types, jobs with copies, and gangs that differ from the trace.
        None if the run has no segments or none of these.
    pairs : list of PairTime
        Pairs of models that shared GPUs, ordered by decreasing GPU time; empty if the run shares no
        GPUs or has no segments, or if the trace names no models.
    reasons : dict of str to float
        A job's mean waiting time for each of `waiting.REASONS` (waited_too_few_s, ...), and the
        figures on stopped jobs from `stories.stops`; empty if the run has no segments.
    stories : list of Story
        The most delayed jobs.
    jct_s : float32 array
        JCT of every job, in the order of the jobs table; nan if a job did not finish.
    excerpt : Excerpt, optional
        Excerpt of a Gantt chart; None for large clusters or without segments.
    lacks : list of Lack
        Facts that the policy needs and the cluster lacks.
    again : Again, optional
        Object that repeats the run to find out why the jobs in the stories waited. The object keeps
        the trace in memory.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> run = gl.report.digest(result)
    >>> round(sum(run.time_share.values()), 9)
    1.0
    """

    spec: SpecDict
    summary: RunSummary
    curves: dict[str, Floats]
    lines: dict[str, Steps]
    gangs: list[Group]
    lengths: list[Group]
    users: list[Group]
    busy_gpu_s: dict[str, float]
    worse_off: float
    jain: float
    idle_while_waiting: float
    behind_head: float
    busy_until_s: float
    losses: list[Loss] = field(default_factory=list)
    model_times: list[ModelTime] = field(default_factory=list)
    shapes: Shapes | None = None
    pairs: list[PairTime] = field(default_factory=list)
    reasons: dict[str, float] = field(default_factory=dict)
    stories: list[Story] = field(default_factory=list)
    jct_s: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    excerpt: Excerpt | None = None
    lacks: list[Lack] = field(default_factory=list)
    again: Again | None = None

    @property
    def label(self) -> str:
        """Label of the policy."""
        return str(self.spec["policy"]["label"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.spec["seed"])

    @property
    def trace_seed(self) -> int | None:
        """Seed with which gangline drew the trace; None if the trace was not drawn."""
        found = re.search(r'"seed": (\d+)', self.spec["trace"]["metadata"].get("origin", ""))
        return int(found[1]) if found else None

    @property
    def time_share(self) -> dict[str, float]:
        """Each GPU type's share of all GPU time held; empty if the tables lack it.

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
    def changed(self) -> dict[str, Json]:
        """Parameters that differ from the defaults; for a policy in Python, all its parameters."""
        from gangline.policies.registry import find, presets, registry

        policy = self.spec["policy"]
        given: dict[str, Any] = policy["params"]
        if policy["name"] not in registry and policy["name"] not in presets:
            return given
        default = find(policy["name"])().params()
        return {key: value for key, value in given.items() if default.get(key) != value}


def digest(result: Result, *, repeats: bool = True) -> Digest:
    """Return the digest of a run.

    Parameters
    ----------
    result : Result
        The run.
    repeats : bool
        Whether the page may repeat the run; its trace is then kept. A page shows stories only
        from the first run of a policy.

    Raises
    ------
    ResultError
        If a table of a saved result cannot be read or lacks a column.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> run = gl.report.digest(result)
    >>> run.summary["finished"], sorted(run.curves)
    (40, ['ftf', 'jct_s'])
    """
    from gangline.errors import ResultError

    try:
        jobs, timeline = result.jobs, result.timeline
        is_counted = counted(floats(jobs, "arrival_s"), of_spec(result.spec))
        lost = _losses(jobs)
        gpus = sum(gpus_by_type(result.spec["cluster"]).values())
        # The clock of a trace need not start at 0, and servers may fail before the first arrival.
        first_s = float(floats(jobs, "arrival_s").min(initial=np.inf))
        time_s = np.maximum(floats(timeline, "t_s") - first_s, 0.0)
        busy_until_s = _busy_until(time_s, timeline, jobs, first_s)
        rows = Segments(result.segments, jobs) if result.has_segments else None
        formed, fewest = (None, None) if rows is None else _shapes(result, rows)
        mixes_types = bool(result.spec["policy"].get("params", {}).get("mix_types"))
        mixes_types |= formed is not None and formed.mixed_jobs > 0
        idle = float("nan")
        is_fine = _is_fine(timeline, result.summary, gpus * time_s.max(initial=0.0))
        if is_fine:
            idle = idle_share(timeline, gpus, float(time_s.max(initial=0.0)))
        found = None
        if is_fine or rows is not None:
            found = waits(result, rows, fewest=fewest, mixes_types=mixes_types)
        if found is not None and not is_counted.all():
            found = found.of(is_counted)
        blocked = float("nan") if found is None else found.behind_head
        none = np.zeros(0, np.int64)
        # copies of a job can start and end without a stop of the job
        pairs = (none, none)
        if rows is not None and result.summary.get("preemptions"):
            stopped, taker = rows.preempted()[:2]
            pairs = stopped[is_counted[stopped]], taker[is_counted[stopped]]
        reasons = {} if rows is None else _reasons(result, found, pairs, is_counted)
        told = worst(result, found, rows, pairs, is_counted)
        took_s = floats(jobs, "jct_s").astype(np.float32)
        is_shown = is_counted & np.isfinite(took_s)
        jobs = jobs if is_shown.all() else jobs.filter(is_shown)
        users = _named(jobs, "user")
        return Digest(
            spec=result.spec,
            summary=result.summary,
            curves={name: curve(floats(jobs, name)) for name in ("jct_s", "ftf")},
            lines={
                name: _folded(time_s, floats(timeline, name), busy_until_s)
                for name in ("gpus_busy", "jobs_waiting")
            },
            gangs=_gangs(jobs),
            lengths=_lengths(jobs),
            users=_groups(jobs, *users) if users is not None else [],
            busy_gpu_s=_busy_by_type(timeline),
            worse_off=_worse_off(floats(jobs, "ftf")),
            jain=_evenness(jobs, users),
            idle_while_waiting=idle,
            behind_head=blocked,
            busy_until_s=busy_until_s,
            losses=lost,
            model_times=[] if rows is None else _model_times(result, rows, is_counted),
            shapes=formed,
            pairs=[] if rows is None else _pairs(result, rows),
            reasons=reasons,
            stories=told,
            jct_s=took_s,
            excerpt=None if rows is None else excerpt(result, rows),
            lacks=_lacks(result),
            again=result.again if repeats and rows is not None else None,
        )
    except KeyError as error:
        message = f"{result.policy}: the tables of this result lack {error}; run it again"
        raise ResultError(message) from None


def steps(time_s: Floats, values: Floats, *, buckets: int = _BUCKETS, most: int = POINTS) -> Steps:
    """Reduce a step function with many points to means over equal parts of its span.

    Parameters
    ----------
    time_s, values : float arrays of one length
        Instants in non-decreasing order, and the value that holds from each instant on.
    buckets : int
        Number of equal parts of the span. Each part keeps its time-weighted mean, minimum and
        maximum, so even short peaks remain.
    most : int
        Maximum number of points that are kept unchanged.

    Examples
    --------
    >>> folded = steps(np.arange(9.0), np.array([0, 9.0, 0, 0, 0, 0, 0, 4, 0]), buckets=2, most=4)
    >>> folded.high.tolist(), folded.mean.tolist()
    ([9.0, 4.0], [2.25, 1.0])
    """
    if len(time_s) <= most:
        return Steps(time_s, values, values, values)
    edges = np.linspace(time_s[0], time_s[-1], buckets + 1)
    # A bucket covers the row that is valid when it begins, and every row inside it.
    first = np.searchsorted(time_s, edges[:-1], "right") - 1
    last = np.maximum(np.searchsorted(time_s, edges[1:], "left"), first + 1)
    pairs = np.column_stack([first, last]).ravel()
    padded = np.append(values, values[-1])
    low = np.minimum.reduceat(padded, pairs)[::2]
    high = np.maximum.reduceat(padded, pairs)[::2]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(time_s))])
    mean = np.diff(np.interp(edges, time_s, area)) / np.diff(edges)
    return Steps(edges[:-1], np.clip(mean, low, high), low, high)


def gpus_by_type(cluster: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of GPUs of each type in the cluster of a spec."""
    counts: dict[str, int] = {}
    for block in cluster["servers"]:
        counts[block["gpu"]] = counts.get(block["gpu"], 0) + block["count"] * block["gpus"]
    return counts


def jain(values: Floats) -> float:
    """Return Jain's fairness index: 1 if all values are equal, 1/n if only one value is not 0.

    Examples
    --------
    >>> jain(np.array([2.0, 2.0])), jain(np.array([1.0, 0.0, 0.0, 0.0]))
    (1.0, 0.25)
    """
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0.0 else float("nan")


def curve(values: Floats) -> Floats:
    """Return sorted samples at evenly spaced quantiles, including the minimum and the maximum."""
    values = np.sort(values[np.isfinite(values)])
    if len(values) <= _CURVE_POINTS:
        return values
    picks = np.linspace(0, len(values) - 1, _CURVE_POINTS).round().astype(np.int64)
    return np.asarray(values[picks])


def _is_fine(timeline: pa.Table, summary: Mapping[str, Any], gpu_s: float) -> bool:
    """Return whether a timeline, which may be sampled, gives the GPU time in use accurately."""
    if timeline.num_rows < 2:
        return False
    seconds = np.diff(floats(timeline, "t_s"))
    busy = float(floats(timeline, "gpus_busy")[:-1] @ seconds)
    exact = float(summary.get("gpu_utilization") or 0.0) * gpu_s
    return abs(busy - exact) <= _COARSE * exact


def _busy_until(time_s: Floats, timeline: pa.Table, jobs: pa.Table, first_s: float) -> float:
    arrived = float(floats(jobs, "arrival_s").max(initial=first_s)) - first_s
    waited = np.flatnonzero(floats(timeline, "jobs_waiting"))
    end = time_s[min(int(waited[-1]) + 1, len(time_s) - 1)] if len(waited) else 0.0
    return max(arrived, float(end)) if np.isfinite(arrived) else 0.0


def _folded(time_s: Floats, values: Floats, until_s: float) -> Steps:
    """Reduce a line; separate the part after `until_s`, so that the first part keeps its detail."""
    cut = int(np.searchsorted(time_s, until_s, "right"))
    if len(time_s) <= POINTS or cut < 2 or cut >= len(time_s):
        return steps(time_s, values)
    busy = steps(
        np.append(time_s[:cut], until_s),
        np.append(values[:cut], values[cut - 1]),
        most=POINTS - _TAIL_BUCKETS,
    )
    tail = steps(
        np.append(until_s, time_s[cut:]),
        values[cut - 1 :],
        buckets=_TAIL_BUCKETS,
        most=_TAIL_BUCKETS,
    )
    return Steps(
        np.concatenate([busy.time_s, tail.time_s]),
        np.concatenate([busy.mean, tail.mean]),
        np.concatenate([busy.low, tail.low]),
        np.concatenate([busy.high, tail.high]),
    )


def _busy_by_type(timeline: pa.Table) -> dict[str, float]:
    if timeline.num_rows == 0:
        return {}  # the run has no timeline
    length = np.diff(floats(timeline, "t_s"))
    prefix = "gpus_busy_"
    return {
        name.removeprefix(prefix): float((floats(timeline, name)[:-1] * length).sum())
        for name in timeline.column_names
        if name.startswith(prefix)
    }


def _losses(jobs: pa.Table) -> list[Loss]:
    tiers = ("comm_server_s", "comm_rack_s", "comm_network_s")
    if any(name not in jobs.column_names for name in tiers):
        return []  # no network, or a result of an earlier version
    codes, names = _named(jobs, "model") or (np.zeros(jobs.num_rows, np.int64), ["(not named)"])
    gpus = floats(jobs, "gpus")
    held = np.bincount(codes, floats(jobs, "gpu_seconds"), len(names)) / _HOUR_S
    lost = [np.bincount(codes, gpus * floats(jobs, name), len(names)) / _HOUR_S for name in tiers]
    return [
        Loss(
            names[i],
            int(gpus[codes == i].max()),
            float(held[i]),
            (float(lost[0][i]), float(lost[1][i]), float(lost[2][i])),
        )
        for i in np.unique(codes).tolist()
    ]


def _reasons(
    result: Result, found: Waits | None, pairs: tuple[Ints, Ints], is_counted: Bools
) -> dict[str, float]:
    """Return the mean wait for each reason, and the figures on stopped jobs."""
    told = stops(result.jobs, *pairs)
    if found is None:
        return told
    jobs = max(int(is_counted.sum()) - int(result.summary.get("dropped") or 0), 1)
    total = found.reasons_s.sum(axis=0) / jobs
    parts = zip(REASONS, total, strict=True)
    return told | {f"waited_{reason.key}_s": float(seconds) for reason, seconds in parts}


def _shapes(result: Result, rows: Segments) -> tuple[Shapes | None, Ints | None]:
    """Return a summary of the gangs, and for each job the fewest GPUs that it requested or held."""
    names, of_server = _types(result)
    if len(names) == 1 and not rows.part.any() and not result.spec["cluster"].get("elastic"):
        # pages do not show the shapes of such a run, and all gangs have the requested size
        return None, None
    asked = np.asarray(result.jobs["gpus"].to_numpy(), np.int64)
    held = gangs(rows, of_server)
    found, fewest = shapes(held, names, asked), asked.copy()
    np.minimum.at(fewest, held.job, held.gpus)
    rate, kind = floats(rows.table, "rate"), of_server[rows.server]
    speeds = {one.get("speed", 1.0) for one in result.spec["cluster"]["gpu_types"]}
    # a job whose work is in seconds has a rate of 1 if nothing slows it down
    tops = [float(rate[kind == number].max(initial=1.0)) for number in range(len(names))]
    is_uniform = len(names) > 1 and len(speeds) == 1 and set(tops) == {1.0}
    return replace(found, is_uniform=is_uniform), fewest


def _lacks(result: Result) -> list[Lack]:
    from gangline.policies.choice import of_spec
    from gangline.runs.premises import lacks
    from gangline.runs.spec import cluster_of

    # without the jobs, so that the pages of a saved result and of the run are equal
    return lacks(cluster_of(result.spec), None, [of_spec(result.spec["policy"])])


def _pairs(result: Result, rows: Segments) -> list[PairTime]:
    named = _named(result.jobs, "model")
    if named is None or "xi" not in rows.table.column_names:
        return []
    return pair_times(rows, *named)


def _types(result: Result) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of the GPU types, and the type of each server."""
    from gangline.cluster.description import Cluster

    cluster = Cluster.from_dict({k: result.spec["cluster"][k] for k in ("gpu_types", "servers")})
    names = [kind.name for kind in cluster.gpu_types]
    return names, cluster.server_arrays()["type"].astype(np.int64)


def _model_times(result: Result, rows: Segments, is_counted: Bools) -> list[ModelTime]:
    named = _named(result.jobs, "model")
    if named is None:
        return []
    codes, names = named
    types, of_server = _types(result)
    place = codes[rows.job] * len(types) + of_server[rows.server]
    gpu_h = (rows.end - rows.start) * rows.gpus / _HOUR_S
    held = np.bincount(place, gpu_h, len(names) * len(types)).reshape(len(names), len(types))
    rho = floats(result.jobs, "ftf")
    found = []
    for i in np.argsort(-held.sum(axis=1), kind="stable").tolist():
        own = rho[(codes == i) & np.isfinite(rho) & is_counted]
        if held[i].sum() > 0.0:
            mean = float(own.mean()) if len(own) else float("nan")
            found.append(ModelTime(names[i], dict(zip(types, held[i].tolist(), strict=True)), mean))
    return found


def _named(jobs: pa.Table, name: str) -> tuple[npt.NDArray[np.int64], list[str]] | None:
    """Return the index of each job's name in a column, and the names; None if all are absent."""
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
    return _groups(jobs, *size_codes(floats(jobs, "gpus")))


def size_codes(
    values: npt.NDArray[np.float64] | npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return each job's group by number of GPUs (in powers of two), and the names of the groups."""
    gpus = np.maximum(values.astype(np.int64), 1)
    codes = np.ceil(np.log2(gpus) - 1e-9).astype(np.int64)
    names = []
    for code in range(int(codes.max(initial=0)) + 1):
        inside = gpus[codes == code]
        low, high = (int(inside.min()), int(inside.max())) if len(inside) else (0, 0)
        names.append(str(low) if low == high else f"{low} to {high}")
    return codes, names


def length_codes(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return each job's group in `LENGTHS`, according to its run time."""
    # The value is rounded, so that a job on an edge is on the same side of it under every policy.
    return np.searchsorted(_LENGTH_EDGES_S, np.round(seconds, 3), "left").astype(np.int64)


def _lengths(jobs: pa.Table) -> list[Group]:
    """Group jobs by run time when alone (jct / slowdown), which is independent of the policy."""
    return _groups(jobs, length_codes(alone_s(jobs)), list(LENGTHS))


def _groups(jobs: pa.Table, codes: npt.NDArray[np.int64], names: list[str]) -> list[Group]:
    """Return one group for each code that occurs, in the order of the codes."""
    count = np.bincount(codes, minlength=len(names))
    held, took = (
        np.bincount(codes, floats(jobs, name), len(names)) for name in ("gpu_seconds", "jct_s")
    )
    return [
        Group(names[i], int(n), float(held[i]), float(took[i] / n))
        for i, n in enumerate(count)
        if n
    ]


def _worse_off(rho: Floats) -> float:
    known = rho[np.isfinite(rho)]
    return float((known > 1.0 + _ROUNDING).mean()) if len(known) else float("nan")


def _evenness(jobs: pa.Table, users: tuple[npt.NDArray[np.int64], list[str]] | None) -> float:
    rho = floats(jobs, "ftf")
    known = np.isfinite(rho)
    if users is None:
        return jain(rho[known])
    codes = users[0][known]
    count = np.bincount(codes)
    total = np.bincount(codes, rho[known])
    return jain(total[count > 0] / count[count > 0])
