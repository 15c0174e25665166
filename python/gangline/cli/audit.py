"""`gangline audit`: checks the invariants in any simulator's output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gangline.cli import _console, _exit
from gangline.cli._inputs import Flag, Json, MaybeJobs, MaybeLab, MaybeWhole, TraceBeside, Whole
from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.analysis.audit import Audit


def audit(
    table: str,
    /,
    *,
    cluster: MaybeLab = None,
    jobs: str | None = None,
    trace: MaybeJobs = None,
    columns: str | None = None,
    max_share: MaybeWhole = None,
    max_parts: Whole = 1,
    copy_gpus: Annotated[str | None, Parameter(name="--copy-gpus")] = None,
    max_idle_s: Annotated[float | None, Parameter(name="--max-idle-s")] = None,
    tolerance_s: Annotated[float, Parameter(name="--tolerance-s")] = 1e-6,
    first: Whole = 10,
    require: str | None = None,
    json: Json = False,
    raw: Flag = False,
    choice: TraceBeside | None = None,
) -> int:
    """Check a segments or jobs table from any simulator; the exit code is 3 if a rule is broken.

    Parameters
    ----------
    table
        Parquet, Arrow or CSV file, or the folder of a result.
    cluster
        A TOML file, a list of servers, a preset, or 8x8xA100 (8 servers of 8); by default, the
        cluster in the folder of a result.
    jobs
        The jobs table that belongs to a segments table.
    trace
        The trace that was simulated: a file or a generator.
    columns
        NATIVE=THEIRS,... for other column names; NATIVE= leaves a column out.
    max_share
        Maximum number of jobs on one GPU; default 1, or the number in the folder of a result.
    max_parts
        Maximum number of whole gangs of one job at a time.
    copy_gpus
        GPUs of each part of a job: gang, server (all GPUs of a server), or a number.
    max_idle_s
        Maximum number of seconds that a gang may wait while enough GPUs are free for each waiting
        gang; default 3600. Not checked by default if the policy of a result has quotas or prices.
    tolerance_s
        Tolerance of times, in seconds.
    first
        Maximum number of findings that are shown for each rule.
    require
        RULE,... that must be checked; if one cannot be, the exit code is 3.
    json
        Print one JSON document instead of a table.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    choice
        Options for reading the trace, which must be those of the audited run.
    """
    from gangline.analysis.audit import audit as look
    from gangline.files.quantities import mapping_of

    chosen = choice or TraceBeside()
    if trace is None and chosen != TraceBeside():
        raise TraceError("options for reading a trace need --trace")
    is_number = copy_gpus is not None and copy_gpus.isdecimal()
    copies: Any = int(copy_gpus or 0) if is_number else copy_gpus  # `look` rejects any other word
    found = look(
        table,
        cluster,
        jobs=jobs,
        trace=None if trace is None else chosen.read(trace),
        columns=mapping_of(columns or "", "--columns"),
        max_share=max_share,
        max_parts=max_parts,
        copy_gpus=copies,
        max_idle_s=max_idle_s,
        tolerance_s=tolerance_s,
        first=first,
        require=[rule.strip() for rule in (require or "").split(",") if rule.strip()],
    )
    if json or raw:
        _console.data(found.to_dict(), raw=raw)
    else:
        _show(found)
    return _exit.DONE if found.ok else _exit.REFUSED


def _show(found: Audit) -> None:
    rows = [
        [
            row["rule"],
            row["table"],
            row["job_id"],
            row["time_s"],
            _place(row["server"]),
            row["what"],
        ]
        for row in found.findings.to_pylist()
    ]
    _console.prose(repr(found))
    if found.unmet:
        _console.prose(f"required, but not checked: {', '.join(found.unmet)}")
    counts = [[rule, count] for rule, count in found.counts.items()]
    if counts:
        _console.table(["rule", "broken"], counts)
    if rows:
        _console.table(["rule", "table", "job", "time, s", "server", "what"], rows, spare=["table"])
    _console.prose(f"checked: {', '.join(found.checked)}")
    if found.idle is not None:
        _console.prose(_idle(found.idle))
    by_reason: dict[str, list[str]] = {}
    for rule, missing in found.skipped.items():
        by_reason.setdefault(missing, []).append(rule)
    for missing, rules in by_reason.items():
        _console.say(f"not checked: {', '.join(rules)}; missing: {missing}")
    for note in found.notes:
        _console.say(f"note: {note}")


def _idle(figures: Mapping[str, Any]) -> str:
    """Say how much GPU time was free while gangs waited."""
    free, part = figures["gpu_seconds"], figures["fraction"]
    enough = "enough GPUs were free together for"
    if not free:
        return "idle: at no time were enough GPUs free together for a waiting gang"
    words = f"idle: {free:,.6g} GPU-s ({part:.2%}) were free while {enough} a waiting gang"
    if not figures["longest_s"]:
        return words
    return (
        f"{words}; the longest wait while {enough} each waiting gang: "
        f"{figures['longest_s']:,.6g} s (job {figures['job_id']} from {figures['time_s']:,.9g} s)"
    )


def _place(server: int | None) -> str | None:
    return None if server is None else str(server)  # an index, not a count: no thousands mark
