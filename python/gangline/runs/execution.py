"""Carries out runs: computes the result from a spec and the trace that it names."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar, Unpack, cast

import msgspec

from gangline.errors import (
    GanglineError,
    InfeasibleJobError,
    OptionError,
    PolicyError,
    ResultError,
    SolverError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gangline import _core
    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.policies.protocol import Policy
    from gangline.runs.arrival_window import Window
    from gangline.runs.bar import Total
    from gangline.runs.executors import Apart
    from gangline.runs.explain.face import Again
    from gangline.runs.explain.watched import Watched
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.options import CheckedOptions, RunOptions
    from gangline.runs.result import Result
    from gangline.runs.spec import RunSpec
    from gangline.runs.store import Store
    from gangline.runs.summary import Facts
    from gangline.trace.jobs.table import Trace
    from gangline.trace.reference import TraceReference

    Arguments: TypeAlias = tuple[
        _core.Cluster, _core.Jobs, str | Policy, dict[str, Any], _core.RunOptions
    ]

__all__ = ["Outcome", "Run", "Worlds", "carry_out", "is_elastic"]

T = TypeVar("T")


class Run(NamedTuple):
    """A run to carry out."""

    spec: RunSpec
    policy: PolicyLike | None = None
    """The policy object of a policy written in Python; it replaces the policy in the spec."""
    keys: object = None
    """The key by which the caller identifies the run."""


class Outcome(NamedTuple):
    """The outcome of a run."""

    run: Run
    result: Result | None = None
    """None if the run failed, or if only the store has its result."""
    error: Exception | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with the text of its traceback as its cause."""
        from gangline.runs.executors import traced

        error = None if self.error is None else traced(self.error)
        return Outcome, (self.run, self.result, error)

    def get(self, load: Callable[[str], Result] | None = None) -> Result:
        """Return the result, loaded by its digest if necessary, or raise the error of the run."""
        if self.error is not None:
            raise self.error
        if self.result is None:
            assert load is not None, "without a store, every outcome has its result"
            return load(self.run.spec.digest)
        return self.result


def carry_out(
    runs: Iterable[Run],
    worlds: Worlds,
    store: Store | None = None,
    *,
    executor: str = "local",
    workers: int = 1,
    address: str | None = None,
    progress: bool | Progress | Total = False,
    in_order: bool = False,
) -> Iterator[Outcome]:
    """Carry out runs and yield their outcomes, in the order of the runs or as they finish.

    Registered policies run in threads, and policies written in Python run in processes. There are
    three reasons: a policy written in Python holds the GIL, concurrent runs would share the state
    of its object, and a policy that ends its process would end all runs. Without a store, a single
    worker runs everything in this process.

    Parameters
    ----------
    runs : iterable of Run
        The runs; each is taken from the iterable when a worker becomes free.
    worlds : Worlds
        The object that keeps the traces in memory.
    store : Store, optional
        A store of results; runs whose results it contains are not repeated. Each worker saves the
        results of its runs in the store.
    executor, address : str
        As for `gangline.sweep`; a Dask cluster needs a store.
    workers : int
        Maximum number of concurrent runs.
    progress : bool or callable
        As for `gangline.simulate`; with several workers, no progress is shown.
    in_order : bool
        Whether to yield in the order of the runs.

    Raises
    ------
    OSError
        If the store cannot be read or written.
    """
    from gangline.runs.executors import Apart, in_dask, in_threads

    if executor == "dask":
        there = partial(_do_there, store)
        yield from in_dask(there, runs, workers, lambda run, e: Outcome(run, error=e), address)
        return

    def work(run: Run, report: Progress | None) -> Outcome:
        if run.spec.policy.python and (report or store):
            return _do_apart(apart, run, store, report)
        return _do(run, worlds, store, report or progress)

    with Apart(_begin, worlds) as apart:
        yield from in_threads(work, runs, workers, in_order=in_order)


