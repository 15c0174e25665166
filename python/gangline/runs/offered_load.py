"""Computes the offered load: the work of a trace relative to the capacity of its cluster.

The functions work on whole columns, without loops over jobs. docs/concepts/metrics.md defines the
offered load and says what it ignores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangline._support import formatting
from gangline.errors import OptionError
from gangline.runs import arrival_window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline import _core
    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.lp.highs import F64
    from gangline.runs.arrival_window import Window
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.trace.jobs.table import Trace

    Bools = npt.NDArray[np.bool_]

__all__ = [
    "OfferedLoad",
    "by_partition",
    "in_words",
    "known",
    "load_of",
    "offered_load",
    "overload",
    "shown",
    "steady_window",
    "suggestion",
    "unfinished",
]

_PARTITIONS = 5  # our own choice: the number of partitions in a sentence
_LARGEST = 10
# Our own choice. In a trace of many similar jobs, the ten largest jobs have a share of 10 / jobs of
# the work.
_LARGEST_SHARE, _LARGEST_EXCESS = 0.25, 3.0
_ALIKE = (
    "so policies that start jobs as soon as they fit, on the number of GPUs that they ask for, "
    "only differ in placement"
)
_TYPES = " and in the GPU types that they choose"
# From a load of 0.9, waits are long and depend on the draw; from 1.005, the load counts as above 1.
# Our own choice.
_NEAR, _OVER = 0.9, 1.005
# the tolerance exceeds the rounding errors of the LPs that divide jobs among GPU types
_DUE = 1.0 + 1e-6
_STEPS = 100  # Our own choice: the early load is at most 1 % too low, and its LP is solved quickly.
_WINDOWS = ("window", "middle")
# A window is suggested only if this fraction of the jobs fits into the time that it omits at one
# end; our own choice.
_MOST_JOBS = 0.9


@dataclass(frozen=True)
class OfferedLoad:
    """The offered load of a trace on a cluster.

    Attributes
    ----------
    load : float or None
        Work that arrives, divided by the work that the GPUs can do in the arrival span. None if the
        load is undefined; `in_words` gives the reason.
    by_type : dict of str to float
        Load of each GPU type of the cluster when the jobs are divided among the types as evenly as
        their rates allow. Empty if `load` is None.
    arrival_span_s : float
        Time from the first to the last arrival, or the length of the window, in seconds.
    work_gpu_s : float
        GPU-seconds that the jobs need, each on the type on which it is fastest.
    capacity_gpu_s : float
        GPU-seconds that the cluster offers in the arrival span.
    largest_share : float
        Fraction of the work that belongs to the largest jobs; 0 without jobs.
    largest_jobs : int
        Number of these largest jobs, at most 10.
    jobs : int
        Number of jobs that count.
    left_out : int
        Number of jobs that do not count because they fit on no GPU type of the cluster.
    peak_share : float or None
        Largest share of the GPUs that the jobs would hold at any time if each job started at its
        arrival. If it is at most 1, no job has to wait for lack of GPUs. It is None if this
        conclusion is not possible: some job cannot use every GPU type, or the free GPUs could
        suffice in total although no single type has enough.
    early_load : float or None
        The part of the load that falls within the arrival span. It is computed like `load` on the
        assumption that each job starts at its arrival, but only the GPU-seconds before the end of
        the span count. With several GPU types, it is at most 1 % too low. None if jobs may share
        GPUs or are elastic.
    window : pair of float or None
        The window of arrivals for which this load was computed; None for the load of all jobs.
    middle : pair of float or None
        Window of arrivals to count in order to approximate a steady state; see `steady_window`. A
        saved result contains it only if gangline suggests this window.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.pai(jobs=500, seed=1, max_gpus=8, load=0.8, cluster_gpus=8)
    >>> load = gl.offered_load(lab, trace)
    >>> round(load.load, 3), load.is_over
    (0.8, False)
    """

    load: float | None
    by_type: dict[str, float]
    arrival_span_s: float
    work_gpu_s: float
    capacity_gpu_s: float
    largest_share: float
    largest_jobs: int
    jobs: int
    left_out: int
    peak_share: float | None
    early_load: float | None = None
    window: Window | None = None
    middle: Window | None = field(default=None, compare=False)

    @property
    def is_over(self) -> bool:
        """Return whether the load is above 1 and jobs have to wait for lack of GPUs."""
        return self.exceeds and not self.is_light

    @property
    def leaves_backlog(self) -> bool | None:
        """Return whether every policy leaves a backlog of unfinished jobs at the last arrival.

        This is false if only long jobs, which do their work after the last arrival, raise the load
        above 1. None means unknown.
        """
        if self.is_over and self.early_load is None:
            return None
        return self.is_over and self.early_load is not None and self.early_load > _DUE

    @property
    def exceeds(self) -> bool:
        """Return whether the load is above 1."""
        return self.load is not None and self.load >= _OVER

    @property
    def is_light(self) -> bool:
        """Return whether all jobs together never need more GPUs than the cluster has."""
        return self.peak_share is not None and self.peak_share <= 1.0

    @property
    def is_uneven(self) -> bool:
        """Return whether the largest jobs account for much more than an even share of the work."""
        fair = self.largest_jobs / self.jobs if self.jobs else 1.0
        return self.largest_share >= max(_LARGEST_SHARE, _LARGEST_EXCESS * fair)

    @property
    def steady_window(self) -> Window | None:
        """A window for `count_arrivals` if means depend on where the trace ends, otherwise None.

        The window omits the first and the last tenth of the arrival period. It is None unless the
        load is at least 0.9 and below 1, and nine of ten jobs take at most a tenth of the period.
        At a load of 1 or more, there is no steady state.
        """
        is_near = self.load is not None and _NEAR <= self.load < 1.0
        return self.middle if is_near and not self.is_light else None

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain values; windows that are None are omitted."""
        fields = {**vars(self), "by_type": dict(self.by_type), "middle": self.steady_window}
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in _WINDOWS
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Json]) -> OfferedLoad:
        """Return the load from the fields that `to_dict` returned."""
        known: dict[str, Any] = {**fields}
        for name in _WINDOWS:
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return cls(**known)

    def text(self) -> str:
        """Return the load as tables show it: with two decimals, or `–` if it is undefined."""
        return formatting.times(self.load)

    def in_words(self) -> str:
        """Return the consequences of the load for the results, in one to three sentences."""
        sentences = [self._level()]
        if self.load is not None:
            sentences += [self._types(), self._largest()]
        return " ".join(sentence for sentence in sentences if sentence)

    def _level(self) -> str:
        between, jobs, that = "between the first and the last arrival", "The jobs", ""
        if self.window is not None:
            that = f" that arrive between {arrival_window.said(self.window)}"
            between, jobs = "in that time", f"The jobs{that}"
        if not self.jobs:
            that = that.replace("arrive", "arrives")
            return f"There is no offered load: no job{that} fits the cluster."
        if self.arrival_span_s == 0.0:
            return "There is no offered load: all jobs arrive at one instant."
        if self.load is None:
            only = f"some jobs{that} can only use GPUs that are unavailable"
            return f"The offered load has no bound: {only} {between}."
        if self.is_light:
            assert self.peak_share is not None
            late = ", because much work is done after the last arrival" if self.exceeds else ""
            late = late if self.window is None else f" for the jobs{that}"
            return (
                f"The offered load is {self.text()}{late}. The jobs never ask for more than "
                f"{formatting.percent(self.peak_share)} of the GPUs at once: no job has to wait "
                f"for lack of GPUs, {_ALIKE}{_TYPES if len(self.by_type) > 1 else ''}."
            )
        asked = f"{jobs} ask for {self.text()} times what these GPUs can do {between}"
        end = "the last arrival" if self.window is None else "its end"
        if self.is_over and self.leaves_backlog is False:
            return (
                f"{asked}, but long jobs run on after {end}: until then they ask for "
                f"{formatting.times(self.early_load)} times what the GPUs can do, even if none of "
                "them waits, so the load alone need not leave a backlog."
            )
        if self.is_over:
            left = "is" if self.leaves_backlog else "may be"
            so = ", and means depend on where the trace stops" if self.window is None else ""
            return f"{asked}: a backlog {left} left at {end}{so}."
        share = formatting.percent(self.load)
        said = f"{jobs} ask for {share} of what these GPUs can do {between}"
        if self.load >= _NEAR:
            said += ": this close to the limit, waits are long and vary widely between draws"
        return f"{said}.{suggestion(self.steady_window)}"

    def _types(self) -> str:
        loads = [formatting.times(load) for load in self.by_type.values()]
        if len(set(loads)) < 2:
            return ""
        each = [f"{name} {load}" for name, load in zip(self.by_type, loads, strict=True)]
        return f"With the best division among GPU types, the loads are {formatting.listed(each)}."

    def _largest(self) -> str:
        if not self.is_uneven or self.is_light:
            return ""
        return (
            f"The {self.largest_jobs} largest of {formatting.plural(self.jobs, 'job')} account for "
            f"{formatting.percent(self.largest_share)} of the work, so the results depend on when "
            "these jobs arrive."
        )


