"""Writes the folder of a paper kit: tables, a figure, methods, and a file to repeat the kit."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline import plot
from gangline._support import toml
from gangline.files import listed_files
from gangline.paper import show
from gangline.paper.methods import methods_tex, methods_txt, versions_of_run
from gangline.policies.source import digest_of

if TYPE_CHECKING:
    from os import PathLike

    from gangline.paper.run import Entrant, Paper

__all__ = ["DRAWN", "REPEAT", "check", "names", "write"]

REPEAT = "repeat.toml"
DRAWN = ("figure.svg", "figure.pdf")
"""Files that are drawn only if matplotlib is installed."""
_ALWAYS = (
    "table.tex", "table.csv", "table.parquet", "sensitivity.tex", "ratios.csv", "ratios.parquet",
    "runs.csv", "figure.pgf", "figure.tex", "methods.txt", "methods.tex",
)  # fmt: skip


def names(files: list[Path]) -> list[str]:
    """Return the names of all files in a kit's folder, including the policies' source files."""
    drawn = DRAWN if importlib.util.find_spec("matplotlib") else ()
    return [*_ALWAYS, *drawn, *dict.fromkeys(path.name for path in files), REPEAT]


def check(folder: Path, files: list[Path]) -> None:
    """Raise an OSError before the runs start if the folder could not be written after them."""
    listed_files.check(folder, names(files))


def write(made: Paper, out: str | PathLike[str]) -> list[str]:
    """Write the folder of a kit, and return the names of its files.

    Raises
    ------
    FileExistsError
        If one of the files exists and gangline did not write it.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    ...     files = gl.paper.write(made, folder)
    >>> files[-1]
    'repeat.toml'
    """
    import pyarrow as pa

    folder = Path(out)
    files = [path for one in made.entrants for path in one.files]
    known = names(files)
    with listed_files.replacing(folder, known) as part:
        table, ratios = show.table(made), show.ratios_table(made)
        for name, rows in (("table", table), ("ratios", ratios)):
            plot.write_table(rows, part / f"{name}.csv")
            plot.write_table(rows, part / f"{name}.parquet")
        kinds = {"seed": pa.int64(), "value": pa.float64()}
        columns = ("world", "change", "policy", "seed", "measure", "value", "log_hash")
        runs = {n: pa.array([run[n] for run in made.runs], kinds.get(n, pa.string()))
                for n in columns}  # fmt: skip
        plot.write_table(pa.table(runs), part / "runs.csv")
        texts = {
            "table.tex": show.table_tex(made),
            "sensitivity.tex": show.sensitivity_tex(made),
            "figure.pgf": show.figure_pgf(made),
            "figure.tex": show.figure_tex(),
            "methods.txt": methods_txt(made),
            "methods.tex": methods_tex(made),
        }
        for name, text in texts.items():
            (part / name).write_text(text, encoding="utf-8")
        if set(DRAWN) & set(known):
            figure = plot.ratios(show.panels(made))
            for name in DRAWN:
                plot.save(figure, part / name)
        for path in files:
            shutil.copyfile(path, part / path.name)
        (part / REPEAT).write_text(_repeat(made, part, known), encoding="utf-8")
    return known


def _repeat(made: Paper, part: Path, known: list[str]) -> str:
    """Return the content of `repeat.toml`: the arguments and the results of the kit."""
    data: dict[str, Any] = {
        "kit": "gangline paper",
        "quick": made.is_quick,
        "seeds": made.seeds,
        "worlds": [one.name for one in made.worlds],
        "versions": versions_of_run(),
        "traces": made.traces,
        "sha256": {name: digest_of(part / name) for name in known if name != REPEAT},
        "policies": [_entrant(one) for one in made.entrants],
    }
    return f"# `gangline paper {REPEAT}` runs this again and compares every file.\n" + toml.dumps(
        data
    )


def _entrant(one: Entrant) -> dict[str, Any]:
    reference = one.reference
    found: dict[str, Any] = {"policy": reference.python or reference.name}
    if reference.params:
        found["params"] = reference.params
    if one.source is not None:
        found["files"] = one.source.files
        if one.source.requirement:
            found["requirement"] = one.source.requirement
    return found
