"""Carries runs out: a spec and the trace that it names become a result."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from gangline.errors import GanglineError, InfeasibleJobError, PolicyError, SolverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gangline import _core
    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.policies.protocol import Policy
    from gangline.runs.arrival_window import Window
    from gangline.runs.explain.watched import Watched
    from gangline.runs.inputs import ClusterLike, Progress, TraceLike
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result
    from gangline.runs.spec import RunSpec
    from gangline.trace.jobs.table import Trace
    from gangline.trace.reference import TraceReference

__all__ = ["Run", "Worlds", "is_elastic", "results"]

T = TypeVar("T")
_LOOK_S = 0.1  # how often a run in a process is asked whether it is still wanted


class Run(NamedTuple):
    """A run to be carried out."""

    spec: RunSpec
    policy: PolicyLike | None = None
    """In place of that of the spec: the object of a policy in Python."""
    keys: Any = None
    """What the caller tells it by."""


def results(
    runs: Iterable[Run], worlds: Worlds, *, workers: int = 1, progress: bool | Progress = False
) -> Iterator[tuple[Run, Result]]:
    """Yield each run with its result, in their order.

    Parameters
    ----------
    runs : iterable of Run
        Taken as workers become free.
    worlds : Worlds
        Holds the traces that are in memory.
    workers : int
        Runs at once. Policies of the registry run in threads, those in Python in processes: they
        hold the interpreter, and runs at once would share the state of one object.
    progress : bool or callable
        As for `gangline.simulate`; with several workers none is shown.

    Raises
    ------
    PolicyError
        If a policy in Python cannot be sent to a process.
    """
    from gangline.runs.executors import in_order

    with ExitStack() as stack:
        apart = _Apart(worlds, workers, stack)

        def work(run: Run, report: Progress | None) -> tuple[Run, Result]:
            if report is None:
                return run, worlds.run(run, progress=progress)
            if run.spec.policy.python:
                return run, apart.run(run, report)
            return run, worlds.run(run, progress=report)

        yield from in_order(work, runs, workers)


class _Apart:
    """Carries runs out in processes, which are started for the first."""

    def __init__(self, worlds: Worlds, workers: int, stack: ExitStack) -> None:
        self._worlds = worlds
        self._workers = workers
        self._stack = stack
        self._lock = threading.Lock()
        self._pool: Any = None

    def run(self, run: Run, report: Progress) -> Result:
        from concurrent.futures import wait
        from concurrent.futures.process import BrokenProcessPool

        from gangline.runs.executors import processes

        name = run.spec.policy.name
        try:
            sent = pickle.dumps(run._replace(keys=None))
        except Exception as error:  # noqa: BLE001 - whatever its objects raise
            raise _unsent(name, error) from None
        with self._lock:
            if self._pool is None:
                pool = processes(self._workers, _begin, self._worlds)
                self._pool = self._stack.enter_context(pool)
        try:
            future = self._pool.submit(_run_here, name, sent)
            while not wait([future], _LOOK_S).done:
                report(0.0, 0, 0)  # raises if no more is wanted
            result: Result = future.result()
        except BrokenProcessPool:
            message = (
                f"{name}: its process ended; a program that compares with several workers does so "
                'under `if __name__ == "__main__":`'
            )
            raise PolicyError(message, policy=name) from None
        return result


def _unsent(name: str, error: Exception) -> PolicyError:
    message = (
        f"{name}: cannot be sent to a process ({error}); put its class into a module, with values "
        "that can be pickled, or take one worker"
    )
    return PolicyError(message, policy=name)


_HERE: list[Worlds] = []  # of a process that was started to run policies in Python


def _begin(worlds: Worlds) -> None:
    _HERE.append(worlds)


def _run_here(name: str, sent: bytes) -> Result:
    try:
        run = pickle.loads(sent)  # noqa: S301 - from our own parent
    except Exception as error:  # noqa: BLE001 - its module is not here, or raises anything
        raise _unsent(name, error) from None
    return _HERE[0].run(run)


class Worlds:
    """The traces and clusters of specs in the form of the core, shared by runs and by threads.

    A trace is read once for all clusters, and a pair of both made once for all policies.

    Parameters
    ----------
    most : int, optional
        So many pairs are kept, the last that were used; default: all. Runs on one pair should
        come together.
    traces : int, optional
        So many traces are kept; default: as many as pairs.
    """

    def __init__(self, most: int | None = None, traces: int | None = None) -> None:
        self._most = most, traces
        self._held: dict[bytes, Trace] = {}
        self._traces: _Shared[Trace] = _Shared(most if traces is None else traces)
        self._pairs: _Shared[_World] = _Shared(most)

    def __getstate__(self) -> dict[str, Any]:
        # another process makes its own
        return {"_held": self._held, "_most": self._most}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["_most"])  # type: ignore[misc]
        self._held = state["_held"]

    def hold(self, trace: Trace, reference: TraceReference | None = None) -> TraceReference:
        """Keep a trace that is in memory, and return the reference by which specs name it."""
        reference = reference or trace.reference
        self._held[_key(reference.identity)] = trace
        return reference

    def trace(self, reference: TraceReference) -> Trace:
        """Return a trace, read if it is not in memory."""
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
        params: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Run:
        """Return the run that `gangline.simulate` makes of these arguments; the trace is kept."""
        from gangline.policies.protocol import Policy
        from gangline.runs.inputs import as_cluster
        from gangline.runs.spec import RunSpec
        from gangline.trace.read import as_trace

        lab = as_cluster(cluster)  # a wrong one is refused before a trace is read
        held = self.hold(as_trace(trace))
        spec = RunSpec.make(lab, held, policy, params=params, **options)
        return Run(spec, policy if isinstance(policy, Policy) else None)

    def run(self, run: Run, *, progress: bool | Progress = False) -> Result:
        """Carry out a run; `progress` as for `gangline.simulate`."""
        return self._world(run.spec).watch(run, (), progress)[0]

    def watch(
        self, run: Run, jobs: Sequence[int], *, progress: bool | Progress = False
    ) -> tuple[Result, Watched]:
        """Carry out a run and record why some jobs wait, which are rows of its trace."""
        return self._world(run.spec).watch(run, jobs, progress)

    def check(self, run: Run) -> None:
        """Refuse what `run` would refuse before its first event; costs no more than a start."""
        self._world(run.spec).check(run)

    def _world(self, spec: RunSpec) -> _World:
        key = _key((spec.trace.identity, spec.cluster))
        return self._pairs.get(key, lambda: _World(spec.build_cluster(), self.trace(spec.trace)))


def _key(value: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).digest()


class _Shared(Generic[T]):
    """Values by key, each made once: threads that ask for the same wait for the one that makes it.

    Parameters
    ----------
    most : int, optional
        So many are kept, the last that were asked for; default: all.
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