def suggestion(window: Window | None) -> str:
    """Return a sentence that suggests which arrivals to count; empty without a window."""
    if window is None:
        return ""
    return (
        f" --count-arrivals {arrival_window.typed(window)} leaves out the first and the last tenth "
        "of the time in which jobs arrive: means then depend less on where the trace starts and "
        "stops."
    )


def steady_window(loads: Sequence[OfferedLoad]) -> Window | None:
    """Return the intersection of the windows of several draws; None if a draw has no window."""
    windows = [load.steady_window for load in loads]
    known = [window for window in windows if window is not None]
    if len(known) < max(len(windows), 1):
        return None
    begin, end = max(window[0] for window in known), min(window[1] for window in known)
    return (begin, end) if begin < end else None


def known(spec: Mapping[str, Any]) -> OfferedLoad | None:
    """Return the load in the contents of a `spec.json`; None if an earlier version wrote it."""
    fields = spec.get("offered_load")
    return None if fields is None else OfferedLoad.from_dict(fields)


def shown(loads: Sequence[OfferedLoad]) -> str:
    """Return the load of one trace, or the mean and range for several traces, for a table.

    Examples
    --------
    >>> import gangline as gl
    >>> traces = [f"synth:philly?jobs=200&seed={seed}&max_gpus=8" for seed in (1, 2)]
    >>> shown([gl.offered_load("pollux-64", trace) for trace in traces])
    '4.32 (2.74 to 5.90)'
    """
    numbers = [load.load for load in loads if load.load is not None]
    if not numbers:
        return "–"
    mean, low, high = (
        formatting.times(x) for x in (sum(numbers) / len(numbers), min(numbers), max(numbers))
    )
    return mean if low == high else f"{mean} ({low} to {high})"


