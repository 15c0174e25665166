"""`gangline trace fit`: fits seven numbers per application to its measured iteration times."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations

from gangline.cli import _console
from gangline.cli._inputs import Json  # noqa: TC001 - cyclopts reads the annotations

_COLUMNS = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma")


def fit(
    profiles: Path, /, *, applications: str | None = None, placements: str = "placements.csv",
    json: Json = False,
) -> int:  # fmt: skip
    """Fit Pollux's model of iteration times to measured placements, and say how well it fits.

    Parameters
    ----------
    profiles
        Folder or tar archive with one folder per application, as published with the Pollux
        experiments: placements.csv and so on.
    applications
        Names separated by commas; by default, all.
    placements
        Name of the placements file in each folder.
    json
        Print one JSON document instead of a table.
    """
    from gangline.cluster.tables import fit_pollux, read_pollux

    found = read_pollux(profiles, placements=placements)
    names = list(found)
    if applications is not None:
        names = [name.strip() for name in applications.split(",") if name.strip()]
    fits = {name: fit_pollux(found[name]) for name in names}
    if json:
        _console.document({name: one._asdict() for name, one in fits.items()})
        return 0
    cells = [
        [
            name,
            *(f"{value:.4g}" for value in one[: len(_COLUMNS)]),
            one.points,
            *(f"{100.0 * off:.1f} %" for off in (one.error_median, one.error_p90, one.error_max)),
        ]
        for name, one in fits.items()
    ]
    titles = ["application", *_COLUMNS, "points", "error median", "90 %", "max"]
    _console.table(titles, cells, title=str(profiles))
    _console.write(
        "Seconds: a pass takes a_c + b_c x samples per GPU; a synchronisation takes a_r + b_r x "
        "(GPUs - 2) on one server and a_n + b_n x (GPUs - 2) on several; gamma is the degree of "
        "their overlap. The errors are errors in the iteration time."
    )
    return 0