class _World:
    """A cluster and a trace in the form of the core."""

    def __init__(self, cluster: Cluster, trace: Trace) -> None:
        from gangline.cluster.iteration import inflations
        from gangline.runs.spec import keys_of
        from gangline.trace.jobs.to_core import job_keys, pairs_of

        self.cluster = cluster
        self.keys = keys_of(cluster)
        self.trace = trace
        self._core_cluster = cluster.to_core()
        self._core_jobs = trace.to_core(cluster)
        self._pairs = pairs_of(trace, cluster)
        self._inflations = inflations(cluster, job_keys(trace))
        self._loads: _Shared[OfferedLoad | None] = _Shared(None)

    def _offered_load(self, window: Window | None) -> OfferedLoad | None:
        """Return the load that the jobs offer; None where its program has no optimum."""
        from gangline.runs.offered_load import load_of

        core = self._core_cluster, self._core_jobs
        try:
            return load_of(self.cluster, self.trace, *core, window=window)
        except SolverError:  # rates that differ by many orders of magnitude: no reason not to run
            return None

    def watch(
        self, run: Run, jobs: Sequence[int], progress: bool | Progress
    ) -> tuple[Result, Watched]:
        from gangline import _core
        from gangline.runs.bar import bar
        from gangline.runs.explain.watched import Watched
        from gangline.runs.result import Result

        chosen, options = run.spec.policy.resolve(run.policy), run.spec.build_options()
        arguments = self._arguments(chosen, options)
        arguments[-1]["watch"] = list(jobs)
        begin = time.perf_counter()
        with bar(progress, chosen.label) as report, self._naming_jobs():
            output = _core.simulate(*arguments, progress=report)
        wall_s = time.perf_counter() - begin
        kept = run._replace(spec=run.spec.with_segments())
        window = options.count_arrivals
        result = Result.from_run(
            output,
            wall_s=wall_s,
            cluster=self.cluster,
            trace=self.trace,
            pairs=self._pairs,
            load=self._loads.get(_key(window), lambda: self._offered_load(window)),
            policy=chosen,
            keys=self.keys,
            knowledge=_knowledge(chosen.policy),
            options=options,
            again=lambda jobs, progress: self.watch(kept, jobs, progress),
        )
        return result, Watched.of(output)

    def check(self, run: Run) -> None:
        from gangline import _core

        arguments = self._arguments(run.spec.policy.resolve(run.policy), run.spec.build_options())
        with self._naming_jobs():
            _core.check_start(*arguments)

    def _arguments(
        self, chosen: ChosenPolicy, options: RunOptions
    ) -> tuple[_core.Cluster, _core.Jobs, str | Policy, dict[str, Any], dict[str, Any]]:
        """Return what the core is given."""
        from gangline.cluster.iteration import locality_fits
        from gangline.runs.arrival_window import require_jobs
        from gangline.runs.elastic import check_ranges
        from gangline.trace.jobs.to_core import codes

        if isinstance(chosen.policy, str) and is_elastic(chosen.policy):
            check_ranges(self.trace, self.cluster, chosen.label)
        if options.count_arrivals is not None:
            require_jobs(self.trace.numbers("arrival_s"), options.count_arrivals)
        _, labels = codes(self.trace, "model")
        core_options = options.to_core(self.cluster, labels, self._pairs)
        core_options["inflations"] = self._inflations
        core_options["locality_fits"] = locality_fits(self.cluster, labels)
        if core_options["network"] is not None:
            with self._naming_jobs():
                core_options["network"].check_jobs(self._core_cluster, self._core_jobs)
        params = chosen.params if chosen.own is None else {}
        return self._core_cluster, self._core_jobs, chosen.policy, params, core_options

    @contextmanager
    def _naming_jobs(self) -> Iterator[None]:
        try:
            yield
        except GanglineError as error:
            name_job(error, self.trace)
            raise


def _knowledge(chosen: str | Policy) -> str:
    """Return what the policy may know of the work left: "online" or "remaining"."""
    return _known()[chosen] if isinstance(chosen, str) else chosen.knowledge


@cache
def _known() -> dict[str, str]:
    from gangline import _core

    return {entry["name"]: entry["knowledge"] for entry in _core.registry()}


@cache
def is_elastic(policy: str) -> bool:
    """Whether a policy of the registry changes the GPUs and batches of elastic jobs."""
    from gangline import _core

    return any(e["name"] == policy and e["family"] == "elastic" for e in _core.registry())


def name_job(error: GanglineError, trace: Trace) -> None:
    """Give an error of the core the ids of its jobs; the core knows only their indices."""
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
    words = [f"{i} is `{name}`" for i, name in list(other.items())[:5]]
    is_choosy = isinstance(error, InfeasibleJobError) and "gpu_types" in trace.columns
    types = trace.column("gpu_types")[one].as_py() if is_choosy and one in known else None
    facts_in_words = [f"job {', '.join(words)}"] if words else []
    if types:
        facts_in_words.append(f"job {one} may only use {' or '.join(types)}")
    if facts_in_words:
        error.args = (f"{error} ({'; '.join(facts_in_words)})",)
