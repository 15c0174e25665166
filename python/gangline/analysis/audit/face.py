"""Defines `audit` and its result; the modules that do the work are imported on first use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.inputs import TableLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.options import ClusterOptions

__all__ = ["Audit", "audit"]

MAX_IDLE_S = 3600.0  # our own choice: ten rounds of 360 s, the longest published round
_ANY_S = sys.float_info.max  # with infinity, the audit of a result would also omit the idle figures
_LIMIT = (
    "the longest wait to allow, --max-idle-s, as `{policy}` may hold jobs back while GPUs are free"
)
TOLERANCE_S = 1e-6  # our own choice: far below the times of any schedule, but above rounding errors


class Audit:
    """The findings of an audit.

    Attributes
    ----------
    ok : bool
        Whether no rule is broken and every required rule was checked.
    counts : dict of str to int
        Number of violations of each broken rule.
    findings : pyarrow.Table
        The first findings of each rule, with the columns rule, table, job_id, time_s, server,
        found, allowed, what.
    checked : tuple of str
        Rules that were checked.
    skipped : dict of str to str
        Rules that were not checked, each with its missing columns.
    unmet : dict of str to str
        Required rules that were not checked.
    idle : dict or None
        GPU time that was idle although a waiting gang could have been placed (`gpu_seconds`, and
        `fraction` of all GPU time), and the longest wait of a gang during which every waiting gang
        could have been placed: `longest_s`, `job_id`, `time_s`.
    notes : tuple of str
        Assumptions about the tables, and likely explanations of findings.
    rows : dict of str to int
        Number of rows of each table that was read.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> run = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf", segments=True)
    >>> found = gl.audit(run.segments, lab, jobs=run.jobs)
    >>> found.ok, found.counts, "capacity" in found.checked
    (True, {}, True)
    """

    def __init__(
        self, findings: Findings, rows: dict[str, int], require: Sequence[str] = ()
    ) -> None:
        self.findings: pa.Table = findings.table()
        self.counts = dict(findings.counts)
        self.checked = tuple(findings.checked)
        self.skipped = dict(findings.skipped)
        self.unmet = {rule: why for rule, why in self.skipped.items() if rule in require}
        self.idle = findings.idle
        self.notes = tuple(findings.notes)
        self.rows = rows

    @property
    def ok(self) -> bool:
        """Return whether no rule is broken and every required rule was checked."""
        return not self.counts and not self.unmet

    def to_dict(self) -> dict[str, Json]:
        """Return the plain values that `gangline audit --json` prints."""
        return {
            "ok": self.ok,
            "rows": self.rows,
            "counts": self.counts,
            "checked": list(self.checked),
            "skipped": self.skipped,
            "unmet": self.unmet,
            "idle": self.idle,
            "notes": list(self.notes),
            "findings": self.findings.to_pylist(),
        }

    def __repr__(self) -> str:
        rows = ", ".join(f"{count:,} {name}" for name, count in self.rows.items())
        if not self.counts:
            unmet = f"; required, but not checked: {', '.join(self.unmet)}" if self.unmet else ""
            return f"Audit({rows}: no rule broken, {len(self.checked)} checked{unmet})"
        broken = ", ".join(f"{rule} {count:,}" for rule, count in self.counts.items())
        return f"Audit({rows}: broken: {broken})"

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        head = ["rule", "job", "time, s", "server", "what"]
        rows = [
            [row["rule"], row["job_id"], row["time_s"], row["server"], row["what"]]
            for row in self.findings.slice(0, 50).to_pylist()
        ]
        return table(head, rows, caption=repr(self))


def audit(
    table: TableLike,
    cluster: ClusterLike | None = None,
    *,
    jobs: TableLike | None = None,
    trace: TraceLike | None = None,
    columns: Mapping[str, str] | None = None,
    max_share: int | None = None,
    max_parts: int = 1,
    copy_gpus: Literal["gang", "server"] | int | None = None,
    max_idle_s: float | None = None,
    tolerance_s: float = TOLERANCE_S,
    first: int = 100,
    require: Sequence[str] = (),
) -> Audit:
    """Look for broken invariants in a segments or jobs table of any simulator.

    Parameters
    ----------
    table : Arrow table, path, or folder of a result
        A segments table (with job_id, start_s and end_s, and with either server and gpu_mask or
        gpus) or a jobs table (with job_id, finish_s and any of arrival_s, first_start_s, run_s,
        gpus, ...). The columns are those in the reference, with times in seconds. In a folder, the
        jobs table is checked, and also the segments table if there is one.
    cluster : Cluster, mapping, or str, optional
        The cluster: an object, its keys, the name of a preset or a TOML file. The default is the
        cluster in the folder of a result; other tables need this argument.
    jobs : Arrow table or path, optional
        The jobs table that belongs to a segments table. It adds gang sizes and arrivals, and the
        two tables must agree.
    trace : Trace, Arrow table, or str, optional
        The trace that was simulated. With it, the audit also detects missing jobs and wrong values
        of gang size, arrival and work.
    columns : mapping, optional
        Mapping from native names to names in the table, for example ``{"finish_s": "end_time"}``. A
        column that is mapped to "" is left out, for example ``{"status": ""}``.
    max_share : int, optional
        Maximum number of jobs on one GPU. The default is 2 for a result folder whose policy shares
        GPUs, and 1 otherwise.
    max_parts : int
        Maximum number of whole gangs that one job may hold at a time; more than 1 for forked jobs
        in tables without a column `part`.
    copy_gpus : str or int, optional
        GPUs of each part of a job: "gang" (the number that the job asks for), "server" (all GPUs of
        its server), or a number. The default is the value from the folder of a result, and
        otherwise "gang".
    max_idle_s : float, optional
        Maximum time in seconds for which a gang may wait while enough GPUs are free together for
        each waiting gang; infinity allows any time. The default is 3600. In a result folder whose
        policy may hold jobs back while GPUs are free, the rule `idle` is not checked by default.
    tolerance_s : float
        Tolerance for times, in seconds: instants closer together than this count as one. A sum may
        be off by this amount for each of its terms, plus 1e-9 of its size.
    first : int
        Number of findings kept for each rule; all findings are counted.
    require : sequence of str
        Rules that must have been checked for the audit to be `ok`. `unmet` lists those of these
        rules for which data are missing.

    Returns
    -------
    Audit

    Raises
    ------
    TraceError
        If a table cannot be read or lacks the columns that identify its kind.
    ResultError
        If a folder is not the result of one run; the error names the results inside.
    ClusterError
        If the cluster is invalid, or if none is given and the first argument is not the folder of
        a result.
    PolicyError
        If an option is out of range, or a required rule does not exist.

    Notes
    -----
    The audit is vectorised. The cost is about a second per million segments, most of it for
    sorting.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=30, seed=1, max_gpus=8)
    >>> result = gl.simulate(lab, trace, "las", segments=True)
    >>> gl.audit(result.segments, lab, jobs=result.jobs, trace=trace).ok
    True
    """
    from gangline.analysis.audit import inputs
    from gangline.analysis.audit.rules import look
    from gangline.analysis.audit.world import Run, World
    from gangline.runs.inputs import as_cluster, override
    from gangline.trace.read import as_trace

    longest_s = MAX_IDLE_S if max_idle_s is None else max_idle_s
    inputs.check_options(
        {
            "max_share": (1 if max_share is None else max_share, 1),
            "max_parts": (max_parts, 1),
            "first": (first, 0),
        },
        {"max_idle_s": longest_s, "tolerance_s": tolerance_s},
        require,
    )
    result = inputs.result_of(table)
    holds_back = "" if max_idle_s is not None else inputs.policy_that_holds_back(result)
    held, listed = inputs.read(table, jobs, columns, result)
    # options of a run may override tables of its cluster
    known: Mapping[str, Any] = {} if result is None else result.spec["cluster"]
    tables: ClusterOptions = {
        "sharing": known.get("sharing"),
        "runtime": known.get("runtime"),
    }
    world = World(
        override(as_cluster(inputs.where(cluster, result)), tables),
        None if trace is None else as_trace(trace),
        listed,
        held,
        max_share=inputs.jobs_per_gpu(result, max_share),
        max_parts=max_parts,
        copy_gpus=inputs.gpus_of_copies(result, copy_gpus),
        max_idle_s=_ANY_S if holds_back else longest_s,
        tolerance_s=tolerance_s,
        run=None if result is None else Run.of(result),
    )
    findings = look(world, first)
    if holds_back:
        findings.withdraw("idle", _LIMIT.format(policy=holds_back))
    rows = {} if held is None else {"segments": len(held)}
    rows |= {} if listed is None else {"jobs": len(listed)}
    return Audit(findings, rows, require)
