"""Computes counterfactuals: the effect that a change to a run would have had on a job.

Each alternative is a run of all jobs, so it also shows how the change affects other jobs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from gangline._support import formatting
from gangline._support.builtin_values import finite
from gangline._support.formatting import duration, plural
from gangline.errors import GanglineError, OptionError
from gangline.runs.explain.face import row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.runs.execution import Run, Worlds
    from gangline.runs.inputs import Progress
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

__all__ = ["Alternative", "Change", "WhatIf", "parse", "what_if"]

_AS_IT_WAS = "as it was"
_CLOCK_S = 1e-9  # the engine counts nanoseconds


class Change(TypedDict, total=False):
    """The change in an alternative: one key, or several keys that apply together.

    Attributes
    ----------
    policy : policy configuration, Policy, or str
        The policy to use instead. The name of a policy stands for its default parameters; the name
        of the policy of the original run stands for the parameters of that run.
    servers : int
        Number of servers to add, or to remove if negative.
    gpu : str
        The GPU type of those servers; needed if the cluster has several types.
    gpus : int
        The GPUs that the job asks for. The job's GPU-hours stay the same, unless the cluster's
        throughput table has a rate for the job's model at that gang size.
    later_s : float
        Delay of the job's submission in seconds; a negative delay makes the submission earlier.
    """

    policy: PolicyLike
    servers: int
    gpu: str
    gpus: int
    later_s: float


@dataclass(frozen=True)
class Alternative:
    """The times of the job in one alternative run.

    Attributes
    ----------
    change : str
        The change in words.
    status : str
        "finished", "unfinished" or "dropped"; empty if the run failed.
    arrival_s, wait_s, run_s, jct_s, finish_s : float
        Times as in the jobs table; NaN for a time that does not exist.
    others : int
        Number of other jobs that finished both in this run and in the original one.
    others_jct_mean_s : float
        Mean JCT of these other jobs in this run.
    others_before_s : float
        Mean JCT of these other jobs in the original run.
    error : str
        Reason why the run failed; empty if the run did not fail.
    """

    change: str
    status: str = ""
    arrival_s: float = math.nan
    wait_s: float = math.nan
    run_s: float = math.nan
    jct_s: float = math.nan
    finish_s: float = math.nan
    others: int = 0
    others_jct_mean_s: float = math.nan
    others_before_s: float = math.nan
    error: str = ""


_TIMES = {"wait": "wait_s", "run time": "run_s", "JCT": "jct_s", "finish": "finish_s"}


@dataclass(frozen=True)
class WhatIf:
    """The comparison of a job's original run with changed runs, from `gangline.what_if`.

    Attributes
    ----------
    job_id : str
    policy : str
        Label of the policy of the original run.
    rows : list of Alternative
        The original run, then one run for each change, in order.
    notes : list of str
        Assumptions behind the alternatives.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 4, 1], "duration_s": [100, 50, 10]}
    >>> found = gl.what_if(gl.simulate(lab, pa.table(jobs), "fifo"), "2", {"policy": "sjf"})
    >>> [row.wait_s for row in found.rows], [row.others_jct_mean_s for row in found.rows]
    ([148.0, 0.0], [124.5, 124.5])
    """

    job_id: str
    policy: str
    rows: list[Alternative]
    notes: list[str]

    def titles(self) -> list[str]:
        """Return the titles of the table."""
        return ["", *_TIMES, "others' mean JCT"]

    def cells(self) -> list[list[str]]:
        """Return the cells of the table: times, with the difference from the original run."""
        return [self._line(row) for row in self.rows]

    def _line(self, row: Alternative) -> list[str]:
        if row.error:
            return [row.change, row.error, *[""] * len(_TIMES)]
        base = self.rows[0]
        times = [(getattr(row, key), getattr(base, key)) for key in _TIMES.values()]
        times.append((row.others_jct_mean_s, row.others_before_s))
        cells = [_with_change(now, before, is_base=row is base) for now, before in times]
        return [row.change, *cells]

    def to_dict(self) -> dict[str, Json]:
        """Return plain values; None for a time that does not exist."""
        data = {"job_id": self.job_id, "policy": self.policy, "notes": self.notes}
        return finite({**data, "rows": [asdict(row) for row in self.rows]})  # type: ignore[no-any-return]

    def title(self) -> str:
        """Return the title of the table."""
        return f"What if? Job {self.job_id} of the run under {self.policy}"

    def __str__(self) -> str:
        lines = [self.titles(), *self.cells()]
        # the text of an error is in a single cell, which must not widen the column
        whole = [
            lines[0],
            *(c for c, row in zip(lines[1:], self.rows, strict=True) if not row.error),
        ]
        widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
        widths[0] = max(len(row.change) for row in self.rows)
        text = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title(), *text, *self.notes])

    def _repr_html_(self) -> str:
        from gangline._support.html import table, text

        notes = "".join(f"<p>{text(note)}</p>" for note in self.notes)
        return table(self.titles(), self.cells(), caption=self.title()) + notes


def _with_change(now: float, before: float, *, is_base: bool) -> str:
    shown = duration(now)
    if is_base or not (math.isfinite(now) and math.isfinite(before)):
        return shown
    by = now - before
    if abs(by) <= _CLOCK_S:
        return f"{shown} (=)"
    return f"{shown} ({'+' if by > 0.0 else ''}{duration(by)})"


def parse(text: str, flag: str = "--what-if") -> Change:
    """Read a change in the form that users type.

    Examples
    --------
    >>> parse("policy=srtf"), parse("servers=+2"), parse("gpus=4,submitted=+1h")
    ({'policy': 'srtf'}, {'servers': 2}, {'gpus': 4, 'later_s': 3600.0})
    >>> parse("servers=V100:-1,submitted=-30min")
    {'servers': -1, 'gpu': 'V100', 'later_s': -1800.0}
    """
    change: Change = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key == "policy" and value:
            change["policy"] = value
        elif key == "servers":
            gpu, colon, number = value.rpartition(":")
            change["servers"] = _whole(number, flag, "a number of servers such as +2 or V100:-1")
            if colon:
                change["gpu"] = gpu
        elif key == "gpus":
            change["gpus"] = _whole(value, flag, "a number of GPUs")
        elif key == "submitted":
            later = formatting.seconds(value.lstrip("+-"))
            if later is None or value[:1] not in ("+", "-"):
                raise _wrong(flag, text, "submitted=+1h or submitted=-30min")
            change["later_s"] = -later if value.startswith("-") else later
        else:
            expected = "policy=NAME, servers=+N, gpus=N or submitted=+TIME"
            raise _wrong(flag, text if equals else part, expected)
    return change


def _whole(text: str, flag: str, expected: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _wrong(flag, text, expected) from None


def _wrong(field: str, value: object, expected: str) -> OptionError:
    return OptionError(f"{field}: expected {expected}, got {value!r}", field=field, value=value)


def what_if(
    result: Result,
    job: str | int,
    *changes: Change,
    workers: int | None = None,
    progress: bool | Progress = False,
) -> WhatIf:
    """Compute what would have happened to a job if the run had been different in some way.

    Each change is a run of all jobs, so the result also shows how the change affects the other
    jobs.

    Parameters
    ----------
    result : Result
        The original run.
    job : str or int
        The `job_id` of the job.
    *changes : mapping
        Each mapping describes one run; its keys are those of `Change`. `policy` is the policy to
        use. `servers` is the number of servers to add, and `gpu` is their GPU type, if the cluster
        has several. `gpus` is the number of GPUs that the job asks for, with the same GPU-hours.
        `later_s` is the number of seconds by which the job is submitted later. A mapping with
        several keys is a single run with all of these changes.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core, or one if the policy is an
        object.
    progress : bool or callable
        As for `gangline.simulate`; with several workers, no progress is shown.

    Returns
    -------
    WhatIf
        Text, HTML and plain values: the wait, run time, JCT and finish of the job and the mean JCT
        of the other jobs, each next to its value in the original run.

    Raises
    ------
    ResultError
        If the run has no such job.
    TraceError
        If the trace is missing or has changed, and the jobs are not saved with the result.
    OptionError, ClusterError, PolicyError
        If a change is invalid. If the run of a change fails, its row contains the error.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [1, 2, 1], "duration_s": [60, 60, 60]}
    >>> result = gl.simulate(lab, pa.table(jobs), "fifo")
    >>> [row.wait_s for row in gl.what_if(result, 2, {"servers": 1}, {"later_s": 30.0}).rows]
    [118.0, 0.0, 88.0]
    """
    from gangline.runs.execution import Run, Worlds, carry_out
    from gangline.runs.executors import check_workers
    from gangline.runs.spec import RunSpec

    if not changes:
        raise _wrong("changes", "none", "at least one change such as {'policy': 'srtf'}")
    row = row_of(result.jobs, str(job))
    job_id = result.jobs["job_id"][row].as_py()
    spec = RunSpec.from_dict(result.spec)
    worlds = Worlds()
    jobs = result.trace
    spec = spec.now(worlds.hold(jobs, spec.trace), result.own)
    place = row_of(jobs.table, job_id)
    runs = [_changed(change, Run(spec, result.own), jobs, place, worlds) for change in changes]
    # an object whose class has no module must run in this process
    is_object = any(run.policy is not None for run in runs)
    at_once = 1 if workers is None and is_object else min(len(runs), check_workers(workers))
    outcomes = carry_out(runs, worlds, workers=at_once, progress=progress, in_order=True)
    before = _Columns(result, row)
    rows = [before.alternative(_AS_IT_WAS, before)]
    for change, outcome in zip(changes, outcomes, strict=True):
        try:
            there = outcome.get()
        except GanglineError as error:
            rows.append(Alternative(in_words(change), error=str(error).splitlines()[0]))
            continue
        found = _Columns(there, row_of(there.jobs, job_id))
        rows.append(found.alternative(in_words(change), before))
    name = str(result.spec["policy"]["name"])
    return WhatIf(job_id, result.policy, rows, _notes(changes, jobs, place, rows, name))


def in_words(change: Change) -> str:
    """Return the change in words.

    Examples
    --------
    >>> in_words({"policy": "srtf", "servers": -1}), in_words({"gpus": 1, "later_s": 3600.0})
    ('policy srtf, 1 server fewer', '1 GPU, submitted 1 h later')
    """
    words = []
    if "policy" in change:
        from gangline.policies.choice import resolve_policy

        words.append(f"policy {resolve_policy(change['policy'], None).label}")
    if "servers" in change:
        number = change["servers"]
        of = f" of {change['gpu']}" if "gpu" in change else ""
        more = "fewer" if number < 0 else "more"
        words.append(f"{plural(abs(number), 'server')}{of} {more}")
    if "gpus" in change:
        words.append(plural(change["gpus"], "GPU"))
    if "later_s" in change:
        later = change["later_s"]
        words.append(f"submitted {duration(abs(later))} {'earlier' if later < 0.0 else 'later'}")
    return ", ".join(words)


def _changed(change: Change, run: Run, trace: Trace, place: int, worlds: Worlds) -> Run:
    """Return the run after a change; `place` is the job's row in the trace."""
    from gangline.policies.choice import resolve_policy
    from gangline.policies.protocol import Policy
    from gangline.runs.spec import keys_of

    unknown = set(change) - set(Change.__annotations__)
    if unknown or not set(change) - {"gpu"}:
        name = min(unknown, default="none")
        message = f"changes: expected one of {', '.join(Change.__annotations__)}, got {name}"
        raise OptionError(message, field=name)
    if "policy" in change and change["policy"] != run.spec.policy.name:
        policy = change["policy"]
        spec = msgspec.structs.replace(run.spec, policy=resolve_policy(policy, None).reference)
        run = run._replace(spec=spec, policy=policy if isinstance(policy, Policy) else None)
    if "servers" in change:
        cluster = _resized(run.spec.build_cluster(), change)
        run = run._replace(spec=msgspec.structs.replace(run.spec, cluster=keys_of(cluster)))
    jobs = _with_job(trace, place, change)
    if jobs is not None:
        spec = msgspec.structs.replace(run.spec, trace=worlds.hold(jobs))
        run = run._replace(spec=spec)
    return run


