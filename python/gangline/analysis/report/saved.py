"""Reads folders of results: one run, a comparison, or any folder that contains runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gangline.errors import ResultError
from gangline.files.json_files import read_sealed
from gangline.files.shape import misfit
from gangline.runs.comparison import KIND
from gangline.runs.load import load_result

if TYPE_CHECKING:
    from os import PathLike

    from gangline.runs.result import Result

__all__ = ["choose", "load_runs"]


def load_runs(folder: str | PathLike[str]) -> list[Result]:
    """Return the runs in a folder that `run --out` or `compare --out` wrote.

    Parameters
    ----------
    folder : path
        A result, a comparison, or a folder of results, such as an interrupted comparison leaves
        behind.

    Returns
    -------
    list of Result
        Runs in the order of the comparison or, without one, by name. Tables are read on first
        access.

    Raises
    ------
    ResultError
        If the folder contains no result, or if a run of the comparison is missing.
    OSError
        If the folder does not exist or cannot be read.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
    >>> folder = table.save("comparison")
    >>> runs = gl.report.load_runs("comparison")
    >>> [run.policy for run in runs]
    ['fifo', 'srtf']
    """
    folder = Path(folder)
    if folder.is_file():
        raise ResultError(f"{folder}: expected a folder of results, got a file", path=str(folder))
    if (folder / "spec.json").is_file():
        return [load_result(folder)]
    inside = sorted(path for path in folder.iterdir() if (path / "spec.json").is_file())
    # A folder whose name begins with a dot is still being written.
    runs = [load_result(path) for path in inside if not path.name.startswith(".")]
    order = _order(folder / "comparison.json")
    if not runs:
        message = f"{folder}: contains no result that `run --out` or `compare --out` wrote"
        raise ResultError(message, path=str(folder))
    found: dict[tuple[str, int], dict[str, list[Result]]] = {}
    for run in runs:
        found.setdefault((run.policy, run.seed), {}).setdefault(run.log_hash, []).append(run)
    chosen = []
    for row in order:
        alike = found.get((row.policy, row.seed), {})
        if not alike.get(row.log_hash):
            state = "belongs to another comparison" if alike else "is missing"
            message = (
                f"{folder}: the run of {row.policy} with seed {row.seed} {state}; run it again"
            )
            raise ResultError(message, path=str(folder))
        chosen.append(alike[row.log_hash].pop(0))
    # Runs that an earlier comparison left in the folder are not part of this comparison.
    return chosen or runs


def choose(runs: list[Result], policy: str | None) -> Result:
    """Return the first run of a policy, given the policy's name or label.

    Raises
    ------
    ResultError
        If no run has this policy, or if there are several runs and no policy was requested.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> table = gl.compare(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), ["fifo", "srtf"])
    >>> folder = table.save("comparison")
    >>> gl.report.choose(gl.report.load_runs("comparison"), "srtf").policy
    'srtf'
    """
    labels = list(dict.fromkeys(run.policy for run in runs))
    known = ", ".join(labels)
    if policy is None:
        if len(labels) > 1:
            raise ResultError(f"--policy: choose one of the compared policies: {known}")
        return runs[0]
    for fits in (
        [run for run in runs if run.policy == policy],
        [run for run in runs if policy in map(run.spec["policy"].get, ("name", "python"))],
    ):
        if fits:
            return fits[0]
    raise ResultError(f"--policy: no run of {policy} here; the policies are: {known}")


class _Row(msgspec.Struct):
    policy: str
    seed: int
    log_hash: str


class _Table(msgspec.Struct):
    """The part of comparison.json that this module reads."""

    runs: list[_Row]


def _order(path: Path) -> list[_Row]:
    if not path.exists():
        return []
    advice = "run `compare` again, or remove the file to list the runs by name"
    data = read_sealed(path, KIND, advice)
    try:
        return msgspec.convert(data, _Table).runs
    except msgspec.ValidationError:
        message = f"{path}: not the table of a comparison: {misfit(data, _Table)}; {advice}"
        raise ResultError(message, path=str(path)) from None
