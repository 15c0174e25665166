"""`gangline trace fit-runtime`: fits rate factors and start costs to observed run times."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from gangline.cli import _console
from gangline.cli._inputs import Json, TraceBeside


def fit_runtime(
    trace: str,
    /,
    *,
    observed: Path,
    columns: str | None = None,
    costs_by_model: bool = False,
    out: Path | None = None,
    json: Json = False,
    choice: TraceBeside | None = None,
) -> int:
    """Fit rate factors (by model and gang size) and start costs to observed run times.

    Parameters
    ----------
    trace
        The jobs, with durations: a file, or a generator.
    observed
        The observed times: a table as for `gangline validate`, with run_s, and starts or
        preemptions.
    columns
        NATIVE=THEIRS,... for other column names in this table; NATIVE= leaves a column out.
    costs_by_model
        Fit start costs for each model that five or more jobs have.
    out
        File for the trace with its durations multiplied by the factors.
    json
        Print one JSON document instead of a table.
    choice
        Options for reading the trace.
    """
    from gangline.files.quantities import mapping_of
    from gangline.studies.validate import fit_runtime as fit
    from gangline.trace import write_trace

    jobs = (choice or TraceBeside()).read(trace)
    mapping = mapping_of(columns or "", "--columns")
    found = fit(jobs, observed, columns=mapping, costs_by_model=costs_by_model)
    if out is not None:
        write_trace(found.apply(jobs), out)
    if json:
        _console.document(found.to_dict())
        return 0
    titles = ["", "fitted", "95 % interval"]
    _console.table(titles, found.rows(), title=f"{found.jobs:,} jobs", is_formatted=True)
    flags = " ".join(
        f"--{name.replace('_', '-')} {value:.4g}" for name, value in found.options().items()
    )
    if flags:
        _console.paragraphs(f"Options of a run with these costs of starts: {flags}")
    for first, second in found.alike:
        _console.paragraphs(f"The jobs cannot separate {first} from {second}.")
    _console.say(*(f"note: {note}" for note in found.notes))
    if out is not None:
        _console.say(f"saved {out}")
    return 0
