"""Finds the smallest cluster, or the largest load, that meets given targets."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec

from gangline import errors
from gangline._support.statistics import LEAST_SEEDS, Estimate, estimate, range_of
from gangline.errors import GanglineError, OptionError, PolicyError
from gangline.files.places import arrow_name, check_free
from gangline.studies.capacity.axes import Load, Servers
from gangline.studies.capacity.contest import CapacityContest
from gangline.studies.capacity.result import KIND, PLAN, CapacityPlan, Point
from gangline.studies.capacity.search import smallest
from gangline.studies.capacity.targets import parse, quantile_of, value_of
from gangline.studies.sweep.progress import Series

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.runs.arrival_window import Window
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.options import PlanOptions, RuntimeOptions, SharingOptions
    from gangline.runs.spec import RunSpec
    from gangline.studies.capacity.targets import Target
    from gangline.studies.sweep import Sweep
    from gangline.trace.reference import TraceReference

    class PlanKeywords(PlanOptions, total=False):
        """The keyword options of `plan_capacity`."""

        gpu: str | None
        vary: Literal["servers", "load"]
        step: float | None
        most: float | None
        exhaustive: bool
        allow_overload: bool
        seeds: Iterable[int]
        trace_seeds: Iterable[int]
        price_per_hour: float | None
        params: Mapping[str, object] | None
        sharing: SharingOptions | None
        runtime: RuntimeOptions | None
        out: str | PathLike[str] | None
        workers: int | None
        progress: bool


__all__ = ["plan_capacity"]

_PAIRS_MAX = 4  # our own choice: maximum number of pairs of a trace and a size in memory
_FARTHEST = 4  # our own choice: ends of the interval are searched up to this multiple of the answer
_STEP = 0.05  # our own choice: the default step between loads
_HOURS_PER_MONTH = 365.25 * 24.0 / 12.0
# These errors mean that the cluster is too small for a job, which is a valid outcome for a size.
_TOO_SMALL = ("InfeasibleJobError", "StalledError")
_NOT_HERE = ("seed", "on_infeasible", "until_s", "max_events", "segments", "timeline")


@overload
def plan_capacity(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: PolicyLike = "fifo",
    *,
    keep: str | Sequence[str],
    **keywords: Unpack[PlanKeywords],
) -> CapacityPlan: ...


@overload
def plan_capacity(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: list[PolicyLike] | tuple[PolicyLike, ...],
    *,
    keep: str | Sequence[str],
    **keywords: Unpack[PlanKeywords],
) -> CapacityContest: ...


def plan_capacity(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: PolicyLike | Sequence[PolicyLike] = "fifo",
    *,
    keep: str | Sequence[str],
    gpu: str | None = None,
    vary: Literal["servers", "load"] = "servers",
    step: float | None = None,
    most: float | None = None,
    exhaustive: bool = False,
    allow_overload: bool = False,
    seeds: Iterable[int] = (0,),
    trace_seeds: Iterable[int] = (),
    price_per_hour: float | None = None,
    params: Mapping[str, object] | None = None,
    sharing: SharingOptions | None = None,
    runtime: RuntimeOptions | None = None,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = False,
    **options: Unpack[PlanOptions],
) -> CapacityPlan | CapacityContest:
    """Find the smallest number of servers, or the largest load, that meets targets.

    Parameters
    ----------
    cluster, trace, params, sharing, runtime
        As for `gangline.simulate`; the trace must be a file or a generator.
    policy : str, policy or sequence of them
        The policy. If several policies are given, each of them gets a plan, and `params` is keyed
        by policy name.
    keep : str or sequence of str
        Targets such as `"p95_wait < 1h"`, all of which must be met. Their keys are summary keys, or
        quantiles `jct_pNN`, `queue_pNN`, `wait_pNN`, `slowdown_pNN`, `ftf_pNN`. A time without a
        unit is in seconds. A target is met if the mean over the seeds is within its bound.
    gpu : str, optional
        GPU type whose number of servers is varied; optional if the cluster has only one.
    vary : str
        "servers", or "load" to determine how far arrivals can be compressed on the given cluster.
    step : float
        Step between successive loads; default 0.05.
    most : int or float, optional
        The largest number of servers, or the largest load, to try. By default, enough servers for
        every job to have its own, or a load of 20.
    exhaustive : bool
        Whether to try every size up to the largest one that the search reached.
    allow_overload : bool
        Whether an overloaded size, at which the jobs offer more work than the GPUs can do, may be
        the answer. By default, such a size is shown but is never the answer: it meets the targets
        only because the trace ends.
    seeds : iterable of int
        Seeds of the runs.
    trace_seeds : iterable of int
        Seeds with which a `synth:` trace is generated, one trace per seed; five or more seeds give
        confidence intervals.
    price_per_hour : float, optional
        Price of one GPU-hour of the GPU type that is varied; by default, the price in the cluster
        file.
    out : path, optional
        A store, as for `gangline.sweep`, so that an interrupted plan continues where it stopped.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    progress : bool
        Whether to show one progress bar for all runs. Its total grows as the search tries more
        sizes.
    **options
        restart_s, first_start_s, count_arrivals and other options of `gangline.simulate`. If the
        load is varied, the window of arrivals to count is compressed or stretched like the trace.

    Returns
    -------
    CapacityPlan
        The answer, every size that was tried, and whether the curve over these sizes is monotone.
        The answer meets the targets, and the next smaller size misses them or is overloaded.
        Without `exhaustive`, an even smaller size might meet them if the curve is not monotone. For
        a sequence of policies, a `CapacityContest`, which has a plan for each policy.

    Raises
    ------
    OptionError
        If a target or an option is invalid.
    GanglineError, OSError
        As for `gangline.simulate`. If a job can never run on a size, this size misses every target;
        it is not an error.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=8, gpus=4)
    >>> jobs = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=32"
    >>> found = gl.plan_capacity(lab, jobs, "fifo", keep="p95_wait < 1h", workers=1)
    >>> found.answer, found.is_monotone
    (10, True)
    """
    from gangline.runs.inputs import as_cluster, override

    texts = [keep] if isinstance(keep, str) else list(keep)
    if not texts:
        raise OptionError("keep: expected a target such as p95_wait<1h", field="keep")
    targets = [parse(text) for text in texts]
    for name, value in options.items():
        if name in _NOT_HERE:
            raise OptionError(f"{name}: not an option of a plan", field=name, value=value)
    chosen, is_one = _chosen(policy, params)
    lab = override(as_cluster(cluster), {"sharing": sharing, "runtime": runtime})
    question = _Question((lab, trace), options, seeds, trace_seeds)
    axis = _axis(question, gpu, vary, step, most, price_per_hour)
    if out is not None:
        check_free(Path(out) / PLAN, KIND)
    with _folder(out) as store:
        reads_jobs = any(quantile_of(one.key) for one in targets)
        save = "jobs" if reads_jobs or out is not None else "summary"
        each = [_Evaluations(question, one, is_named=not is_one) for one in chosen]
        with Series(progress, "plan") as series:
            question.begin(Path(store), axis, targets, workers, save, series)
            plans = [_answer(runs, exhaustive=exhaustive, is_any=allow_overload) for runs in each]
        made = plans[0] if is_one else CapacityContest(tuple(plans))
        if out is not None:
            every = [pair for runs in each for pair in runs.pairs()]
            question.carry_out("plan", every, is_shown=False)
            made.save(Path(store))
        return made


def _chosen(
    policy: PolicyLike | Sequence[PolicyLike], params: Mapping[str, Any] | None
) -> tuple[list[ChosenPolicy], bool]:
    """Return the policies, and whether a single policy was given."""
    from gangline.files.decode import repeated
    from gangline.policies.choice import resolve_policy

    if isinstance(policy, str) or not isinstance(policy, Iterable):
        return [resolve_policy(policy, params)], True
    given, params = list(policy), params or {}
    names = [one for one in given if isinstance(one, str)]
    if not given:
        raise PolicyError("policy: expected at least one, got none", field="policy")
    for name in params:
        if name not in names:
            known = ", ".join(names) or "none"
            message = f"params: `{name}` is not among the policies that are given by name: {known}"
            raise PolicyError(message, field="params", value=name)
    found = [resolve_policy(one, params.get(one) if one in names else None) for one in given]
    twice = repeated(one.label for one in found)
    if twice is not None:
        raise PolicyError(f"policy: duplicate `{twice}`", field="policy", value=twice)
    return found, False


def _answer(runs: _Evaluations, *, exhaustive: bool, is_any: bool) -> CapacityPlan:
    """Search for the answer for one policy."""
    from gangline.runs.offered_load import unfinished

    question = runs.question
    axis, targets = question.axis, question.targets

    def is_enough(size: int) -> bool:
        point = runs.at(size)
        return point.keeps and (is_any or not point.is_overloaded)

    found = smallest(is_enough, axis.low, axis.high, axis.start, exhaustive=exhaustive)
    ends = _ends(runs, found.size, is_any=is_any)
    return CapacityPlan(
        policy=runs.label,
        vary=axis.name,
        gpu=axis.gpu,
        targets=tuple(targets),
        points=runs.points(),
        answer=None if found.size is None else axis.shown(found.size),
        interval=ends,
        broken_beyond=tuple(axis.shown(size) for size in found.broken_above),
        is_exhaustive=exhaustive,
        seeds=question.replicates,
        seeds_matter=runs.seeds_matter,
        limit=axis.shown(axis.high),
        hardest=axis.shown(axis.low),
        preempts=runs.preempts,
        all_waiting={} if found.size is None else runs.all_waiting(found.size),
        allow_overload=is_any,
        traces=len(question.traces),
        jobs=question.counted,
        largest_share=question.largest_share,
        are_restarts_free=question.are_restarts_free,
        count_arrivals=question.options[0].count_arrivals,
        steady_window=None if found.size is None else question.steady_window(found.size),
        unfinished=unfinished(question.jobs),
    )


def _axis(
    asked: _Question,
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
        return Load(asked.cluster, _STEP if step is None else step, most)
    axis = Servers(asked.cluster, gpu, asked.jobs, most)
    if price is None:
        return axis
    if not 0.0 <= price < math.inf:
        message = f"price_per_hour: expected a number >= 0, got {price!r}"
        raise OptionError(message, field="price_per_hour", value=price)
    kinds = [
        msgspec.structs.replace(kind, price_per_hour=float(price))
        if kind.name == axis.gpu
        else kind
        for kind in asked.cluster.gpu_types
    ]
    asked.cluster = msgspec.structs.replace(asked.cluster, gpu_types=tuple(kinds))
    return Servers(asked.cluster, gpu, asked.jobs, most)


def _folder(out: str | PathLike[str] | None) -> Any:
    from contextlib import nullcontext

    if out is None:
        return tempfile.TemporaryDirectory(prefix="gangline-plan-")
    return nullcontext(Path(out))


def _ends(runs: _Evaluations, answer: int | None, *, is_any: bool) -> tuple[float, float] | None:
    """Return the answers at the favourable and the unfavourable ends of the intervals.

    None if there is no answer, or if there are too few seeds. The unfavourable end is inf if the
    targets are not certain to be met even with four times as many servers, or with the largest
    number. If the load is varied, it is 0 if they are not certain to be met at the smallest load.
    """
    axis, targets = runs.question.axis, runs.question.targets
    if answer is None or runs.question.replicates < LEAST_SEEDS or not runs.seeds_matter:
        return None

    room = _FARTHEST * abs(answer)
    low, high = max(axis.low, -room), min(axis.high, room)

    def kept_by(*, best: bool) -> float | None:
        def keeps(size: int) -> bool:
            point = runs.at(size)
            if not point.values or (point.is_overloaded and not is_any):
                return False
            return all(one.keeps(_end(one, point.values, best=best)) for one in targets)

        found = smallest(keeps, low, high, answer, probe=False).size
        return None if found is None else axis.shown(found)

    best, least = kept_by(best=True), kept_by(best=False)
    assert best is not None, "the means meet the targets at the answer"
    if axis.name == "servers":
        return best, math.inf if least is None else least
    return 0.0 if least is None else least, best


def _end(target: Target, values: Mapping[str, Estimate], *, best: bool) -> float:
    """Return the end of the interval that is most, or least, favourable to the target."""
    found = values[target.key]
    end = found.low if target.is_most is best else found.high
    return found.mean if end is None else end


class _Question:
    """The inputs that all policies of a plan share, and the store of their runs."""

    axis: Servers | Load
    targets: Sequence[Target]

    def __init__(
        self,
        world: tuple[Cluster, TraceLike],
        options: Mapping[str, Any],
        seeds: Iterable[int],
        trace_seeds: Iterable[int],
    ) -> None:
        from gangline.runs.execution import Worlds
        from gangline.runs.inputs import check_trace_seeds, distinct, make_options
        from gangline.trace.read import as_trace, redrawn

        self.cluster, trace = world
        self.jobs = as_trace(trace)
        reference = self.jobs.reference
        if not reference.source:
            message = "trace: expected a file or a `synth:` address; save a table in memory with "
            raise OptionError(f"{message}gangline.write_trace first", field="trace")
        drawn = distinct("seeds", seeds)
        if not drawn:
            raise OptionError("seeds: expected at least one, got none", field="seeds")
        self.options = [make_options({**options, "seed": seed}) for seed in drawn]
        traces: dict[int | None, TraceReference]
        traces = {seed: redrawn(reference, seed) for seed in check_trace_seeds(trace_seeds)}
        self.traces = traces or {None: reference}
        self._worlds = Worlds(_PAIRS_MAX, max(_PAIRS_MAX, len(self.traces)))
        self._worlds.hold(self.jobs)
        self.by_trace = len(self.traces) > 1
        self.replicates = len(self.traces) if self.by_trace else len(drawn)
        self.group = "trace_seed" if self.by_trace else "seed"
        self._loads: dict[int, list[OfferedLoad]] = {}
        self._largest: list[float] = []

    def begin(
        self,
        store: Path,
        axis: Servers | Load,
        targets: Sequence[Target],
        workers: int | None,
        save: str,
        series: Series,
    ) -> None:
        """Store the settings that are the same at every size."""
        self.store, self.axis, self.targets = store, axis, targets
        self._workers, self._save, self._series = workers, save, series

    def loads(self, size: int) -> list[OfferedLoad]:
        """Return the offered load of each trace at a size."""
        from gangline.runs.offered_load import offered_load

        if size not in self._loads:
            each = []
            for reference in self.traces.values():
                cluster, trace = self.axis.world(size, reference)
                jobs = self._worlds.trace(trace)
                each.append(offered_load(cluster, jobs, window=self.window(size)))
            self._loads[size] = each
            self._largest = self._largest or [one.largest_share for one in each]
        return self._loads[size]

    def steady_window(self, size: int) -> Window | None:
        """Suggest a window that is closer to a steady state, on the clock of load 1."""
        from gangline.runs.offered_load import steady_window

        window = steady_window(self.loads(size))
        return None if window is None else self.axis.given(size, window)

    def window(self, size: int) -> Window | None:
        """Return the window in which runs at a size count arrivals; None if all are counted."""
        given = self.options[0].count_arrivals
        return None if given is None else self.axis.window(size, given)

    @property
    def counted(self) -> int:
        """The number of measured jobs in one trace."""
        from gangline.runs.arrival_window import counted

        window = self.options[0].count_arrivals
        return int(counted(self.jobs.numbers("arrival_s"), window).sum())

    @property
    def are_restarts_free(self) -> bool:
        """Return whether a preempted job can continue without delay."""
        return not any(one.restart_s or one.restart_by_model for one in self.options)

    @property
    def largest_share(self) -> float:
        """The share of the work in a trace's ten largest jobs, averaged over the traces."""
        return math.fsum(self._largest) / len(self._largest) if self._largest else 0.0

    def carry_out(
        self, name: str, pairs: list[tuple[dict[str, Any], RunSpec]], *, is_shown: bool
    ) -> Sweep:
        """Carry out the runs that the store lacks, and write a table of all runs in `pairs`."""
        from gangline.studies.sweep.plan import Listed
        from gangline.studies.sweep.run import carry_out_all

        return carry_out_all(
            Listed(name, pairs, self._save),
            self.store,
            workers=self._workers,
            worlds=self._worlds,
            series=self._series if is_shown else None,
        )