def _do(
    run: Run, worlds: Worlds, store: Store | None, progress: bool | Progress | Total
) -> Outcome:
    """Carry out a run in this process and save its result."""
    digest = run.spec.digest
    if store is not None and store.has(digest):  # another process may have added it
        return Outcome(run)
    try:
        result = worlds.run(run, progress=progress)
    except (GanglineError, OSError, MemoryError) as error:
        return Outcome(run, error=error)
    except Exception as error:  # the error of a policy in Python or of another library
        if not run.spec.policy.python:
            raise
        return Outcome(run, error=error)
    if store is not None:
        try:
            store.add(digest, result)
        except (ResultError, MemoryError) as error:
            return Outcome(run, error=error)
    return Outcome(run, result)


def _do_apart(apart: Apart, run: Run, store: Store | None, report: Progress | None) -> Outcome:
    """Carry out a run in the process that belongs to this thread."""
    name = run.spec.policy.name
    try:
        sent = pickle.dumps((store, run._replace(keys=None)))
    except Exception as error:  # noqa: BLE001 - its objects may raise anything
        made = _unsent(name, error)
        made.__cause__ = error
        return Outcome(run, error=made)
    try:
        return apart.do(_do_sent, name, sent, report=report)._replace(run=run)
    except PolicyError as error:
        return Outcome(run, error=error)


def _unsent(name: str, error: Exception) -> PolicyError:
    message = (
        f"{name}: cannot be sent to a process ({type(error).__name__}: {error}); put its class "
        "into a module, with values that can be pickled, or use one worker"
    )
    return PolicyError(message, policy=name, field="workers")


_HERE: list[Worlds] = []  # the worlds in a process that was started for runs
_WORLDS_MAX = 4  # Our own choice: the maximum number of worlds that a Dask worker keeps.


def _begin(worlds: Worlds) -> None:
    _HERE.append(worlds)


def _do_sent(name: str, sent: bytes) -> Outcome:
    try:
        store, run = pickle.loads(sent)  # noqa: S301 - from our own parent
    except Exception as error:  # its module may be missing, or raise anything
        raise _unsent(name, error) from error
    return _do_there(store, run)


def _do_there(store: Store | None, run: Run) -> Outcome:
    """Carry out a run in a process that was started for runs; a store, if any, keeps the result."""
    if not _HERE:
        _HERE.append(Worlds(_WORLDS_MAX))
    other = run.spec.versions_then_and_now()
    if other:
        words = ", ".join(f"{name} {now} instead of {then}" for name, (then, now) in other.items())
        return Outcome(run, error=GanglineError(f"the process of this run has {words}"))
    done = _do(run, _HERE[0], store, progress=False)
    if done.error is not None:
        try:
            pickle.loads(pickle.dumps(done.error))  # noqa: S301 - made here
        except Exception:  # noqa: BLE001 - an error of the user's own may need arguments
            made = RuntimeError(f"{type(done.error).__name__}: {done.error}")
            made.__notes__ = [*getattr(done.error, "__notes__", ())]
            return Outcome(run, error=made.with_traceback(done.error.__traceback__))
    return done if store is None else done._replace(result=None)