def in_words(loads: Sequence[OfferedLoad]) -> str:
    """Return sentences that explain the load of one trace or of several draws."""
    if not loads:
        return ""
    if all(load == loads[0] for load in loads):
        return loads[0].in_words()
    count = len(loads)
    said = f"The offered load is {shown(loads)} in {count} draws of the trace."
    said += overload(loads, lambda over: "all of them" if over == count else f"{over} of them")
    light = sum(load.is_light for load in loads)
    if light:
        said += (
            f" In {'all' if light == count else light} of them no job has to wait for lack of "
            f"GPUs, {_ALIKE}{_TYPES if len(loads[0].by_type) > 1 else ''}."
        )
    said += suggestion(steady_window(loads))
    if any(load.is_uneven for load in loads):
        low, high = (
            formatting.percent(end(load.largest_share for load in loads)) for end in (min, max)
        )
        said += (
            f" The {loads[0].largest_jobs} largest jobs of a draw account for {low} to {high} of "
            "its work."
        )
    return said


def overload(loads: Sequence[OfferedLoad], where: Callable[[int], str]) -> str:
    """Return sentences on the draws with a load above 1; empty if there are none.

    Parameters
    ----------
    loads : sequence of OfferedLoad
        One load per draw.
    where : callable
        Function that formats a number of draws: "3 of them".
    """
    left = [load.leaves_backlog for load in loads if load.is_over]
    late = left.count(False)
    most = len(left) - late
    said = ""
    if most:
        is_left = "may be" if None in left else "is"
        said += (
            f" In {where(most)} the jobs ask for more than the GPUs can do: there a backlog "
            f"{is_left} left at the last arrival, and means depend on where the trace stops."
        )
    if late:
        as_well = " as well" if most else ""
        said += (
            f" In {where(late)} the load is above 1{as_well} only because long jobs run on after "
            "the last arrival, so the load alone need not leave a backlog there."
        )
    return said


