"""Writes report files completely or not at all, and never overwrites other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.analysis.report.digest import Digest, digest
from gangline.analysis.report.page import REPORT, render
from gangline.analysis.report.saved import load_runs
from gangline.errors import ResultError
from gangline.files.places import check_place, is_free, whole
from gangline.runs.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from gangline.runs.comparison import Comparison

    Source = Result | Comparison | Sequence[Result] | Sequence[Digest] | str | PathLike[str]

__all__ = ["check_target", "put", "write"]


def write(source: Source, path: str | PathLike[str], *, command: str = "") -> Path:
    """Write a report as one self-contained HTML file.

    Parameters
    ----------
    source : Result, Comparison, sequence of results, or folder
        The runs of the report. A comparison must contain its results. A folder must have been
        written by `run --out` or `compare --out`.
    path : path
        Path of the file. An existing report is replaced; any other existing file raises an error.
    command : str
        Command that repeats the runs; by default, it is derived from them.

    Returns
    -------
    Path
        Path of the file.

    Raises
    ------
    ResultError
        If there is nothing to report on, a saved table is damaged, or the existing file is not a
        report.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), "srtf")
    >>> gl.report.write(result, "page.html").name
    'page.html'
    """
    path = Path(path)
    runs = _digests(source)
    if not runs:
        raise ResultError("nothing to report on: the comparison has no results (use `keep=True`)")
    check_target(path)
    put(path, render(runs, command=command))
    return path


def _digests(source: Source) -> list[Digest]:
    found: Any = source
    if isinstance(source, Digest | Result):
        found = [source]
    elif isinstance(source, str) or hasattr(source, "__fspath__"):
        found = load_runs(source)
    elif hasattr(source, "results"):
        found = source.results
    return [run if isinstance(run, Digest) else digest(run) for run in found]


def check_target(path: Path, kind: str = REPORT) -> None:
    """Raise an error in advance if a file cannot be written to a path.

    Raises
    ------
    ResultError
        If the path is a folder, a file of another kind, or a file that gangline did not write.
    OSError
        If nothing can be written to the path.

    Examples
    --------
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> gl.report.check_target(Path("new.html"))  # nothing is there: a report may be written
    >>> count = Path("notes.html").write_text("mine")
    >>> try:
    ...     gl.report.check_target(Path("notes.html"))
    ... except gl.ResultError as error:
    ...     print(error)
    notes.html: exists and is not an unchanged report of gangline; choose another name
    """
    if path.is_dir():
        raise ResultError(f"{path}: is a folder; name a file in it", path=str(path))
    if not is_free(path, kind):
        message = f"{path}: exists and is not an unchanged {kind} of gangline; choose another name"
        raise ResultError(message, path=str(path))
    check_place(path)


def put(path: Path, page: str) -> None:
    """Write a page completely or not at all."""
    with whole(path, REPORT) as part:
        part.write_text(page, encoding="utf-8")
