"""`gangline gantt`: draws which jobs held which GPUs over time, for Perfetto's viewer."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Annotated

from cyclopts import Parameter

from gangline.cli import _console


def gantt(
    folder: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    policy: str | None = None,
    from_s: Annotated[float | None, Parameter(name="--from")] = None,
    to_s: Annotated[float | None, Parameter(name="--to")] = None,
) -> int:
    """Write a Gantt chart of a saved run; ui.perfetto.dev shows it without uploading anything.

    Parameters
    ----------
    folder
        The folder that `run --out --segments` or `compare --out --segments` wrote.
    out
        File to write, such as gantt.pftrace.
    policy
        A policy in the comparison; its run with the first seed is drawn.
    from_s
        Begin at this instant, in seconds as in the tables (`start_s`).
    to_s
        End at this instant, in seconds as in the tables.
    """
    from gangline.analysis.report import choose, load_runs, write_gantt

    result = choose(load_runs(folder), policy)
    drawn = write_gantt(result, out, from_s=from_s, to_s=to_s)
    if drawn.unplaced_jobs:
        count = f"{drawn.unplaced_jobs:,}"
        _console.say(
            f"note: the overhead of {count} jobs is not drawn, because the tables do not say "
            "when it occurred"
        )
    _console.say(f"saved {out}: {len(drawn.row):,} slices; open it at ui.perfetto.dev")
    return 0