def _resized(cluster: Cluster, change: Change) -> Cluster:
    from gangline.cluster.resize import resized, type_of

    types = list(dict.fromkeys(block.gpu for block in cluster.servers))
    if "gpu" not in change and len(types) > 1:
        which = f"the GPU type, as the cluster has {', '.join(types)}"
        example = f"servers={types[0]}:{change['servers']:+d}"
        raise _wrong("servers", f"{change['servers']:+d}", f"{which}, such as {example}")
    gpu = type_of(cluster, change.get("gpu"))
    have = sum(block.count for block in cluster.servers if block.gpu == gpu)
    least = 0 if any(block.gpu != gpu for block in cluster.servers) else 1
    if have + change["servers"] < least:
        expected = f"at most {have - least} fewer servers, as the cluster has {have} of {gpu}"
        raise _wrong("servers", change["servers"], expected)
    return resized(cluster, gpu, have + change["servers"])


def _with_job(trace: Trace, place: int, change: Change) -> Trace | None:
    """Return the trace with the changed job; None if the change does not affect the trace."""
    from gangline.trace.jobs.table import Trace

    values: dict[str, float] = {}
    if "gpus" in change:
        gpus = change["gpus"]
        if type(gpus) is not int or gpus < 1:
            raise _wrong("gpus", gpus, "an integer >= 1")
        values["gpus"] = gpus
        if "duration_s" in trace.columns:
            before = trace.numbers("gpus")[place]
            values["duration_s"] = trace.numbers("duration_s")[place] * before / gpus
    if "later_s" in change:
        arrival = trace.numbers("arrival_s")[place]
        if not 0.0 <= arrival + change["later_s"] < math.inf:
            expected = f"at least {-arrival:g}, as the job arrived {arrival:g} s after time 0"
            raise _wrong("later_s", change["later_s"], expected)
        values["arrival_s"] = arrival + change["later_s"]
    if not values:
        return None
    table = trace.table
    for name, value in values.items():
        column = table[name].to_numpy().copy()
        column[place] = value
        at = table.column_names.index(name)
        kind = table.schema.field(name)
        table = table.set_column(at, kind, pa.array(column, kind.type, from_pandas=True))
    return Trace.from_arrow(table)


