"""Builds the explanation of a job from a result and the name of the job."""

from __future__ import annotations

import difflib
import math
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gangline.errors import GanglineError, PolicyError, ResultError
from gangline.runs.explain.explanation import Explanation
from gangline.runs.explain.facts import Passing, RunPart, WaitPart
from gangline.runs.explain.free import Free, arrivals, free_of_segments, gpus_of
from gangline.runs.explain.life import Segments
from gangline.runs.explain.reasons import OF_TABLES
from gangline.runs.explain.rows import Rows
from gangline.runs.explain.stretches import Down, stretch_of, stretches
from gangline.runs.spec import cluster_of
from gangline.trace.jobs.dates import date_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster.description import Cluster
    from gangline.runs.explain.life import Run, Wait
    from gangline.runs.explain.watched import Watched
    from gangline.runs.inputs import Progress
    from gangline.runs.summary import SpecDict

    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]
    Records = npt.NDArray[np.void]

__all__ = ["Again", "Tables", "explain", "explain_rows", "row_of"]

_PASSING = np.dtype([("job", "i8"), ("time_s", "f8"), ("gpus", "i8"), ("outranks", "?")])
_LOST = ("overhead_s", "comm_s", "share_s", "preemptions", "migrations")


class Tables(Protocol):
    """The parts of a result that an explanation needs."""

    spec: SpecDict

    @property
    def jobs(self) -> pa.Table:
        """The jobs table."""

    @property
    def timeline(self) -> pa.Table:
        """The timeline table."""

    @property
    def segments(self) -> pa.Table:
        """The segments table."""

    @property
    def has_segments(self) -> bool:
        """Return whether the segments table exists."""

    @property
    def policy(self) -> str:
        """The label of the policy."""

    @property
    def log_hash(self) -> str:
        """The hash of the event log."""


class Again(Protocol):
    """Repeats a run with segments, and records why the given jobs wait."""

    def __call__(
        self,
        jobs: Sequence[int],
        progress: bool | Progress,
        /,
    ) -> tuple[Tables, Watched]:
        """Return the result and the records of the given jobs (rows of the trace)."""


def explain(
    result: Tables, job: str | int, again: Again | None, *, progress: bool | Progress = False
) -> Explanation:
    """Explain why a job waited; see `Result.explain`."""
    row = row_of(result.jobs, str(job))
    facts = _facts(result, row)
    if facts["status"] == "dropped":
        return Explanation(**facts, never=_why_never(row, again, progress))
    tables, watched, note = _repeated(result, row, again, progress)
    return _Story(tables, cluster_of(result.spec), row, watched).tell(facts, note)


def explain_rows(
    again: Again, log_hash: str, rows: Sequence[int], *, progress: bool | Progress = False
) -> list[Explanation] | None:
    """Explain why some jobs of a run waited, by repeating the run once.

    Parameters
    ----------
    again : Again
        Repeats the run.
    log_hash : str
        The hash of the run.
    rows : sequence of int
        Rows in the jobs table; none of them may be a dropped job.
    progress : bool or callable
        As for `gangline.simulate`.

    Returns
    -------
    list of Explanation or None
        The explanations, or None if the run cannot be repeated or if the repeated run has a
        different result.
    """
    try:
        tables, watched = again(rows, progress)
    except (GanglineError, OSError):
        return None
    if tables.log_hash != log_hash:
        return None
    cluster = cluster_of(tables.spec)
    return [_Story(tables, cluster, row, watched).tell(_facts(tables, row), "") for row in rows]


def _why_never(row: int, again: Again | None, progress: bool | Progress) -> str:
    """Return why a dropped job can never run; empty if the run cannot be repeated."""
    if again is None:
        return ""
    try:
        return again([row], progress)[1].why_never(row)
    except (GanglineError, OSError):
        return ""


def _facts(result: Tables, row: int) -> dict[str, Any]:
    """Return the facts about a job that the tables contain."""
    facts = {name: result.jobs[name][row].as_py() for name in result.jobs.column_names}
    return {
        "job_id": facts["job_id"],
        "policy": result.spec["policy"]["name"],
        "gpus": facts["gpus"],
        "gpus_min": facts["gpus"],
        "status": facts["status"],
        "arrival_s": float(arrivals(result.jobs.slice(row, 1))[0]),
        "finish_s": math.nan if facts["finish_s"] is None else facts["finish_s"],
        "lost": {name: facts[name] for name in _LOST},
        "placement": str(result.spec["policy"]["params"].get("placement", "")),
        "rule": _rule(result.spec["policy"]),
    }


