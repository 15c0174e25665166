"""Collects findings: counts them all, and keeps the first findings of each rule with their text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from gangline.analysis.audit.sweep import Excess

    Words: TypeAlias = str | Callable[[int], str]

__all__ = ["RULES", "Findings", "plain"]

RULES = {
    "times": "times are finite numbers of seconds >= 0, and present where they are needed",
    "order": "nothing ends before it starts",
    "unknown-job": "every row belongs to a job of the trace or of the jobs table",
    "missing-job": "every job has a row",
    "duplicate-job": "no job has two rows in the jobs table",
    "unknown-server": "every server and every slot exists",
    "unknown-type": "every GPU type belongs to the cluster",
    "type-not-allowed": "a job runs on GPU types that it allows",
    "arrival": "jobs arrive when the trace says they do",
    "before-arrival": "nothing runs before it arrives",
    "lost-job": "every job finished or was dropped, unless the run was stopped",
    "finish": "a job finishes once, at the end of its last segment",
    "gang": "a job holds its whole gang or no GPU; each part of a forked job is whole",
    "capacity": "no more GPUs are held than exist: on a server, of a type, in total",
    "double-booking": "no more jobs are on a GPU than may share it",
    "memory": "the jobs on a GPU fit into its memory",
    "down": "nothing runs on a server that is down",
    "rate": "no job is faster than its GPUs, its batch and its co-runners allow",
    "co-runners": "a row names its co-runners, and ends when they come or go and change its rate",
    "short-run": "a finished job ran for as long as its work takes",
    "work-done": "no job does more work than it has",
    "lost-work": "time with GPUs is overhead, lost progress, or time for the work itself",
    "work-conserving": "no job waits while enough GPUs are free, if the policy claims this",
    "idle": "no gang waits for long while enough GPUs are free together for each waiting gang",
    "utilisation": "no more GPU-seconds are used than the cluster has",
    "sums": "columns that follow from other columns agree with them",
    "summary": "the summary agrees with the tables",
}
"""The requirement of each rule, in the order in which findings are listed."""

_NEEDS = {
    "duplicate-job": "a jobs table",
    "unknown-server": "segments with the column server",
    "unknown-type": "the column gpu_type",
    "type-not-allowed": "segments with the column server or gpu_type, and a trace",
    "arrival": "arrival_s in a jobs table, and a trace",
    "double-booking": "segments with the columns server and gpu_mask",
    "memory": "segments with the columns server and gpu_mask, and a trace with memory_gb",
    "down": "segments with the column server",
    "rate": "segments with the column rate, and a trace",
    "lost-job": "how the run ended: the folder of a result",
    "finish": "segments with the column end_reason, and a jobs table with the column status",
    "co-runners": "segments with server, gpu_mask and co_runner, and a trace or jobs table",
    "work-done": "segments with the column rate, a jobs table with overhead_s, and a trace",
    "lost-work": "segments with the column rate, a jobs table with lost_s, and a trace",
    "work-conserving": "a policy that claims it: `gl.testing.check_policy`",
    "summary": "the folder of a result",
    "idle": "when jobs arrive and how large they are: a jobs table or a trace",
    "sums": "columns that follow from others, such as jct_s, queue_s or gpu_seconds",
}
"""The data that each rule needs; shown if the rule was not checked and no check says why."""

_SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("table", pa.string()),
        ("job_id", pa.string()),
        ("time_s", pa.float64()),
        ("server", pa.int64()),
        ("found", pa.float64()),
        ("allowed", pa.float64()),
        ("what", pa.string()),
    ]
)


class Findings:
    """Broken invariants, collected by rule.

    Parameters
    ----------
    names : sequence of str
        Job ids by index.
    first : int
        Number of findings kept for each rule.

    Attributes
    ----------
    notes : list of str
        Assumptions, and likely explanations of findings.
    excess : float
        The largest ratio of an amount held to the amount allowed, apart from memory; at least 1.
    idle : dict, optional
        GPU time that was idle although a waiting gang could have been placed.
    """

    def __init__(self, names: Callable[[int], str | None], first: int) -> None:
        self._names = names
        self._first = first
        self._rows: list[dict[str, Any]] = []
        self._counts: dict[str, int] = {}
        self._checked: set[str] = set()
        self._skipped: dict[str, str] = {}
        self.notes: list[str] = []
        self.excess = 1.0
        self.idle: dict[str, Any] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of violations of each broken rule, in rule order."""
        return {rule: self._counts[rule] for rule in RULES if rule in self._counts}

    @property
    def checked(self) -> list[str]:
        """Rules that were checked."""
        return [rule for rule in RULES if rule in self._checked]

    @property
    def skipped(self) -> dict[str, str]:
        """Rules that were not checked, and the missing data."""
        missing = {**_NEEDS, **self._skipped}
        return {
            rule: missing.get(rule, "rows that can be used")
            for rule in RULES
            if rule not in self._checked
        }

    def skip(self, rule: str, missing: str) -> None:
        """Record that a rule cannot be checked."""
        self._skipped.setdefault(rule, missing)

    def note(self, text: str) -> None:
        """Add a note on an assumption or a likely cause of findings; each note appears once."""
        if text not in self.notes:
            self.notes.append(text)

    def looked_at(self, rule: str) -> None:
        """Record that a rule was checked, with or without findings."""
        self._checked.add(rule)

    def withdraw(self, rule: str, missing: str) -> None:
        """Record that a rule was checked only in part, so it does not count as checked."""
        self._checked.discard(rule)
        self.skip(rule, missing)

    def add(
        self,
        rule: str,
        table: str,
        bad: npt.NDArray[np.generic],
        what: Words,
        *,
        job: npt.NDArray[np.generic] | None = None,
        time: npt.NDArray[np.generic] | None = None,
        server: npt.NDArray[np.generic] | None = None,
        found: npt.NDArray[np.generic] | float | None = None,
        allowed: npt.NDArray[np.generic] | float | None = None,
    ) -> None:
        """Add the rows where `bad` is true; the other arrays are aligned with it.

        Parameters
        ----------
        rule, table : str
            The names of the rule and of the table.
        bad : bool array
            Rows that break the rule.
        what : str or callable
            The sentence with the placeholders {found}, {allowed}, {time} and {server}, or a
            function that maps a row to its sentence.
        job : int array, optional
            Job index of each row; -1 = none.
        time, server, found, allowed : arrays, optional
            Time, server, amount found and amount allowed for each row; a single number applies to
            all rows.
        """
        self._checked.add(rule)
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        before = self._counts.get(rule, 0)
        self._counts[rule] = before + len(rows)
        room = self._first - before
        if room <= 0:
            return
        if time is not None:
            rows = rows[np.argsort(time[rows], kind="stable")]
        found, allowed = (
            np.broadcast_to(each, bad.shape) if isinstance(each, float) else each
            for each in (found, allowed)
        )
        for row in rows[:room].tolist():
            place = -1 if server is None else int(server[row])
            shown = {
                name: column[row] if column is not None else None
                for name, column in (("found", found), ("allowed", allowed), ("time", time))
            }
            shown["server"] = place
            self._rows.append(
                {
                    "rule": rule,
                    "table": table,
                    "job_id": None if job is None else self._names(int(job[row])),
                    "time_s": _value(time, row),
                    "server": None if place < 0 else place,
                    "found": _value(found, row),
                    "allowed": _value(allowed, row),
                    "what": what.format(**shown) if isinstance(what, str) else what(row),
                }
            )

    def add_excess(
        self,
        rule: str,
        table: str,
        excess: Excess,
        what: Words,
        *,
        job: npt.NDArray[np.generic],
        time: npt.NDArray[np.generic],
        server: npt.NDArray[np.generic] | None = None,
    ) -> None:
        """Add stretches in which too much is held; job, time and server have an entry per event."""
        at = excess.at
        some = (excess.allowed > 0.0) & (rule != "memory")
        ratios = excess.peak[some] / excess.allowed[some]
        self.excess = max(self.excess, float(ratios.max(initial=1.0)))
        self.add(
            rule,
            table,
            np.ones(len(at), dtype=np.bool_),
            what,
            job=job[at],
            time=time[at],
            server=None if server is None else server[at],
            found=excess.peak,
            allowed=excess.allowed,
        )

    def table(self) -> pa.Table:
        """Return the kept findings, ordered by rule."""
        order = {rule: i for i, rule in enumerate(RULES)}
        rows = sorted(self._rows, key=lambda row: order[row["rule"]])
        return pa.Table.from_pylist(rows, schema=_SCHEMA)


def plain(text: str) -> str:
    """Escape text for use in a sentence with placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _value(column: npt.NDArray[Any] | None, row: int) -> float | None:
    if column is None:
        return None
    value = float(column[row])
    return value if np.isfinite(value) else None