def unfinished(trace: Trace) -> str:
    """Say how many jobs waited or ran at the end of a log; "" if none did.

    Their run times are unknown, so they are left out, and the log seems less busy than it was.
    """
    import numpy as np

    from gangline.trace.jobs.notes import UNFINISHED

    counts = {word: int(trace.metadata.get(name, 0)) for name, word in UNFINISHED.items()}
    total = sum(counts.values())
    if not total:
        return ""
    each = " and ".join(f"{number:,} {word}" for word, number in counts.items() if number)
    verb = "it is" if total == 1 else "they are"
    noun = "job" if total == 1 else "jobs"
    said = (
        f"The log ends with {each} {noun}: {verb} left out, so the load and the waits are too low."
    )
    asked_gpu_s = float(trace.metadata.get("unfinished_gpu_s", 0.0))
    if not asked_gpu_s or not {"duration_s", "time_limit_s"} <= {*trace.columns}:
        return said
    gpus, ran_s = trace.numbers("gpus"), trace.numbers("duration_s")
    limit_s = trace.numbers("time_limit_s")
    has_limit = ~np.isnan(ran_s) & ~np.isnan(limit_s)
    limits_gpu_s = float((gpus * limit_s)[has_limit].sum())
    if not limits_gpu_s:
        return said
    used = float((gpus * ran_s)[has_limit].sum()) / limits_gpu_s
    lost_gpu_s = asked_gpu_s * used
    part = formatting.percent(lost_gpu_s / (lost_gpu_s + float(np.nansum(gpus * ran_s))))
    verb, noun = ("it uses", "its time limit") if total == 1 else ("they use", "their time limits")
    return (
        f"{said} If {verb} {noun} as the other jobs do ({formatting.percent(used)}), about {part} "
        f"of the work is missing ({formatting.count(lost_gpu_s / 3600.0)} GPU-hours)."
    )


def by_partition(trace: Trace) -> str:
    """Say how the work of a log divides among its partitions; "" if it has fewer than two.

    A cluster has no partitions, so the load of the whole cluster can hide that one is overloaded.
    """
    import numpy as np

    if not {"duration_s", "partition"} <= {*trace.columns}:
        return ""
    labels = trace.column("partition").dictionary_encode()
    work_gpu_s = np.nan_to_num(trace.numbers("gpus") * trace.numbers("duration_s"))
    codes = labels.indices.fill_null(len(labels.dictionary)).to_numpy()
    parts = np.bincount(codes, weights=work_gpu_s)[: len(labels.dictionary)]
    order = np.argsort(-parts, kind="stable")[: int(np.count_nonzero(parts))]
    if len(order) < 2:
        return ""
    total_gpu_s = float(work_gpu_s.sum())
    each = [
        f"{labels.dictionary[i]} {formatting.percent(parts[i] / total_gpu_s)}"
        for i in order[:_PARTITIONS].tolist()
    ]
    largest = f"the {len(each)} largest of {len(order):,} have " if len(each) < len(order) else ""
    return (
        "The load of the whole cluster ignores partitions. Their shares of the work: "
        f"{largest}{formatting.listed(each)}. A partition with its own servers is overloaded if "
        "its share of the work, multiplied by the load, is above its share of the GPUs."
    )


def offered_load(
    cluster: ClusterLike,
    trace: TraceLike,
    *,
    window: tuple[float, float] | None = None,
) -> OfferedLoad:
    """Return how much work a trace offers to a cluster, relative to what the cluster's GPUs can do.

    Parameters
    ----------
    cluster, trace : as for `gangline.simulate`
        The cluster, and the jobs that offer work to it.
    window : pair of float, optional
        Two instants in seconds. Only jobs that arrive at or after the first instant and before the
        second count, and only the capacity between the two instants counts. By default, all jobs
        count, from the first to the last arrival.

    Returns
    -------
    OfferedLoad
        The load in total and for each GPU type, and the largest jobs' share of the work.

    Raises
    ------
    TraceError, ClusterError
        If an input is invalid.
    OptionError
        If the window is empty.
    SolverError
        If the LP that divides the jobs among GPU types has no optimum.

    Notes
    -----
    With one GPU type, the load is the sum of GPUs x duration over the jobs, divided by the
    cluster's GPUs x time. With several types, it is the smallest factor by which all capacities
    must be multiplied for the work to fit. It ignores restarts, locality, sharing and GPUs that no
    gang can use. Therefore, a load below 1 does not guarantee that a policy can keep up with the
    arrivals.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 30, 60], "gpus": [2, 2, 1], "duration_s": [60, 60, 24]}
    >>> load = gl.offered_load(lab, pa.table(jobs))
    >>> load.load, load.work_gpu_s, load.capacity_gpu_s
    (2.2, 264.0, 120.0)
    >>> print(load.in_words())  # doctest: +NORMALIZE_WHITESPACE
    The jobs ask for 2.20 times what these GPUs can do between the first and the last arrival: a
    backlog is left at the last arrival, and means depend on where the trace stops.
    """
    from gangline.runs.inputs import as_cluster
    from gangline.trace.read import as_trace

    lab, jobs = as_cluster(cluster), as_trace(trace)
    return load_of(lab, jobs, lab.to_core(), jobs.to_core(lab), window=window)