def _repeated(
    result: Tables,
    row: int,
    again: Again | None,
    progress: bool | Progress,
) -> tuple[Tables, Watched | None, str]:
    """Repeat the run; return its tables and records, or the old tables and why it failed."""
    reason = "this result came from another process: save and load it"
    if again is not None:
        try:
            tables, watched = again([row], progress)
        except (GanglineError, OSError) as error:
            if isinstance(error, PolicyError) and getattr(error, "field", None) == "why":
                raise  # the error comes from the `why` of the policy
            reason = str(error).splitlines()[0]
        else:
            if tables.log_hash == result.log_hash:
                return tables, watched, ""
            reason = (
                f"its result differs from that of gangline {result.spec['gangline']}, or its "
                "policy is not the same every time"
            )
    if not result.has_segments:
        raise ResultError(
            f"the run cannot be repeated: {reason}. It has no segments either; run it again with "
            "--explain (`segments=True`, `save(explain=True)`)"
        )
    return result, None, f"the run could not be repeated: {reason}"


def _rule(policy: Mapping[str, Any]) -> str:
    """Return the summary of a built-in policy, and the estimates that the policy got."""
    from gangline.policies.registry import registry
    from gangline.runs.estimates import given_to

    made = None if policy.get("python") else registry.get(policy["name"])
    does = ((made and made.__doc__) or "").split("\n")[0].rstrip(".")
    estimates = given_to(policy)
    return f"{does}. It read estimates of durations: {estimates}" if does and estimates else does


def row_of(jobs: pa.Table, job: str) -> int:
    """Return the row of the job with this id, or raise a ResultError that names similar ids."""
    import pyarrow.compute as pc

    try:
        row = pc.index(jobs["job_id"], job).as_py()
    except UnicodeEncodeError:  # an unpaired surrogate, which no id contains
        row = -1
    if row < 0:
        names = jobs["job_id"].to_pylist()
        near = difflib.get_close_matches(job, names[:100_000], n=3)
        hint = f"; similar: {', '.join(near)}" if near else f"; the first is `{names[0]}`"
        raise ResultError(f"no job `{job}` among the {len(names):,} of this run{hint}", key="job")
    return int(row)


