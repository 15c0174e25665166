"""`gangline explain`: why a job of a saved run waited."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from gangline.cli import _console
from gangline.cli._inputs import Json, MaybePolicy, find_modules_here


def explain(folder: Path, /, *, job: str, policy: MaybePolicy = None, json: Json = False) -> int:
    """Say why a job waited, which jobs took its GPUs, and what it lost; repeats the run once.

    Parameters
    ----------
    folder
        What `run --out` or `compare --out` wrote. With --explain it can be explained after the
        trace is gone.
    job
        Its job_id, as in jobs.parquet.
    policy
        Which policy of a comparison; its first seed is taken.
    json
        Print one JSON document instead of sentences.
    """
    from gangline.analysis.report import choose, load_runs

    find_modules_here()
    said = choose(load_runs(folder), policy).explain(job, progress=True)
    if json:
        _console.document(said.to_dict())
    else:
        _console.prose(str(said))
    return 0
