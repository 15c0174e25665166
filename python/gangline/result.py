"""What a run leaves behind: a summary, three tables, and the recipe to repeat it."""

from __future__ import annotations

import json
import math
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline import _tables
from gangline._files import whole
from gangline.errors import GanglineError, ResultError

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    import pyarrow as pa

    from gangline import _core
    from gangline.cluster import Cluster
    from gangline.run_options import RunOptions
    from gangline.trace.table import Trace

__all__ = ["Result", "load_result"]

_FORMAT = 1  # of the folder
_TABLES = ("jobs.parquet", "timeline.parquet", "segments.parquet")
_FILES = frozenset({"spec.json", "summary.json", *_TABLES, "report.html"})
"""What a folder of a result holds that goes with its run; the report is where `report` puts it."""
_MEASURED = ("wall_s", "solver_s", "decision_p50_us", "decision_p99_us", "decision_max_us")


class Result:
    """Summary and tables of one run.

    Attributes
    ----------
    summary : dict
        Averages, percentiles and totals; seconds unless the name says otherwise.
    spec : dict
        Everything needed to repeat the run, and under `measured` what it cost.

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
        summary: dict[str, Any],
        spec: dict[str, Any],
        *,
        jobs: Callable[[], pa.Table],
        timeline: Callable[[], pa.Table],
        segments: Callable[[], pa.Table] | None,
    ) -> None:
        self.summary = summary
        self.spec = spec
        self._jobs = jobs
        self._timeline = timeline
        self._segments = segments

    @classmethod
    def from_run(
        cls,
        output: _core.RunOutput,
        *,
        cluster: Cluster,
        trace: Trace,
        policy: str,
        params: dict[str, Any],
        knowledge: str,
        options: RunOptions,
        wall_s: float,
    ) -> Result:
        """Wrap the columns of a run; tables are built when asked for, without copies."""
        report = output.solver()
        summary = {**output.summary(), **(report.summary if report else {}), "wall_s": wall_s}
        spec = _spec(cluster, trace, policy, params, options)
        spec["policy"]["knowledge"] = knowledge
        spec["log_hash"] = output.log_hash()
        spec["outcome"] = output.outcome()
        spec["counters"] = dict(output.counters())
        if report is not None:
            spec["solver"] = report.solver
        spec["measured"] = {key: summary[key] for key in _MEASURED if key in summary}
        types = [gpu.name for gpu in cluster.gpu_types]
        return cls(
            summary,
            finite(spec),  # as a saved one is read back
            jobs=lambda: _tables.jobs(output.jobs(), trace),
            timeline=lambda: _tables.timeline(output.timeline(), types),
            segments=(lambda: _tables.segments(output.segments(), trace))
            if options.segments
            else None,
        )

    @property
    def policy(self) -> str:
        """Label of the policy."""
        return str(self.spec["policy"]["label"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.spec["seed"])

    @property
    def log_hash(self) -> str:
        """Hash of the event log; equal runs have equal hashes."""
        return str(self.spec["log_hash"])

    @cached_property
    def jobs(self) -> pa.Table:
        """One row per job, in the order of the trace."""
        return self._jobs()

    @cached_property
    def timeline(self) -> pa.Table:
        """Counts over time: GPUs busy and there, jobs running and waiting."""
        return self._timeline()

    @cached_property
    def segments(self) -> pa.Table:
        """One row per stretch of a job at one rate, and per server; needs `segments=True`."""
        if self._segments is None:
            raise GanglineError("this run kept no segments; run it again with `segments=True`")
        return self._segments()

    @property
    def has_segments(self) -> bool:
        """Whether the run kept its segments."""
        return self._segments is not None

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write spec.json, summary.json and the tables; the folder appears whole or not at all.

        Parameters
        ----------
        folder : path
            An earlier result there is replaced, with a report beside it; other files that were put
            there stay. Any other folder with content is an error.

        Raises
        ------
        FileExistsError
            If the folder holds something else.
        """
        folder = Path(folder)
        if folder.is_symlink():
            folder = folder.resolve()  # the link stays; what it points to is replaced
        replaces = folder.exists()
        if replaces and not (folder / "spec.json").is_file() and any(folder.iterdir()):
            raise FileExistsError(
                17, "holds something that is not a result; choose another", str(folder)
            )
        old = folder.with_name(f".{folder.name}.old")
        with whole(folder) as part:
            part.mkdir()
            write_json(part / "spec.json", {"format": _FORMAT, **self.spec})
            write_json(part / "summary.json", self.summary)
            _tables.write(self.jobs, part / "jobs.parquet")
            _tables.write(self.timeline, part / "timeline.parquet")
            if self.has_segments:
                _tables.write(self.segments, part / "segments.parquet")
            if replaces:
                _keep_others(folder, part)
                shutil.rmtree(old, ignore_errors=True)
                folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
        return folder

    def __getstate__(self) -> dict[str, Any]:
        # What builds the tables stays in this process: the tables themselves go along.
        segments = self.segments if self.has_segments else None
        tables = {"jobs": self.jobs, "timeline": self.timeline, "segments": segments}
        return {"summary": self.summary, "spec": self.spec, **tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        jobs, timeline, segments = (state[name] for name in ("jobs", "timeline", "segments"))
        self.summary = state["summary"]
        self.spec = state["spec"]
        self._jobs = lambda: jobs
        self._timeline = lambda: timeline
        self._segments = None if segments is None else lambda: segments

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"Result({self.policy}: {s.get('finished')} of {s.get('jobs')} jobs, "
            f"mean JCT {s.get('jct_mean_s', float('nan')):,.1f} s, "
            f"makespan {s.get('makespan_s', float('nan')):,.0f} s)"
        )

    def _repr_html_(self) -> str:
        from gangline import _words
        from gangline._html import more, table

        rows = [["Jobs finished", self.summary.get("finished")]]
        rows += [[title, form(self.summary.get(key))] for key, title, _, form, _ in _words.MEASURES]
        every = table(["key", "value"], list(self.summary.items()))
        return table(["", ""], rows, caption=repr(self)) + more("every number", every)