class _Story:
    """Collects everything that the explanation of a job contains."""

    def __init__(self, tables: Tables, cluster: Cluster, row: int, watched: Watched | None) -> None:
        self._tables = tables
        self._cluster = cluster
        self._row = row
        self._ids = tables.jobs["job_id"]
        self._gpus = tables.jobs["gpus"]
        self._kinds = cluster.server_arrays()["type"]
        self._types = list(range(len(cluster.gpu_types))) if watched is None else watched.types[row]
        self._round_s = math.nan if watched is None else watched.round_s
        self._mixes = watched is not None and watched.mixes_types
        self._gang = self._gpus[row].as_py() if watched is None else watched.fewest[row]
        self._outages = cluster.outages() if watched is None else watched.outages
        gpus = cluster.server_arrays()["gpus"].tolist()
        of_use = [row for row in self._outages if self._kinds[row[0]] in self._types]
        self._down = Down([(gpus[server], down_s, up_s) for server, down_s, up_s in of_use])
        self._dates: dict[str, str] = {} if watched is None else watched.dates
        self._reasons = OF_TABLES if watched is None else watched.reasons_of(row)
        self._said = None if watched is None else self._asked_for(watched.said[row])

    def tell(self, made: dict[str, Any], note: str) -> Explanation:
        """Return the explanation; `made` contains the facts that are already known."""
        table, timeline = self._tables.segments, self._tables.timeline
        start, end = (table[name].to_numpy() for name in ("start_s", "end_s"))
        last_s = float(np.max(end, initial=0.0))
        if timeline.num_rows:
            last_s = max(last_s, timeline["t_s"][-1].as_py())
        is_over = made["status"] == "finished"
        # rows that ended before the job's arrival or began after its finish are irrelevant
        is_near = (end >= made["arrival_s"]) & (start <= (made["finish_s"] if is_over else last_s))
        table = table if is_near.all() else table.filter(is_near)
        self._segments = Segments(table, self._tables.jobs)
        life = self._segments.life(self._row, last_s, is_over=is_over)
        return Explanation(
            **{**made, "gpus_min": self._gang},
            arrival_date=date_of(self._dates, made["arrival_s"]),
            waits=self._waits(life.waits) if life.waits else [],
            runs=self._runs(life.runs),
            round_s=self._round_s,
            is_shared="xi" in table.column_names,
            note=note,
            reasons=self._reasons,
        )

    def _asked_for(self, reasons: Records) -> Records:
        """Return the causes; for other jobs that waited, add the GPUs that they asked for."""
        at = np.flatnonzero((reasons["job"] >= 0) & (reasons["gpus"] < 0))
        reasons = reasons.copy()
        reasons["gpus"][at] = self._gpus.take(reasons["job"][at]).to_numpy()
        return reasons

    def _free(self, table: pa.Table, instants: Floats) -> Free:
        """Return the GPUs that these segments leave free from the first instant on."""
        start_s, end_s = instants[0], instants[-1]
        outages = [
            (server, down_s, up_s)
            for server, down_s, up_s in self._outages
            if down_s < end_s and up_s > start_s
        ]
        free = free_of_segments(table, self._cluster, instants, outages)
        assert free is not None, "there is at least one wait"
        return free

    def _waits(self, waits: list[Wait]) -> list[WaitPart]:
        begin_s, end_s = (np.asarray(edge) for edge in zip(*waits, strict=True))
        free = self._free(self._segments.table, np.asarray([begin_s[0], end_s[-1]]))
        mine = free.for_gang(self._gang, self._types, mixes_types=self._mixes)
        found = stretches(
            begin_s, end_s, mine, self._said, self._reasons, self._round_s, self._down
        )
        time_s, enough = self._without_later(free)
        passed = self._passed_by(begin_s, end_s, time_s, enough)
        parts: list[list[Rows[Any]]] = []
        for rows, time, make in (
            (found, "start_s", partial(stretch_of, self._reasons)),
            (passed, "time_s", lambda name, _, *record: Passing(name, *record)),
        ):
            # the instants of a wait follow those of the previous wait
            cuts = np.searchsorted(rows[time], np.append(begin_s, math.inf)).tolist()
            every = Rows(rows, self._ids, make)
            parts.append([every[low:high] for low, high in pairwise(cuts)])
        held = (each.tolist() for each in self._segments.holders(self._row, begin_s))
        then_s = np.append(time_s[np.any(list(enough.values()), axis=0)], math.inf)
        first_s = then_s[np.searchsorted(then_s, begin_s)]
        enough_s = np.where(first_s < end_s, first_s, math.nan).tolist()
        return [
            WaitPart(*wait, *one) for wait, *one in zip(waits, *parts, *held, enough_s, strict=True)
        ]

    def _without_later(self, free: Free) -> tuple[Floats, dict[tuple[int, ...], Bools]]:
        """Return when enough GPUs would have been free if later arrivals had held none.

        There is one entry for each set of GPU types that the gang may use. Each entry is false at
        instants at which the later arrivals hold no such GPUs.
        """
        segments = self._segments
        is_earlier = segments.arrival[segments.job] <= segments.arrival[self._row]
        # every instant of `free` is also an instant of `without`
        without = self._free(segments.table.filter(is_earlier), free.time_s)
        at = np.searchsorted(free.time_s, without.time_s, "right") - 1
        enough = {}
        for choice in [tuple(self._types)] if self._mixes else [(kind,) for kind in self._types]:
            left, then = (each.total[list(choice)].sum(axis=0) for each in (free, without))
            enough[choice] = (then >= self._gang) & (then > left[at])
        return without.time_s, enough

    def _passed_by(
        self,
        begin_s: Floats,
        end_s: Floats,
        time_s: Floats,
        enough: Mapping[tuple[int, ...], Bools],
    ) -> Records:
        segments = self._segments
        rows = segments.passed(self._row, begin_s, end_s)
        if not len(rows):
            return np.empty(0, _PASSING)
        gpus, start = gpus_of(segments.mask[rows]), segments.start[rows]
        is_new = np.append(True, np.diff(start) > 0.0)
        instant = np.searchsorted(time_s, start, "right") - 1
        kinds = self._kinds[segments.server[rows]]
        outranks = np.zeros(len(rows), np.bool_)
        for choice, is_enough in enough.items():
            outranks |= np.isin(kinds, choice) & is_enough[instant]
        first = np.flatnonzero(is_new | np.append(True, np.diff(segments.job[rows]) != 0))
        passed = np.empty(len(first), _PASSING)
        passed["job"], passed["time_s"] = segments.job[rows[first]], start[first]
        passed["gpus"] = np.add.reduceat(gpus, first)
        passed["outranks"] = np.logical_or.reduceat(outranks, first)
        return passed

    @cached_property
    def _own(self) -> tuple[Any, ...]:
        """Return the start, the end and the part number of each segment of the job."""
        segments = self._segments
        rows = np.flatnonzero(segments.job == self._row)
        parts = segments.table["part"].to_numpy()[rows]
        return segments.start[rows], segments.end[rows], parts

    def _copies(self, run: Run) -> int:
        if len(run.places) == 1 or "part" not in self._segments.table.column_names:
            return 1
        start, end, parts = self._own
        return len(set(parts[(start <= run.start_s) & (end > run.start_s)].tolist()))

    def _runs(self, runs: list[Run]) -> list[RunPart]:
        taken = self._segments.takers(self._row, np.asarray([run.end_s for run in runs]))
        takers = sorted({job for each in taken for job in each})
        ids = self._ids.take(np.asarray(takers, np.int64)).to_pylist()
        names = dict(zip(takers, ids, strict=True))
        return [
            RunPart(
                run.start_s,
                run.end_s,
                run.gpus,
                [server for server, _ in run.places],
                run.tier,
                list(run.co_runners),
                run.end,
                {names[job]: gpus for job, gpus in each.items() if run.end != "finished"},
                self._copies(run),
            )
            for run, each in zip(runs, taken, strict=True)
        ]
