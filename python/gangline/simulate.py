"""One run: a cluster, a trace, a policy.

Heavy modules are imported when a run starts, so that the command line stays light.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._safe import safe
from gangline.errors import GanglineError, InfeasibleJobError
from gangline.run_inputs import as_cluster, make_options, override, resolve_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import PathLike

    from gangline import _core
    from gangline.explain.watched import Watched
    from gangline.policies.protocol import Policy
    from gangline.result import Result
    from gangline.run_inputs import ClusterLike, PolicyLike, Progress, TraceLike
    from gangline.run_options import RunOptions
    from gangline.run_spec import RunSpec
    from gangline.trace.jobs.table import Trace


__all__ = ["run", "simulate"]


def simulate(
    cluster: ClusterLike,
    trace: TraceLike,
    policy: PolicyLike = "fifo",
    *,
    params: Mapping[str, Any] | None = None,
    progress: bool | Progress = False,
    **options: Any,
) -> Result:
    """Simulate one policy on one trace and one cluster.

    Parameters
    ----------
    cluster : Cluster, mapping, or str
        A cluster, the keys of its TOML form, a TOML file, a node list or the name of a preset.
    trace : Trace, Arrow table, or str
        Jobs; a path or a `synth:` address is read.
    policy : policy configuration, Policy, or str
        What decides; a name takes its parameters from `params`.
    params : mapping, optional
        Parameters of a policy given by name.
    progress : bool or callable
        True draws a bar on stderr if that is a terminal; a callable gets (simulated seconds, jobs
        done, jobs) at most ten times a second.
    **options
        seed (0), restart_s and first_start_s (seconds without progress; 0), restart_by_model (label
        to seconds; labels that no job has are counted in the notes of the spec),
        checkpoint_interval_s (seconds of progress; default none: a preempted job keeps all),
        on_infeasible ("error" or "drop"), segments (False; True keeps that table),
        timeline ("auto", "change", "off" or a sampling time in seconds), check_invariants (False),
        skip_rounds (True), until_s and max_events (where to stop; default never), sharing (keys
        that override those of the cluster).

    Returns
    -------
    Result
        Summary and tables.

    Raises
    ------
    TraceError, ClusterError, PolicyError, OptionError
        If an input is wrong.
    InfeasibleJobError
        If a job can never run and `on_infeasible` is "error".
    PlanError
        If a policy in Python breaks a rule of the engine.
    StalledError
        If jobs wait and nothing will ever start them.
    SolverError
        If a program of a policy that solves programs has no optimum.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, "synth:philly?jobs=30&seed=1&max_gpus=8", "las")
    >>> result.jobs.num_rows
    30
    """
    prepared = Prepared(cluster, trace, sharing=options.pop("sharing", None))
    return prepared.run(policy, make_options(options), params=params, progress=progress)


def run(
    spec: RunSpec | Mapping[str, Any] | str | PathLike[str],
    *,
    trace: TraceLike | None = None,
    policy: PolicyLike | None = None,
    progress: bool | Progress = False,
) -> Result:
    """Carry out the run that a spec describes.

    Parameters
    ----------
    spec : RunSpec, mapping, or path
        A spec, the content of a `spec.json`, that file, or the folder of a result.
    trace : Trace, Arrow table, or str, optional
        The jobs, where the spec's file is elsewhere or was a table in memory; default: as the spec
        says. It must be the same file or table: its SHA-256 is compared.
    policy : Policy, optional
        The object, where a policy in Python cannot be imported by the spec's `module:Class`.
    progress : bool or callable
        As for `simulate`.

    Returns
    -------
    Result
        Its tables have the same bytes as those of every run of this spec with the same versions;
        what `measured` holds differs.

    Raises
    ------
    TraceError
        If the trace has changed since the spec was written.
    ResultError
        If `spec` holds no spec.
    GanglineError, OSError
        As for `simulate`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> first = gl.simulate(lab, "synth:philly?jobs=30&seed=1&max_gpus=8", "las")
    >>> gl.run(first.spec).log_hash == first.log_hash
    True
    """
    from collections.abc import Mapping

    from gangline.run_spec import RunSpec

    if isinstance(spec, Mapping):
        spec = RunSpec.from_dict(spec)
    elif not isinstance(spec, RunSpec):
        spec = RunSpec.load(spec)
    prepared, chosen = prepare(spec, trace, policy)
    by_name = spec.policy.params if isinstance(chosen, str) else None
    return prepared.run(chosen, spec.build_options(), params=by_name, progress=progress)


def prepare(
    spec: RunSpec, trace: TraceLike | None = None, policy: PolicyLike | None = None
) -> tuple[Prepared, PolicyLike]:
    """Return the world of a spec and its policy; see `run`."""
    from gangline.trace.read import as_trace, check_inputs, read_again

    if trace is None:
        jobs = read_again(spec.trace)
    else:
        jobs = as_trace(trace)
        if spec.trace.options and isinstance(trace, str):
            from gangline.trace.read import read_trace

            jobs = read_trace(trace, format=spec.trace.format or None, **spec.trace.options)
        check_inputs(spec.trace, jobs)
    chosen = spec.policy.build() if policy is None else policy
    return Prepared(spec.build_cluster(), jobs), chosen


def watch_again(
    spec: Mapping[str, Any],
    trace: Callable[[], Trace] | None,
    jobs: Sequence[int],
    progress: bool | Progress,
) -> tuple[Result, Watched]:
    """Repeat the run of a saved result, with its segments, and record why some jobs wait.

    Parameters
    ----------
    spec : mapping
        The content of its `spec.json`.
    trace : callable, optional
        Reads the jobs that the result kept; default: as the spec says.
    jobs : sequence of int
        Rows of the trace.
    progress : bool or callable
        As for `simulate`.
    """
    from gangline.run_spec import RunSpec

    of = RunSpec.from_dict(spec)
    if trace is None:
        prepared, policy = prepare(of)
    else:
        prepared, policy = Prepared(of.build_cluster(), trace()), of.policy.build()
    by_name = of.policy.params if isinstance(policy, str) else None
    options = _with_segments(of.build_options())
    return prepared.watch(policy, options, jobs, params=by_name, progress=progress)


def _with_segments(options: RunOptions) -> RunOptions:
    from msgspec.structs import replace

    return replace(options, segments=True)


class Prepared:
    """A cluster and a trace in the form of the core, shared by several runs.

    Parameters
    ----------
    cluster, trace : as for `simulate`
        What the runs have in common.
    sharing : mapping, optional
        Keys that override the cluster's sharing table.
    """

    def __init__(
        self, cluster: ClusterLike, trace: TraceLike, *, sharing: Mapping[str, Any] | None = None
    ) -> None:
        from gangline.iteration import inflations
        from gangline.trace.jobs.to_core import job_keys, pairs_of
        from gangline.trace.read import as_trace

        self.cluster = override(as_cluster(cluster), sharing)
        self.trace = as_trace(trace)
        self._core_cluster = self.cluster.to_core()
        self._core_jobs = self.trace.to_core(self.cluster)
        self._pairs = pairs_of(self.trace, self.cluster)
        self._inflations = inflations(self.cluster, job_keys(self.trace))

    def run(
        self,
        policy: PolicyLike,
        options: RunOptions,
        *,
        params: Mapping[str, Any] | None = None,
        progress: bool | Progress = False,
    ) -> Result:
        """Run one policy."""
        return self.watch(policy, options, (), params=params, progress=progress)[0]

    def watch(
        self,
        policy: PolicyLike,
        options: RunOptions,
        jobs: Sequence[int],
        *,
        params: Mapping[str, Any] | None = None,
        progress: bool | Progress = False,
    ) -> tuple[Result, Watched]:
        """Run one policy, and record why some jobs wait; the result is the same.

        Parameters
        ----------
        policy, options, params, progress : as for `run`
        jobs : sequence of int
            Rows of the trace.
        """
        from gangline import _core
        from gangline.explain.watched import Watched
        from gangline.result import Result
        from gangline.run_spec import PolicyReference, class_of, name_of

        start = self._start(policy, options, params)
        start.arguments[-1]["watch"] = list(jobs)
        begin = time.perf_counter()
        with bar(progress, start.label) as report, self._naming_jobs():
            output = _core.simulate(*start.arguments, progress=report)
        wall_s = time.perf_counter() - begin
        result = Result.from_run(
            output,
            wall_s=wall_s,
            cluster=self.cluster,
            trace=self.trace,
            pairs=self._pairs,
            policy=start.label,
            reference=PolicyReference(
                name=name_of(start.label), params=start.params, python=class_of(start.policy)
            ),
            knowledge=_knowledge(start.policy),
            options=options,
            again=lambda jobs, progress: self.watch(
                policy, _with_segments(options), jobs, params=params, progress=progress
            ),
        )
        return result, Watched.of(output)

    def check(
        self,
        policy: PolicyLike,
        options: RunOptions,
        *,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuse what `run` would refuse before its first event; costs no more than a start."""
        from gangline import _core

        start = self._start(policy, options, params)
        with self._naming_jobs():
            _core.check_start(*start.arguments)

    def _start(
        self, policy: PolicyLike, options: RunOptions, params: Mapping[str, Any] | None
    ) -> _Start:
        """Return what the core is given."""
        from gangline.elastic_runs import check_ranges
        from gangline.iteration import locality_fits
        from gangline.policies.protocol import Policy
        from gangline.trace.jobs.to_core import codes

        chosen, label, values = resolve_policy(policy, params)
        own = chosen if isinstance(chosen, Policy) else None
        if isinstance(chosen, str) and is_elastic(chosen):
            check_ranges(self.trace, self.cluster, label)
        _, labels = codes(self.trace, "model")
        core_options = options.to_core(self.cluster, labels, self._pairs)
        core_options["inflations"] = self._inflations
        core_options["locality_fits"] = locality_fits(self.cluster, labels)
        if core_options["network"] is not None:
            with self._naming_jobs():
                core_options["network"].check_jobs(self._core_cluster, self._core_jobs)
        arguments = (
            self._core_cluster,
            self._core_jobs,
            chosen,
            values if own is None else {},
            core_options,
        )
        return _Start(chosen, label, values, arguments)

    @contextmanager
    def _naming_jobs(self) -> Iterator[None]:
        try:
            yield
        except GanglineError as error:
            name_job(error, self.trace)
            raise


class _Start(NamedTuple):
    """A policy, its label and parameters, and what the core is given to run it."""

    policy: str | Policy
    label: str
    params: dict[str, Any]
    arguments: tuple[_core.Cluster, _core.Jobs, str | Policy, dict[str, Any], dict[str, Any]]


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


class bar:  # noqa: N801 - used like a function
    """A progress bar on stderr, if that is a terminal; or the caller's own callback."""

    def __init__(self, progress: bool | Progress, label: str) -> None:
        self._given = progress
        self._label = safe(label)
        self._bar: Any = None

    def __enter__(self) -> Progress | None:
        if callable(self._given):
            return self._given
        if not self._given:
            return None
        import sys

        if sys.stderr is None or not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task(self._label, total=None)

        def report(now_s: float, done: int, total: int) -> None:
            days = now_s / 86400.0
            text = f"{self._label}, day {days:.1f}"
            self._bar.update(task, completed=done, total=total, description=text)

        return report

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
