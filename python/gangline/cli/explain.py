"""`gangline explain`: says why a job of a saved run waited, and how a change affects its times."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Annotated

from cyclopts import Parameter

from gangline.cli import _console
from gangline.cli._inputs import Flag, Json, MaybePolicy, find_modules_here


def explain(
    folder: Path,
    /,
    *,
    job: str,
    policy: MaybePolicy = None,
    what_if: Annotated[list[str] | None, Parameter(negative="")] = None,
    json: Json = False,
    raw: Flag = False,
) -> int:
    """Explain why a job waited and how much time it lost, or compare the run with changed runs.

    Without --what-if, the run is repeated once; with --what-if, once per change.

    Parameters
    ----------
    folder
        The folder that `run --out` or `compare --out` wrote. With --explain, it contains the jobs,
        so that the trace is no longer needed.
    job
        The job's job_id, as in jobs.parquet.
    policy
        A policy in the comparison; its run with the first seed is used.
    what_if
        Repeat the job's run with a change, and compare: policy=NAME, servers=+2 (V100:-1), gpus=4
        or submitted=+1h; commas combine changes. Repeatable; each occurrence is a separate run.
    json
        Print one JSON document instead of sentences.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    """
    from gangline.analysis.report import choose, load_runs

    find_modules_here()
    result = choose(load_runs(folder), policy)
    if what_if:
        from gangline.runs import what_if as alternatives

        changes = map(alternatives.parse, what_if)
        found = alternatives.what_if(result, job, *changes, progress=True)
        if json or raw:
            _console.data(found.to_dict(), raw=raw)
        else:
            _console.table(found.titles(), found.cells(), title=found.title(), is_formatted=True)
            _console.paragraphs(*found.notes)
        return 0
    said = result.explain(job, progress=True)
    if json or raw:
        _console.data(said.to_dict(), raw=raw)
    else:
        _console.prose(str(said))
    return 0