class _Columns:
    """The columns and totals of a run that the comparison uses."""

    def __init__(self, result: Result, row: int) -> None:
        jobs = result.jobs
        self._row = row
        self._facts = {name: jobs[name][row].as_py() for name in ("status", "arrival_s")}
        self._times = {key: jobs[key][row].as_py() for key in _TIMES.values()}
        jct = jobs["jct_s"].to_numpy()
        self._jct = dict(zip(jobs["job_id"].to_pylist(), jct.tolist(), strict=True))
        del self._jct[jobs["job_id"][row].as_py()]

    def alternative(self, change: str, before: _Columns) -> Alternative:
        """Return the job's times in this run, and mean JCTs of other jobs that finished in both."""
        others = [
            (jct, before._jct[name])
            for name, jct in self._jct.items()
            if math.isfinite(jct) and math.isfinite(before._jct[name])
        ]
        now, then = np.asarray(others, np.float64).reshape(-1, 2).T
        times: dict[str, Any] = {
            key: math.nan if value is None else value for key, value in self._times.items()
        }
        return Alternative(
            change,
            **self._facts,
            **times,
            others=len(others),
            others_jct_mean_s=math.fsum(now.tolist()) / len(now) if len(now) else math.nan,
            others_before_s=math.fsum(then.tolist()) / len(then) if len(then) else math.nan,
        )


def _notes(
    changes: Sequence[Change],
    trace: Trace,
    place: int,
    rows: Sequence[Alternative],
    policy: str,
) -> list[str]:
    """Return notes on the assumptions and limits of the table."""
    notes = []
    if any(change.get("policy") == policy for change in changes):
        notes.append(f"`{policy}` keeps the parameters of the original run.")
    if any("gpus" in change for change in changes):
        notes.append(
            f"With a number of GPUs other than {int(trace.numbers('gpus')[place])}, the job keeps "
            "its GPU-hours, unless a throughput table has its rate."
        )
    fewest, base = min(row.others for row in rows if not row.error), rows[0].others
    if fewest < base:
        notes.append(
            f"Mean JCTs cover jobs that finished in both runs: at least {fewest:,} of {base:,}."
        )
    return notes