class Worlds:
    """The traces and clusters of specs, converted for the core and shared by runs and threads.

    A trace is read once for all clusters, and each pair of trace and cluster is prepared once for
    all policies.

    Parameters
    ----------
    most : int, optional
        Maximum number of pairs to keep (the most recently used ones); by default, all. Runs
        that use the same pair should directly follow each other.
    traces : int, optional
        Maximum number of traces to keep; by default, the same as `most`.
    """

    def __init__(self, most: int | None = None, traces: int | None = None) -> None:
        self._most = most, traces
        self._held: dict[bytes, Trace] = {}
        self._traces: _Shared[Trace] = _Shared(most if traces is None else traces)
        self._pairs: _Shared[World] = _Shared(most)
        self._clusters: _Shared[tuple[Cluster, _core.Cluster]] = _Shared(most)

    def __getstate__(self) -> dict[str, Any]:
        # another process fills its own caches
        return {"_held": self._held, "_most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["_most"])  # type: ignore[misc]
        self._held = state["_held"]

    def hold(self, trace: Trace, reference: TraceReference | None = None) -> TraceReference:
        """Keep a trace that is in memory, and return the reference that specs use for it."""
        reference = reference or trace.reference
        self._held[_key(reference.identity)] = trace
        return reference

    def trace(self, reference: TraceReference) -> Trace:
        """Return a trace; read it if it is not in memory."""
        from gangline.trace.read import read_again

        key = _key(reference.identity)
        held = self._held.get(key)
        return self._traces.get(key, lambda: read_again(reference)) if held is None else held

    def take(
        self,
        cluster: ClusterLike,
        trace: TraceLike,
        policy: PolicyLike,
        *,
        params: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Return the run that arguments of `gangline.simulate` describe, and keep the trace."""
        from gangline.policies.protocol import Policy
        from gangline.runs.inputs import as_cluster
        from gangline.runs.spec import RunSpec
        from gangline.trace.read import as_trace

        lab = as_cluster(cluster)  # a wrong cluster is refused before a trace is read
        held = self.hold(as_trace(trace))
        spec = RunSpec.make(lab, held, policy, params=params, **options)
        return Run(spec, policy if isinstance(policy, Policy) else None)

    def run(self, run: Run, *, progress: bool | Progress | Total = False) -> Result:
        """Carry out a run; `progress` is as for `gangline.simulate`."""
        return self.world(run.spec).carry_out(run, (), progress)[0]

    def watch(
        self, run: Run, jobs: Sequence[int], *, progress: bool | Progress | Total = False
    ) -> tuple[Result, Watched]:
        """Carry out a run and record why the given jobs (rows of its trace) wait."""
        return self.world(run.spec).watch(run, jobs, progress)

    def check(self, run: Run) -> None:
        """Raise the errors that `run` would raise before its first event, without running."""
        self.world(run.spec).check(run)

    def world(self, spec: RunSpec) -> World:
        """Return the cluster and the trace of a spec."""
        lab = _key(spec.cluster)

        def pair() -> World:
            cluster, core = self._clusters.get(lab, lambda: _both(spec.build_cluster()))
            return World(cluster, core, self.trace(spec.trace))

        return self._pairs.get(lab + _key(spec.trace.identity), pair)


def _both(cluster: Cluster) -> tuple[Cluster, _core.Cluster]:
    return cluster, cluster.to_core()


def _key(value: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).digest()


class _Shared(Generic[T]):
    """A cache in which each value is created once, while other threads that need it wait.

    Parameters
    ----------
    most : int, optional
        Maximum number of values to keep (the most recently requested ones); by default, all.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._known: OrderedDict[bytes, tuple[threading.Lock, list[T]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes, make: Callable[[], T]) -> T:
        with self._lock:
            lock, made = self._known.setdefault(key, (threading.Lock(), []))
            self._known.move_to_end(key)
            while self._most is not None and len(self._known) > self._most:
                self._known.popitem(last=False)
        with lock:
            if not made:
                made.append(make())
            return made[0]


class World:
    """A cluster and a trace, converted to the data structures of the core."""

    def __init__(self, cluster: Cluster, core: _core.Cluster, trace: Trace) -> None:
        from gangline.cluster.iteration import inflations, locality_fits
        from gangline.trace.jobs.to_core import codes, job_keys, pairs_of

        self.cluster = cluster
        self.trace = trace
        self._labels = codes(trace, "model")[1]
        self._core_cluster = core
        self._core_jobs = trace.to_core(cluster)
        self._pairs = pairs_of(trace, cluster)
        self._inflations = inflations(cluster, job_keys(trace))
        self._fits = locality_fits(cluster, self._labels)
        self._loads: _Shared[OfferedLoad | None] = _Shared(None)

    def _offered_load(self, window: Window | None) -> OfferedLoad | None:
        """Return the offered load of the jobs; None if the LP that computes it has no optimum."""
        from gangline.runs.offered_load import load_of

        core = self._core_cluster, self._core_jobs
        try:
            return load_of(self.cluster, self.trace, *core, window=window)
        # the LP can fail if rates differ by many orders of magnitude, which must not prevent the
        # run
        except SolverError:
            return None

    def watch(
        self, run: Run, jobs: Sequence[int], progress: bool | Progress | Total
    ) -> tuple[Result, Watched]:
        from gangline.runs.explain.watched import Watched, policy_labels, policy_types

        result, output = self.carry_out(run, jobs, progress)
        watched = Watched.of(output)
        watched.dates.update(self.trace.metadata)
        chosen = run.spec.policy.resolve(run.policy)
        names = [kind.name for kind in self.cluster.gpu_types]
        for row, types in watched.types.items():
            watched.labels[row] = policy_labels(chosen, self.trace, row)
            allowed = policy_types(chosen, self.trace, row)
            if allowed is not None:
                watched.types[row] = [at for at in types if names[at] in allowed]
        return result, watched

    def carry_out(
        self, run: Run, jobs: Sequence[int], progress: bool | Progress | Total
    ) -> tuple[Result, _core.RunOutput]:
        from gangline import _core
        from gangline.runs.bar import bar

        chosen, options = run.spec.policy.resolve(run.policy), run.spec.build_options()
        arguments = self.arguments(chosen, options, jobs)
        begin = time.perf_counter()
        with bar(progress, chosen.label) as report, self.naming_jobs():
            names = self.trace.column("job_id") if chosen.own else None
            output = _core.simulate(*arguments, progress=report, names=names)
        wall_s = time.perf_counter() - begin
        return self.result(run, chosen, output, wall_s, partial(self.again, run)), output

    def result(
        self, run: Run, chosen: ChosenPolicy, output: _core.RunOutput, wall_s: float, again: Again
    ) -> Result:
        """Return the result of a run; `again` repeats the run to record why jobs wait."""
        from gangline.runs.result import Result

        options = run.spec.build_options()
        window = options.count_arrivals
        return Result.from_run(
            output,
            wall_s=wall_s,
            spec=run.spec,
            facts=self._facts(chosen, options),
            cluster=self.cluster,
            trace=self.trace,
            load=self._loads.get(_key(window), lambda: self._offered_load(window)),
            again=again,
            own=chosen.own,
        )

    def again(
        self, run: Run, jobs: Sequence[int], progress: bool | Progress | Total
    ) -> tuple[Result, Watched]:
        """Repeat a run with segments, and record why the given jobs wait."""
        return self.watch(run._replace(spec=run.spec.with_segments()), jobs, progress)

    def _facts(self, chosen: ChosenPolicy, options: CheckedOptions) -> Facts:
        """Return the facts about a run that are known before it starts but are not in the spec."""
        from gangline.cluster.runtime import models_of
        from gangline.runs import estimates

        notes = {
            "xi_clamped": 0 if self._pairs is None else self._pairs.clamped,
            "restart_by_model_without_jobs": len(
                set(options.restart_by_model or {}) - set(self._labels)
            ),
            "runtime_models_without_jobs": len(models_of(self.cluster.runtime) - set(self._labels)),
            "rates_from_another_gang_size": self._estimated_rates,
        }
        label = estimates.label(chosen, options.estimates)
        policy = {"label": label, "knowledge": chosen.knowledge}
        if options.estimates != estimates.EXACT and chosen.reads_durations:
            policy["estimates"] = options.estimates
        noted = {name: count for name, count in notes.items() if count}
        facts = {**self._unchanging, "policy": policy, "notes": noted}
        return cast("Facts", facts)

    @cached_property
    def _unchanging(self) -> dict[str, Any]:
        """Return the facts that are the same in all runs of this cluster and trace."""
        from gangline.runs.options import resolved_sharing

        trace, sharing = self.trace, self.cluster.sharing
        return {
            "trace": {
                "jobs": len(trace),
                "sha256": trace.sha256,
                "metadata": dict(trace.metadata),
                "notes": dict(trace.notes),
            },
            **({} if sharing is None else {"sharing": resolved_sharing(sharing, self._pairs)}),
            "memory_model": "trace" if "memory_gb" in trace.columns else "ignored",
        }

    @cached_property
    def _estimated_rates(self) -> int:
        from gangline.trace.jobs.to_core import estimated_rates

        return estimated_rates(self.trace, self.cluster)

    def check(self, run: Run) -> None:
        from gangline import _core

        arguments = self.arguments(run.spec.policy.resolve(run.policy), run.spec.build_options())
        with self.naming_jobs():
            _core.check_start(*arguments)

    def arguments(
        self, chosen: ChosenPolicy, options: CheckedOptions, watch: Sequence[int] = ()
    ) -> Arguments:
        """Return the arguments for the core."""
        from gangline.runs import estimates
        from gangline.runs.arrival_window import require_jobs
        from gangline.runs.elastic import check_ranges

        if isinstance(chosen.policy, str) and is_elastic(chosen.policy):
            check_ranges(self.trace, self.cluster, chosen.label)
        if options.count_arrivals is not None:
            require_jobs(self.trace.numbers("arrival_s"), options.count_arrivals)
        if chosen.params.get("estimate_error") and options.estimates != estimates.EXACT:
            message = (
                f"estimates={options.estimates!r}: the policy {chosen.label} also has an "
                "`estimate_error`; set only one of the two"
            )
            raise OptionError(message, field="estimates", value=options.estimates)
        core_options = options.to_core(
            self.cluster,
            self._labels,
            self._pairs,
            core=self._core_cluster,
            links=self._links,
            inflations=self._inflations,
            locality_fits=self._fits,
            told=estimates.to_core(options.estimates, options.estimate_default_s, self.trace),
            watch=watch,
        )
        params = chosen.params if chosen.own is None else {}
        return self._core_cluster, self._core_jobs, chosen.policy, params, core_options

    @cached_property
    def _links(self) -> _core.Network | None:
        """Return the network of the cluster, if any, after checking that it covers the jobs."""
        from gangline.cluster import network

        links = network.to_core(self.cluster, self._labels, self._core_cluster)
        if links is not None:
            with self.naming_jobs():
                links.check_jobs(self._core_cluster, self._core_jobs)
        return links

    def naming_jobs(self) -> _NamingJobs:
        """Return a context that adds the ids of jobs to errors of the core."""
        return _NamingJobs(self.trace)


class _NamingJobs:
    """Adds the ids of jobs to errors; a class is cheap to enter at each step of a run."""

    __slots__ = ("_trace",)

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, GanglineError):
            name_job(error, self._trace)


@cache
def is_elastic(policy: str) -> bool:
    """Return whether a registered policy changes the gang and batch sizes of elastic jobs."""
    from gangline import _core

    return any(e["name"] == policy and e["family"] == "elastic" for e in _core.registry())


def name_job(error: GanglineError, trace: Trace) -> None:
    """Add the ids of the jobs to an error of the core, which knows only their indices."""
    facts = vars(error)
    identifiers = trace.column("job_id")
    listed = facts.get("jobs")
    numbers = list(listed) if isinstance(listed, list) else []
    one = facts.get("job")
    numbers = numbers or ([one] if isinstance(one, int) else [])
    known = {i: identifiers[i].as_py() for i in numbers if 0 <= i < len(trace)}
    if isinstance(listed, list):
        facts["job_ids"] = [known[i] for i in numbers if i in known]
    if one in known:
        facts["job_id"] = known[one]
    other = {i: name for i, name in known.items() if name != str(i)}
    message, facts_in_words = str(error), []
    if isinstance(error, InfeasibleJobError) and one in known:
        name = f"job `{other[one]}`" if one in other else f"job {one}"
        message = message.replace(f"job {one}: ", f"{name}: ", 1)
        if "gpu_types" in trace.columns and (types := trace.column("gpu_types")[one].as_py()):
            facts_in_words.append(f"{name} may only use {' or '.join(types)}")
    elif other:
        words = [f"{i} is `{name}`" for i, name in list(other.items())[:5]]
        facts_in_words.append(f"job {', '.join(words)}")
    if facts_in_words:
        message += f" ({'; '.join(facts_in_words)})"
    if message != str(error):
        error.args = (message,)