class _Evaluations:
    """The runs of one policy at each size that the search requests, and their results."""

    def __init__(self, question: _Question, chosen: ChosenPolicy, *, is_named: bool) -> None:
        self.question = question
        self.label, self._policy = chosen.label, chosen.reference
        self._prefix = f"{chosen.label}, " if is_named else ""
        self._known: dict[int, Point] = {}
        self._runs: dict[int, list[dict[str, Any]]] = {}
        self._raw: dict[int, dict[str, list[float]]] = {}
        self.preempts = False

    def at(self, size: int) -> Point:
        """Return the results of the runs at a size."""
        if size not in self._known:
            self._known[size] = self._evaluate(size)
        return self._known[size]

    def points(self) -> tuple[Point, ...]:
        """Return all sizes that were tried, in ascending order."""
        return tuple(sorted(self._known.values(), key=lambda point: point.size))

    @property
    def seeds_matter(self) -> bool:
        """Return whether seeds generate different traces, or any value differs between seeds."""
        if self.question.by_trace:
            return True
        each = [values for row in self._raw.values() for values in row.values()]
        return any(len(set(values)) > 1 for values in each)

    def pairs(self) -> list[tuple[dict[str, Any], RunSpec]]:
        """Return the keys and the spec of each run at every size tried."""
        return [pair for size in sorted(self._known) for pair in self._pairs(size)]

    def all_waiting(self, size: int) -> dict[str, Estimate]:
        """For each target on the first wait, return the same statistic of the total wait.

        Empty if no job is preempted.
        """
        keys = [one.key for one in self.question.targets if one.key.startswith("queue_")]
        if not self.preempts or not self._runs.get(size):
            return {}
        found = {}
        for key in (key.replace("queue", "wait", 1) for key in keys):
            # quantiles are computed from the jobs, because the summary may lack them
            values = [(run, self._value(size, run, key)) for run in self._runs[size]]
            found[key] = estimate(self._replicates(values), range_of(key))
        return found

    def _pairs(self, size: int) -> list[tuple[dict[str, Any], RunSpec]]:
        """Return the keys and the spec of each run at a size."""
        from gangline.runs.spec import RunSpec, keys_of

        asked = self.question
        pairs = []
        for trace_seed, reference in asked.traces.items():
            cluster, trace = asked.axis.world(size, reference)
            lab = keys_of(cluster)
            for given in asked.options:
                options = msgspec.structs.replace(given, count_arrivals=asked.window(size))
                keys: dict[str, Any] = {"policy": self.label}
                keys[asked.axis.name] = asked.axis.shown(size)
                keys |= {} if trace_seed is None else {"trace_seed": trace_seed}
                keys["seed"] = options.seed
                pairs.append((keys, RunSpec.of(lab, trace, self._policy, options)))
        return pairs

    def _evaluate(self, size: int) -> Point:
        asked = self.question
        axis, targets = asked.axis, asked.targets
        name = f"{self._prefix}{axis.name} {axis.shown(size):g}"
        done = asked.carry_out(name, self._pairs(size), is_shown=True)
        point = Point(
            size=axis.shown(size),
            gpus=axis.gpus(size),
            cost_per_month=_monthly(axis.price_per_hour(size)),
        )
        for run in done.failed:
            if run["error"] not in _TOO_SMALL:
                kind = getattr(errors, run["error"], GanglineError)
                raise kind(f"{name}: {run['message']}")
            return replace(point, why=run["message"])
        self._runs[size] = done.runs
        each = [load.load for load in asked.loads(size)]
        loads = [load for load in each if load is not None]
        if len(loads) == len(each):
            point = replace(point, load=math.fsum(loads) / len(loads), load_max=max(loads))
        raw = {
            target.key: self._replicates(
                [(run, self._value(size, run, target.key)) for run in done.runs]
            )
            for target in targets
        }
        self._raw[size] = raw
        values = {key: estimate(of, range_of(key)) for key, of in raw.items()}
        keeps = all(target.keeps(values[target.key].mean) for target in targets)
        in_seeds = sum(
            all(target.keeps(raw[target.key][i]) for target in targets)
            for i in range(asked.replicates)
        )
        return replace(point, values=values, keeps=keeps, kept_in=in_seeds)

    def _value(self, size: int, run: Mapping[str, Any], key: str) -> float:
        from gangline.runs.store import Store

        store = Store(self.question.store)
        summary: Mapping[str, Any] = store.summary(run["digest"]) or {}
        self.preempts |= summary["preemptions"] > 0
        if quantile_of(key) is not None:
            import pyarrow.parquet as pq

            found = quantile_of(key) or ("", 0.0)
            path = store.place(run["digest"]) / "jobs.parquet"
            columns = ["arrival_s", found[0]]
            table = pq.read_table(arrow_name(path), columns=columns, partitioning=None)
            return value_of(table, key, self.question.window(size))
        if key not in summary:
            message = f"keep: {key}: this run has no `{key}`"
            raise OptionError(message, field="keep", value=key)
        value = summary[key]
        return math.nan if value is None else float(value)

    def _replicates(self, rows: Sequence[tuple[Mapping[str, Any], float]]) -> list[float]:
        """Return one value per trace seed (averaged over run seeds), or else one per run seed."""
        groups: dict[Any, list[float]] = {}
        for run, value in rows:
            groups.setdefault(run[self.question.group], []).append(value)
        return [sum(values) / len(values) for values in groups.values()]


def _monthly(price_per_hour: float | None) -> float | None:
    return None if price_per_hour is None else price_per_hour * _HOURS_PER_MONTH