def load_of(
    cluster: Cluster,
    trace: Trace,
    core_cluster: _core.Cluster,
    core_jobs: _core.Jobs,
    *,
    window: tuple[float, float] | None = None,
) -> OfferedLoad:
    """Return the offered load for a cluster and jobs that are already converted for the core."""
    import numpy as np

    if window is not None and not 0.0 <= window[0] < window[1] < math.inf:
        message = f"window: expected two times with 0 <= from < to, got {window!r}"
        raise OptionError(message, field="window", value=window)
    with np.errstate(all="ignore"):  # numbers out of range give a load of NaN or infinity
        return _measure(cluster, trace, core_cluster, core_jobs, window)


def _measure(
    cluster: Cluster,
    trace: Trace,
    core_cluster: _core.Cluster,
    core_jobs: _core.Jobs,
    window: tuple[float, float] | None,
) -> OfferedLoad:
    import numpy as np

    from gangline import _core

    arrival, gpus = trace.numbers("arrival_s"), trace.numbers("gpus").astype(np.float64)
    seconds = _seconds(cluster, trace, core_cluster, core_jobs)
    fits: Bools = np.asarray(np.isfinite(seconds).any(axis=1))
    in_window = fits & arrival_window.counted(arrival, window)
    begin, end = window or (0.0, 0.0)
    if window is None and fits.any():
        begin, end = float(arrival[fits][0]), float(arrival[fits][-1])
    need = gpus[in_window, None] * seconds[in_window]
    work = need.min(axis=1, initial=np.inf)
    total = float(work.sum())
    largest = np.partition(work, len(work) - _LARGEST)[-_LARGEST:] if len(work) > _LARGEST else work
    capacity = _capacity(cluster, begin, end)
    loads = _core.lp_even_loads(need, work, capacity) if end > begin and len(work) else None
    by_type: dict[str, float] = {}
    if loads is not None:
        by_type = {
            kind.name: float(loads[i])
            for i, kind in enumerate(cluster.gpu_types)
            if capacity[i] > 0.0
        }
    return OfferedLoad(
        load=max(by_type.values(), default=None),
        by_type=by_type,
        arrival_span_s=end - begin,
        work_gpu_s=total,
        capacity_gpu_s=float(capacity.sum()),
        largest_share=float(largest.sum()) / total if total > 0.0 else 0.0,
        largest_jobs=len(largest),
        jobs=len(work),
        left_out=len(fits) - int(fits.sum()),
        early_load=_early_load(
            cluster, gpus[in_window], seconds[in_window], end - arrival[in_window, None], begin, end
        ),
        peak_share=_peak_share(cluster, arrival[fits], gpus[fits], seconds[fits]),
        window=window,
        middle=None if window else _middle(begin, end, seconds[fits].min(axis=1, initial=np.inf)),
    )


def _early_load(
    cluster: Cluster, gpus: F64, seconds: F64, left_s: F64, begin: float, end: float
) -> float | None:
    """Return the load of the work that jobs would do before `end` if each started at its arrival.

    A job that has not waited has used each GPU type for a fraction of the time that it would need
    if it used only this type. These fractions add up to at least 1. Therefore, every schedule
    without a backlog needs at least as much capacity as the most even division of these
    GPU-seconds.
    """
    import numpy as np

    from gangline import _core

    if cluster.sharing is not None or cluster.elastic is not None or not end > begin:
        return None
    seconds = np.where(np.isfinite(seconds), np.minimum(seconds, left_s), np.inf)
    need = gpus[:, None] * seconds
    work = need.min(axis=1, initial=np.inf)
    cut = (seconds == left_s).any(axis=1) & (work > 0.0)
    # For jobs that would end before `end` on only some types, the ratios of `need` to `work` all
    # differ. They are rounded down to a few values, which cannot increase the load.
    need[cut] = work[cut, None] * np.floor(need[cut] / work[cut, None] * _STEPS) / _STEPS
    loads = _core.lp_even_loads(need, work, _capacity(cluster, begin, end, is_drawn=False))
    return None if loads is None else float(loads.max())


