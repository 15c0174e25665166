"""Defines the result of a run: a summary, three tables, and the spec that repeats the run."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gangline._support.builtin_values import finite
from gangline._support.safe import safe
from gangline.errors import GanglineError
from gangline.files import json_files
from gangline.runs import result_folder, result_tables
from gangline.runs.plots import Plots

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    import pyarrow as pa

    from gangline import _core
    from gangline.cluster.description import Cluster
    from gangline.policies.protocol import Policy
    from gangline.runs.explain.explanation import Explanation
    from gangline.runs.explain.face import Again
    from gangline.runs.inputs import Progress
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.spec import RunSpec
    from gangline.runs.summary import Facts, RunSummary, SpecDict
    from gangline.trace.jobs.table import Trace

__all__ = ["Result"]

_MEASURED = ("wall_s", "solver_s", "decision_p50_us", "decision_p99_us", "decision_max_us")


class Result:
    """The summary and the tables of one run.

    Attributes
    ----------
    summary : RunSummary
        Averages, percentiles and totals, in seconds unless the key names another unit.
    spec : dict
        Everything that is needed to repeat the run; the run's measured cost is under `measured`.
    again : callable or None
        Repeats the run and records why the given jobs wait, for `explain` and for reports. It is
        None if the result came from another process.
    own : Policy or None
        The policy object that was passed, if any; None for a loaded result.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=8)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=5, seed=1, max_gpus=8), "fifo")
    >>> result.jobs.column_names[:4]
    ['job_id', 'user', 'model', 'gpus']
    """

    def __init__(
        self,
        summary: RunSummary,
        spec: SpecDict,
        *,
        jobs: Callable[[], pa.Table],
        timeline: Callable[[], pa.Table],
        segments: Callable[[], pa.Table] | None,
        trace: Callable[[], Trace] | None = None,
        load: OfferedLoad | None = None,
        again: Again | None = None,
        own: Policy | None = None,
    ) -> None:
        self.summary: RunSummary = summary
        self.spec = spec
        self._jobs = jobs
        self._timeline = timeline
        self._segments = segments
        self._trace = trace
        self._load = load
        self.own = own
        self.again = again

    @classmethod
    def from_run(
        cls,
        output: _core.RunOutput,
        *,
        spec: RunSpec,
        facts: Facts,
        cluster: Cluster,
        trace: Trace,
        load: OfferedLoad | None,
        wall_s: float,
        again: Again,
        own: Policy | None = None,
    ) -> Result:
        """Build the result from a run's columns; the tables are built on access, without copies.

        `facts` contains the facts that are known before the run but are not in its spec. They have
        the same keys as in `Result.spec`.
        """
        report, dropped = output.solver(), dict(output.dropped())
        summary = {**output.summary(), **(report.summary if report else {}), "wall_s": wall_s}
        said: dict[str, Any] = spec.to_dict()
        keys = said.pop("cluster")  # this is large and already in JSON form
        policy = {**said["policy"], "params": spec.policy.params, **facts["policy"]}
        if output.copy_gpus() != "gang":
            policy["copy_gpus"] = output.copy_gpus()
        known = {
            "digest": spec.digest,
            **{key: said[key] for key in ("gangline", "versions", "seed")},
            "policy": policy,
            "trace": {"path": trace.path, **said["trace"], **facts["trace"]},
            "cluster": None,
            **{key: facts[key] for key in ("sharing",) if key in facts},
            "options": said["options"],
            **{key: facts[key] for key in ("notes", "memory_model")},
            **({} if load is None else {"offered_load": load.to_dict()}),
            "log_hash": output.log_hash(),
            "outcome": output.outcome(),
            "counters": dict(output.counters()),
            **({"dropped": dict(Counter(dropped.values()))} if dropped else {}),
            **({} if report is None else {"solver": report.solver}),
            "measured": {key: summary[key] for key in _MEASURED if key in summary},
        }
        types = [gpu.name for gpu in cluster.gpu_types]
        return cls(
            cast("RunSummary", summary),  # a test compares its keys with the type
            # this gives the same values as in a saved result
            cast("SpecDict", {**finite(known), "cluster": keys}),
            jobs=lambda: result_tables.jobs(output.jobs(), trace),
            timeline=lambda: result_tables.timeline(output.timeline(), types),
            segments=(lambda: result_tables.segments(output.segments(), trace))
            if spec.options.get("segments")
            else None,
            trace=lambda: trace,
            load=load,
            again=again,
            own=own,
        )

    @property
    def policy(self) -> str:
        """The label of the policy."""
        return str(self.spec["policy"]["label"])

    @property
    def offered_load(self) -> OfferedLoad | None:
        """The offered load; None if the result does not contain it."""
        from gangline.runs.offered_load import known

        return self._load or known(self.spec)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.spec["seed"])

    @property
    def log_hash(self) -> str:
        """The hash of the event log; equal runs have equal hashes."""
        return str(self.spec["log_hash"])

    @cached_property
    def jobs(self) -> pa.Table:
        """One row for each job, in the order of the trace."""
        return self._jobs()

    @property
    def counted_jobs(self) -> pa.Table:
        """The rows of `jobs` that the summary covers: all, or those within `count_arrivals`."""
        from gangline.runs.arrival_window import counted, of_spec

        window = of_spec(self.spec)
        if window is None:
            return self.jobs
        return self.jobs.filter(counted(self.jobs["arrival_s"].to_numpy(), window))

    @cached_property
    def timeline(self) -> pa.Table:
        """Counts over time: busy GPUs, existing GPUs, running jobs and waiting jobs."""
        return self._timeline()

    @cached_property
    def segments(self) -> pa.Table:
        """One row per server for each stretch of a job at one rate; needs `segments=True`."""
        if self._segments is None:
            raise GanglineError("this run has no segments; run it again with `segments=True`")
        return self._segments()

    @property
    def plot(self) -> Plots:
        """The figures of this run, such as `result.plot.cdf("jct_s")`."""
        return Plots(self)

    @property
    def has_segments(self) -> bool:
        """Return whether the run kept its segments."""
        return self._segments is not None

    def explain(self, job: str | int, *, progress: bool | Progress = False) -> Explanation:
        """Explain why a job waited, which jobs took its GPUs, and how much time it lost.

        The method repeats the run once, with the same result. If the run cannot be repeated, the
        segments still show which GPUs were free, but not the reasons of the policy.

        Parameters
        ----------
        job : str or int
            The `job_id` of the job.
        progress : bool or callable
            As for `gangline.simulate`.

        Returns
        -------
        Explanation
            The explanation as text, HTML and plain values.

        Raises
        ------
        ResultError
            If the run has no such job, or if it cannot be repeated and has no segments.

        Examples
        --------
        >>> import gangline as gl, pyarrow as pa
        >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
        >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [1, 2, 1], "duration_s": [60, 60, 60]}
        >>> why = gl.simulate(lab, pa.table(jobs), "fifo").explain(2)
        >>> why.waits[0].stretches[0].cause
        'behind'
        """
        from gangline.runs.explain.face import explain

        return explain(self, job, self.again, progress=progress)

    @property
    def trace(self) -> Trace:
        """The jobs of the run: kept in memory, read again or generated again.

        Raises
        ------
        TraceError
            If a file is missing or has changed, or if the trace was a table in memory.
        """
        if self._trace is not None:
            return self._trace()
        from gangline.runs.spec import RunSpec
        from gangline.trace.read import read_again

        return read_again(RunSpec.from_dict(self.spec).trace)

    def save(self, folder: str | PathLike[str], *, explain: bool = False) -> Path:
        """Write spec.json, summary.json and the tables; a new folder appears only when complete.

        Parameters
        ----------
        folder : path
            The folder. An earlier result in the folder is replaced, together with its report; other
            files stay. Any other folder with content raises an error.
        explain : bool
            Whether to write the jobs of the trace as well, so that `explain` can repeat the run
            without the trace.

        Raises
        ------
        FileExistsError
            If the folder has content but no earlier result, or if a file of the earlier result has
            changed since it was saved.
        OSError
            If something cannot be written.
        """
        folder = Path(folder)
        from gangline.trace.writers.native import parquet

        files = self._files()
        if explain and self._trace is not None:
            content = parquet(self._trace())
            files[result_folder.TRACE] = lambda path: _write_bytes(path, content)
        result_folder.write(folder, self.spec, files)
        return folder

    def add_to(self, home: Path, name: str, *, durable: bool, has_tables: bool) -> None:
        """Write the result to a new folder of this name in `home`, unless the folder exists."""
        files = self._files(has_tables=has_tables)
        result_folder.add(home, name, self.spec, files, durable=durable)

    def _files(self, *, has_tables: bool = True) -> dict[str, Callable[[Path], None]]:
        files: dict[str, Callable[[Path], None]] = {
            "summary.json": lambda path: json_files.write_json(path, self.summary),
        }
        if not has_tables:
            return files
        files |= {
            "jobs.parquet": lambda path: result_tables.write(self.jobs, path),
            "timeline.parquet": lambda path: result_tables.write(self.timeline, path),
        }
        if self.has_segments:
            files["segments.parquet"] = lambda path: result_tables.write(self.segments, path)
        return files

    def check(self) -> None:
        """Read all tables now.

        Raises
        ------
        ResultError
            If a table of a saved result does not have the form that a run writes.
        """
        _ = self.jobs, self.timeline, self.segments if self.has_segments else None

    def __getstate__(self) -> dict[str, Any]:
        # The functions that build the tables cannot be pickled, so the tables themselves are.
        segments = self.segments if self.has_segments else None
        tables = {"jobs": self.jobs, "timeline": self.timeline, "segments": segments}
        return {"summary": self.summary, "spec": self.spec, "load": self._load, **tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        jobs, timeline, segments = (state[name] for name in ("jobs", "timeline", "segments"))
        self.summary = state["summary"]
        self.spec = state["spec"]
        self._load = state["load"]
        self._jobs = lambda: jobs
        self._timeline = lambda: timeline
        self._segments = None if segments is None else lambda: segments
        self._trace = self.own = self.again = None

    def __repr__(self) -> str:
        s = self.summary
        return safe(
            f"Result({self.policy}: {s.get('finished')} of {s.get('jobs')} jobs, "
            f"mean JCT {s.get('jct_mean_s', float('nan')):,.1f} s, "
            f"makespan {s.get('makespan_s', float('nan')):,.0f} s)"
        )

    def _repr_html_(self) -> str:
        from gangline._support import formatting
        from gangline._support.html import more, table

        every = dict[str, Any](self.summary)
        rows = [["Jobs finished", formatting.count(self.summary["finished"])]]
        rows += [[one.title, one.form(every.get(one.key))] for one in formatting.MEASURES]
        numbers = table(["key", "value"], list(every.items()))
        return table(["", ""], rows, caption=repr(self)) + more("every number", numbers)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