def _keep_others(folder: Path, part: Path) -> None:
    """Take along what others put into the folder of a result that is replaced."""
    for path in folder.iterdir():
        if path.name in _FILES:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, part / path.name, symlinks=True)
        else:
            shutil.copy2(path, part / path.name, follow_symlinks=False)


def load_result(folder: str | PathLike[str]) -> Result:
    """Read a folder that `Result.save` wrote; tables are read when asked for.

    Raises
    ------
    OSError
        If the folder is not there.
    ResultError
        If it is not a whole result. A table that cannot be read raises it when it is asked for.
    """
    folder = Path(folder)
    spec, summary = (_read_json(folder, name) for name in ("spec.json", "summary.json"))
    if spec.pop("format", None) != _FORMAT:
        message = f"{folder}: written by another version; run it again"
        raise ResultError(message, path=str(folder))
    try:
        msgspec.convert(spec, _Spec)
    except msgspec.ValidationError as error:
        message = f"{folder / 'spec.json'}: not the spec of a result: {error}"
        raise ResultError(message, path=str(folder)) from None

    def reader(name: str) -> Callable[[], pa.Table]:
        return lambda: _read_table(folder / name)

    # JSON has no number for the mean of nothing; of the keys only these have none
    known = {key: math.nan if value is None else value for key, value in summary.items()}
    return Result(
        known,
        spec,
        jobs=reader("jobs.parquet"),
        timeline=reader("timeline.parquet"),
        segments=reader("segments.parquet") if (folder / "segments.parquet").is_file() else None,
    )


class _Policy(msgspec.Struct):
    label: str
    name: str
    params: dict[str, Any]


class _Trace(msgspec.Struct):
    path: str
    jobs: int
    sha256: str
    metadata: dict[str, str]
    notes: dict[str, int]


class _Spec(msgspec.Struct):
    """What readers of a saved result rely on."""

    gangline: str
    seed: int
    policy: _Policy
    trace: _Trace
    cluster: dict[str, Any]
    options: dict[str, Any]


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not folder.exists():
            raise
        message = f"{folder}: not a result: it holds no {name}"
        raise ResultError(message, path=str(folder)) from None
    except ValueError as error:
        message = f"{folder / name}: expected JSON: {error}"
        raise ResultError(message, path=str(folder)) from None
    if not isinstance(data, dict):
        raise ResultError(f"{folder / name}: expected a JSON object", path=str(folder))
    return data


def _read_table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)  # text in a damaged page need not be UTF-8
        return table
    except FileNotFoundError:
        message = f"{path.parent}: not a whole result: it holds no {path.name}; run it again"
        raise ResultError(message, path=str(path)) from None
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are no text
        if isinstance(error, PermissionError):
            raise
        reason = str(error).splitlines()[0]
        message = f"{path}: damaged: {reason}; run it again"
        raise ResultError(message, path=str(path)) from None


def write_json(path: Path, data: object) -> None:
    """Write JSON that is equal for equal data; what is not finite becomes null."""
    text = json.dumps(finite(data), indent=1, sort_keys=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """Return the value with NaN and infinities replaced by None, which JSON can hold."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value


def _spec(
    cluster: Cluster, trace: Trace, policy: str, params: dict[str, Any], options: RunOptions
) -> dict[str, Any]:
    from gangline import _core
    from gangline.run_options import clamped
    from gangline.trace.to_core import codes, estimated_rates

    given = msgspec.to_builtins(options)
    given.pop("seed", None)
    notes = {}
    if clamped(cluster.sharing):
        notes["xi_clamped"] = clamped(cluster.sharing)
    unused = set(options.restart_by_model or {}) - set(codes(trace, "model")[1])
    if unused:
        notes["restart_by_model_without_jobs"] = len(unused)
    if estimated := estimated_rates(trace, cluster):
        notes["rates_from_another_gang_size"] = estimated
    return {
        "gangline": _core.__version__,
        "seed": options.seed,
        "policy": {"name": policy.partition("(")[0], "label": policy, "params": params},
        "trace": {
            "path": trace.path,
            "jobs": len(trace),
            "sha256": trace.sha256,
            "metadata": dict(trace.metadata),
            "notes": dict(trace.notes),
        },
        "cluster": cluster.to_dict(),
        "options": given,
        "notes": notes,
        "memory_model": "trace" if "memory_gb" in trace.columns else "ignored",
    }