def _middle(begin: float, end: float, alone_s: F64) -> Window | None:
    """Return the middle part of the arrival period, if most jobs are shorter than its margins."""
    import numpy as np

    window = arrival_window.middle(begin, end)
    margin_s = arrival_window.MARGIN * (end - begin)
    return window if window and np.quantile(alone_s, _MOST_JOBS) <= margin_s else None


def _seconds(
    cluster: Cluster, trace: Trace, core_cluster: _core.Cluster, core_jobs: _core.Jobs
) -> F64:
    """Return the run time of each job alone on each GPU type; inf where the gang cannot run."""
    import numpy as np

    from gangline.trace.jobs.to_core import GIB, memory_bytes

    rate = core_jobs.base_rates(core_cluster)
    seconds = np.full_like(rate, np.inf)
    np.divide(core_jobs.work()[:, None], rate, out=seconds, where=rate > 0.0)
    allowed, gpus, memory = (
        core_jobs.allowed_types(),
        trace.numbers("gpus"),
        memory_bytes(trace, cluster),
    )
    counts = cluster.gpus_by_type()
    for i, kind in enumerate(cluster.gpu_types):
        barred = ((allowed >> np.uint64(i)) & np.uint64(1) == 0) | (gpus > counts[kind.name])
        if memory is not None and kind.memory_gb is not None:
            barred |= memory > math.floor(kind.memory_gb * GIB + 0.5)
        seconds[barred, i] = np.inf
    return seconds


def _capacity(cluster: Cluster, begin: float, end: float, *, is_drawn: bool = True) -> F64:
    """Return the GPU-seconds of each type between two instants, with or without random failures."""
    import numpy as np

    servers = cluster.server_arrays()
    up = np.full(cluster.servers_total, end - begin)
    server, down_s, up_s = _absences(cluster)
    lost = np.minimum(up_s, end) - np.maximum(down_s, begin)  # absences never overlap
    np.subtract.at(up, server, np.maximum(lost, 0.0))
    drawn = cluster.failures
    if (
        is_drawn
        and drawn is not None
        and drawn.mtbf_hours is not None
        and drawn.mttr_hours is not None
    ):
        up *= drawn.mtbf_hours / (drawn.mtbf_hours + drawn.mttr_hours)
    gpu_s = servers["gpus"] * up
    total = np.bincount(servers["type"], weights=gpu_s, minlength=len(cluster.gpu_types))
    return total.astype(np.float64, copy=False)


def _absences(cluster: Cluster) -> tuple[npt.NDArray[np.int64], F64, F64]:
    """Return the server, the start and the end of every absence that is known before the run."""
    import numpy as np

    rows = np.asarray(cluster.outages(), dtype=np.float64).reshape(-1, 3)
    return rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2]


def _peak_share(cluster: Cluster, arrival: F64, gpus: F64, seconds: F64) -> float | None:
    """Return the largest share of GPUs that are held or down if each job starts at its arrival."""
    import numpy as np

    counts = np.asarray(list(cluster.gpus_by_type().values()))
    exists = counts > 0
    slowest = seconds[:, exists].max(axis=1, initial=0.0)
    if not len(arrival) or not np.isfinite(slowest).all():
        return None
    server, down_s, up_s = _absences(cluster)
    lost = cluster.server_arrays()["gpus"][server].astype(np.float64)
    time = np.concatenate([arrival, down_s, arrival + slowest, up_s])
    change = np.concatenate([gpus, lost, -gpus, -lost])
    # the GPUs that can be free in addition to `gpus - 1` although the gang fits on no type
    in_vain = np.minimum(gpus[:, None] - 1.0, counts[exists]).sum(axis=1) - (gpus - 1.0)
    beside = np.concatenate([in_vain, np.full(len(lost), in_vain.max())])
    beside = np.concatenate([beside, np.zeros(len(beside))])
    order = np.lexsort((change, time))  # at each instant, GPUs are returned before others are taken
    held = np.cumsum(change[order])
    if held.max() <= cluster.gpus_total < (held + beside[order]).max():
        return None
    return float(held.max()) / cluster.gpus_total
