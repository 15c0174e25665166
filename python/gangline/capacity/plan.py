"""Finds the smallest cluster, or the largest load, that keeps what was asked for."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gangline import errors
from gangline.capacity.axes import Load, Servers
from gangline.capacity.result import CapacityPlan, Point
from gangline.capacity.search import smallest
from gangline.capacity.targets import parse, quantile_of, value_of
from gangline.errors import GanglineError, OptionError
from gangline.statistics import LEAST_SEEDS, Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from gangline.capacity.targets import Target
    from gangline.cluster import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.run_inputs import ClusterLike, TraceLike
    from gangline.run_spec import RunSpec
    from gangline.sweep import Sweep
    from gangline.trace.reference import TraceReference

__all__ = ["plan"]

_PAIRS_MAX = 4  # ours: pairs of a trace and a size in memory at once
_FARTHEST = 4  # ours: times the answer, for the ends of its interval
_STEP = 0.05  # ours: of the load
_HOURS_PER_MONTH = 365.25 * 24.0 / 12.0
# A cluster can be too small for a job: that is an answer, and no mistake.
_TOO_SMALL = ("InfeasibleJobError", "StalledError")
_NOT_HERE = ("seed", "on_infeasible", "until_s", "max_events", "segments", "timeline")


def plan(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: PolicyLike = "fifo",
    *,
    keep: str | Sequence[str],
    gpu: str | None = None,
    vary: Literal["servers", "load"] = "servers",
    step: float | None = None,
    most: float | None = None,
    exhaustive: bool = False,
    seeds: Iterable[int] = (0,),
    trace_seeds: Iterable[int] = (),
    price_per_hour: float | None = None,
    params: Mapping[str, Any] | None = None,
    sharing: Mapping[str, Any] | None = None,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = False,
    **options: Any,
) -> CapacityPlan:
    """Find the fewest servers, or the largest load, that keep targets.

    Parameters
    ----------
    cluster, trace, policy, params, sharing
        As for `gangline.simulate`; the trace is a file or a generator.
    keep : str or sequence of str
        Targets such as `"queue_p95_s <= 3600"`, all to be kept: a key of the summary, or a
        quantile `jct_pNN_s`, `queue_pNN_s`, `wait_pNN_s`, `slowdown_pNN`, `ftf_pNN`. The mean
        over the seeds counts.
    gpu : str, optional
        GPU type whose servers are varied; may be left out where there is one.
    vary : str
        "servers", or "load": how far arrivals can be squeezed on the cluster as it is.
    step : float
        Difference between two loads that are tried; default 0.05.
    most : int or float, optional
        The largest number of servers or load; default: servers for every job, load 20.
    exhaustive : bool
        Look at every size up to the largest that the search looked at.
    seeds : iterable of int
        Seeds of the run.
    trace_seeds : iterable of int
        A `synth:` trace is drawn anew with each; with five or more, numbers have intervals.
    price_per_hour : float, optional
        Of one GPU of the type; default: as the cluster says.
    out : path, optional
        A store as that of `gangline.sweep`: a plan that was stopped goes on where it was.
    workers : int, optional
        Runs at once; default: one per core.
    progress : bool
        Show how far the runs of each size are.
    **options
        restart_s, first_start_s and others of `gangline.simulate`.

    Returns
    -------
    CapacityPlan
        The answer, all sizes that were looked at, and whether they contradict each other. The
        answer keeps the targets and the size before it does not; without `exhaustive` a still
        smaller one may keep them if the curve is not monotone.

    Raises
    ------
    OptionError
        If a target or an option is wrong.
    GanglineError, OSError
        As for `gangline.simulate`. A size on which a job can never run keeps no target; that is no
        error.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=8, gpus=4)
    >>> jobs = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=32"
    >>> found = gl.plan(lab, jobs, "fifo", keep="queue_p95_s <= 3600", workers=1)
    >>> found.answer, found.is_monotone
    (4, True)
    """
    texts = [keep] if isinstance(keep, str) else list(keep)
    if not texts:
        raise OptionError("keep: expected a target such as queue_p95_s<=3600", field="keep")
    targets = [parse(text) for text in texts]
    for name in _NOT_HERE:
        if name in options:
            raise OptionError(f"{name}: not an option of a plan", field=name, value=options[name])
    runs = _Evaluations((cluster, trace, sharing), (policy, params), options, seeds, trace_seeds)
    axis = _axis(runs, gpu, vary, step, most, price_per_hour)
    with _folder(out) as store:
        runs.begin(Path(store), axis, targets, workers, progress=progress)
        found = smallest(
            lambda size: runs.at(size).keeps,
            axis.low,
            axis.high,
            axis.start,
            exhaustive=exhaustive,
        )
        ends = _ends(runs, axis, targets, found.size)
        made = CapacityPlan(
            policy=runs.label,
            vary=axis.name,
            gpu=axis.gpu,
            targets=tuple(targets),
            points=runs.points(),
            answer=None if found.size is None else axis.shown(found.size),
            interval=ends,
            broken_beyond=tuple(axis.shown(size) for size in found.broken_above),
            is_exhaustive=exhaustive,
            seeds=runs.replicates,
            seeds_matter=runs.seeds_matter,
            limit=axis.shown(axis.high),
            hardest=axis.shown(axis.low),
            preempts=runs.preempts,
        )
        if out is not None:
            runs.tabulate()
            made.save(store)
        return made


def _axis(
    runs: _Evaluations,
    gpu: str | None,
    vary: str,
    step: float | None,
    most: float | None,
    price: float | None,
) -> Servers | Load:
    if vary not in ("servers", "load"):
        message = f"vary: expected servers or load, got {vary!r}"
        raise OptionError(message, field="vary", value=vary)
    of_other = {"step": step} if vary == "servers" else {"gpu": gpu, "price_per_hour": price}
    for name, value in of_other.items():
        if value is not None:
            where = "the load is" if vary == "load" else "servers are"
            message = f"{name}: expected nothing where {where} varied, got {value!r}"
            raise OptionError(message, field=name, value=value)
    if vary == "load":
        return Load(runs.cluster, _STEP if step is None else step, most)
    axis = Servers(runs.cluster, gpu, runs.jobs, most)
    if price is None:
        return axis
    if not 0.0 <= price < math.inf:
        message = f"price_per_hour: expected a number >= 0, got {price!r}"
        raise OptionError(message, field="price_per_hour", value=price)
    kinds = [
        msgspec.structs.replace(kind, price_per_hour=float(price))
        if kind.name == axis.gpu
        else kind
        for kind in runs.cluster.gpu_types
    ]
    runs.cluster = msgspec.structs.replace(runs.cluster, gpu_types=tuple(kinds))
    return Servers(runs.cluster, gpu, runs.jobs, most)


def _folder(out: str | PathLike[str] | None) -> Any:
    from contextlib import nullcontext

    if out is None:
        return tempfile.TemporaryDirectory(prefix="gangline-plan-")
    return nullcontext(Path(out))


def _ends(
    runs: _Evaluations, axis: Servers | Load, targets: Sequence[Target], answer: int | None
) -> tuple[float, float] | None:
    """Return the smallest sizes at which the seeds do not deny a target, and grant them all.

    None without an answer or with too few seeds. Where four times the servers, or a quarter of the
    load, leave a doubt, that end is inf or 0.
    """
    if answer is None or runs.replicates < LEAST_SEEDS or not runs.seeds_matter:
        return None

    room = _FARTHEST * abs(answer)
    low, high = max(axis.low, -room), min(axis.high, room)

    def kept_by(*, best: bool) -> float | None:
        def keeps(size: int) -> bool:
            values = runs.at(size).values
            return bool(values) and all(one.keeps(_end(one, values, best=best)) for one in targets)

        found = smallest(keeps, low, high, answer, probe=False).size
        return None if found is None else axis.shown(found)

    best, least = kept_by(best=True), kept_by(best=False)
    assert best is not None, "the mean keeps the targets at the answer"
    if axis.name == "servers":
        return best, math.inf if least is None else least
    return 0.0 if least is None else least, best


def _end(target: Target, values: Mapping[str, Estimate], *, best: bool) -> float:
    """Return the end of the interval that suits the target best, or least."""
    found = values[target.key]
    end = found.low if target.is_most is best else found.high
    return found.mean if end is None else end


class _Evaluations:
    """Runs of each size that is asked for, and what they come to."""

    def __init__(
        self,
        world: tuple[ClusterLike, TraceLike, Mapping[str, Any] | None],
        policy: tuple[PolicyLike, Mapping[str, Any] | None],
        options: Mapping[str, Any],
        seeds: Iterable[int],
        trace_seeds: Iterable[int],
    ) -> None:
        from gangline.execution import Worlds
        from gangline.policies.choice import resolve_policy
        from gangline.run_inputs import (
            as_cluster,
            check_trace_seeds,
            distinct,
            make_options,
            override,
        )
        from gangline.trace.read import as_trace, redrawn

        cluster, trace, sharing = world
        self.cluster: Cluster = override(as_cluster(cluster), sharing)
        self.jobs = as_trace(trace)
        reference = self.jobs.reference
        if not reference.source:
            message = "trace: expected a file or a `synth:` address; save a table in memory with "
            raise OptionError(f"{message}gangline.write_trace first", field="trace")
        chosen = resolve_policy(*policy)
        self.label, self._policy = chosen.label, chosen.reference
        drawn = distinct("seeds", seeds)
        if not drawn:
            raise OptionError("seeds: expected at least one, got none", field="seeds")
        self._options = [make_options({**options, "seed": seed}) for seed in drawn]
        traces: dict[int | None, TraceReference]
        traces = {seed: redrawn(reference, seed) for seed in check_trace_seeds(trace_seeds)}
        self._traces = traces or {None: reference}
        self._worlds = Worlds(_PAIRS_MAX, max(_PAIRS_MAX, len(self._traces)))
        self._worlds.hold(self.jobs)
        by_trace = len(self._traces) > 1
        self.replicates = len(self._traces) if by_trace else len(drawn)
        self._group = "trace_seed" if by_trace else "seed"
        self._known: dict[int, Point] = {}
        self._raw: dict[int, dict[str, list[float]]] = {}
        self.preempts = False

    def begin(
        self,
        store: Path,
        axis: Servers | Load,
        targets: Sequence[Target],
        workers: int | None,
        *,
        progress: bool,
    ) -> None:
        """Take what runs and results need beside the size."""
        self._store, self._axis, self._targets = store, axis, targets
        self._workers, self._progress = workers, progress

    def at(self, size: int) -> Point:
        """Return what the runs of a size come to."""
        if size not in self._known:
            self._known[size] = self._evaluate(size)
        return self._known[size]

    def points(self) -> tuple[Point, ...]:
        """Return all sizes that were looked at, by what is varied."""
        return tuple(sorted(self._known.values(), key=lambda point: point.size))

    @property
    def seeds_matter(self) -> bool:
        """Whether some number differs between seeds."""
        each = [values for row in self._raw.values() for values in row.values()]
        return any(len(set(values)) > 1 for values in each)

    def tabulate(self) -> None:
        """Leave a table of all runs in the store."""
        pairs = [pair for size in sorted(self._known) for pair in self._pairs(size)]
        self._carry_out("plan", pairs, progress=False)

    def _pairs(self, size: int) -> list[tuple[dict[str, Any], RunSpec]]:
        """Return the keys and the spec of each run of a size."""
        from gangline.run_spec import RunSpec, keys_of

        pairs = []
        for trace_seed, reference in self._traces.items():
            cluster, trace = self._axis.world(size, reference)
            lab = keys_of(cluster)
            for options in self._options:
                keys: dict[str, Any] = {self._axis.name: self._axis.shown(size)}
                keys |= {} if trace_seed is None else {"trace_seed": trace_seed}
                keys["seed"] = options.seed
                pairs.append((keys, RunSpec.of(lab, trace, self._policy, options)))
        return pairs

    def _carry_out(
        self, name: str, pairs: list[tuple[dict[str, Any], RunSpec]], *, progress: bool
    ) -> Sweep:
        from gangline.sweep.plan import Listed
        from gangline.sweep.run import carry_out_all

        workers = self._workers
        return carry_out_all(
            Listed(name, pairs),
            self._store,
            workers=workers,
            progress=progress,
            worlds=self._worlds,
        )

    def _evaluate(self, size: int) -> Point:
        name = f"{self._axis.name} {self._axis.shown(size):g}"
        done = self._carry_out(name, self._pairs(size), progress=self._progress)
        point = Point(
            size=self._axis.shown(size),
            gpus=self._axis.gpus(size),
            cost_per_month=_monthly(self._axis.price_per_hour(size)),
        )
        for run in done.failed:
            if run["error"] not in _TOO_SMALL:
                kind = getattr(errors, run["error"], GanglineError)
                raise kind(f"{name}: {run['message']}")
            return replace(point, why=run["message"])
        raw = {
            target.key: self._replicates([(run, self._value(run, target)) for run in done.runs])
            for target in self._targets
        }
        self._raw[size] = raw
        values = {key: estimate(of) for key, of in raw.items()}
        keeps = all(target.keeps(values[target.key].mean) for target in self._targets)
        in_seeds = sum(
            all(target.keeps(raw[target.key][i]) for target in self._targets)
            for i in range(self.replicates)
        )
        return replace(point, values=values, keeps=keeps, kept_in=in_seeds)

    def _value(self, run: Mapping[str, Any], target: Target) -> float:
        from gangline.sweep.store import Store

        store = Store(self._store)
        summary = store.summary(run["digest"]) or {}
        self.preempts |= summary["preemptions"] > 0
        if quantile_of(target.key) is not None:
            import pyarrow.parquet as pq

            found = quantile_of(target.key) or ("", 0.0)
            path = store.place(run["digest"]) / "jobs.parquet"
            return value_of(pq.read_table(path, columns=[found[0]], partitioning=None), target.key)
        if target.key not in summary:
            message = f"keep: {target}: this run has no `{target.key}`"
            raise OptionError(message, field="keep", value=target.key)
        value = summary[target.key]
        return math.nan if value is None else float(value)

    def _replicates(self, rows: Sequence[tuple[Mapping[str, Any], float]]) -> list[float]:
        """Return one value per trace seed, else per seed; seeds of a trace are averaged."""
        groups: dict[Any, list[float]] = {}
        for run, value in rows:
            groups.setdefault(run[self._group], []).append(value)
        return [sum(values) / len(values) for values in groups.values()]


def _monthly(price_per_hour: float | None) -> float | None:
    return None if price_per_hour is None else price_per_hour * _HOURS_PER_MONTH
