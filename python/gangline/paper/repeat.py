"""Recreates a paper kit from its `repeat.toml`, and compares every byte."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline._support import toml
from gangline._support.formatting import plural
from gangline.errors import OptionError
from gangline.files.shape import misfit
from gangline.paper.folder import DRAWN, REPEAT, write
from gangline.paper.methods import versions_of_run
from gangline.paper.run import carry_out
from gangline.policies.source import digest_of, importing, load_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike


__all__ = ["Repeated", "repeat"]

_OF_VERSIONS = {
    "methods.txt", "methods.tex", "table.parquet", "ratios.parquet", *DRAWN,
}  # fmt: skip
"""Files whose bytes depend on library versions, and not only on the runs."""


_RUNS = "runs.csv"


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    policy: str
    params: dict[str, Any] = {}
    files: dict[str, str] = {}
    requirement: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kit: str
    quick: bool
    seeds: list[int]
    worlds: list[str]
    versions: dict[str, str]
    traces: dict[str, str]
    sha256: dict[str, str]
    policies: list[_Policy]


class Repeated(NamedTuple):
    """The findings of a repetition.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.paper.Repeated(runs=32, files=14, differences=[], versions=[]).sentences()
    ['the kit is reproduced: 32 runs with the same events, 14 files with the same bytes']
    """

    runs: int
    files: int
    differences: list[str]
    """Differences that changed versions do not explain; empty if the kit is reproduced."""
    versions: list[str]
    """Changed versions, and the files whose bytes differ as a result."""

    def sentences(self) -> list[str]:
        """Say whether the repeated runs and files equal those of the kit."""
        if self.differences:
            same = not any(one.startswith(_RUNS) for one in self.differences)
            but = ": the runs have the same events, but some files differ" if same else ""
            return [f"the kit is not reproduced{but}", *self.differences, *self.versions]
        whole = f"the kit is reproduced: {plural(self.runs, 'run')} with the same events"
        if self.versions:
            return [f"{whole} and the same tables", *self.versions]
        return [f"{whole}, {plural(self.files, 'file')} with the same bytes"]


def repeat(
    path: str | PathLike[str],
    *,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
) -> Repeated:
    """Repeat a kit from its repeat.toml, and compare every file with the recorded one.

    Parameters
    ----------
    path : path
        The file `repeat.toml`, in the same folder as the files of the kit's policies.
    out : path, optional
        Folder in which to save the repeated kit; by default, it is not saved.
    workers, progress
        As for `gangline.paper.run`.

    Raises
    ------
    OptionError
        If the file does not come from a paper kit.
    PolicyError
        If a policy's file has changed since it was run.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    ...     files = gl.paper.write(made, folder)
    ...     again = gl.paper.repeat(f"{folder}/repeat.toml", workers=1)
    >>> again.runs, again.differences
    (32, [])
    """
    path = Path(path)
    asked = _read(path)
    here = path.absolute().parent
    with importing(here), tempfile.TemporaryDirectory(prefix="gangline-paper-") as aside:
        policies = [load_policy(one.policy, one.params, one.files, one.requirement, path)
                    for one in asked.policies]  # fmt: skip
        folder = Path(aside if out is None else out)
        made = carry_out(
            policies, worlds=asked.worlds, quick=asked.quick, seeds=asked.seeds, out=folder,
            workers=workers, progress=progress,
        )  # fmt: skip
        write(made, folder)
        return _compared(asked, here, folder, made.runs_count)


def _read(path: Path) -> _File:
    expected = f"{path}: expected the {REPEAT} of a paper kit"
    try:
        data = toml.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise OptionError(f"{expected}: {error}", field="path", value=str(path)) from None
    try:
        found = msgspec.convert(data, _File)
    except msgspec.ValidationError:
        message = f"{expected}: {misfit(data, _File)}"
        raise OptionError(message, field="path", value=str(path)) from None
    if found.kit != "gangline paper":
        raise OptionError(f"{expected}, got kit = {found.kit!r}", field="path", value=str(path))
    return found


def _compared(asked: _File, here: Path, folder: Path, runs: int) -> Repeated:
    now = versions_of_run()
    other = [f"{name} {now.get(name, 'none')} instead of {then}"
             for name, then in asked.versions.items() if now.get(name) != then]  # fmt: skip
    differences, by_versions = [], []
    for name, sha256 in asked.sha256.items():
        new = folder / name
        if new.is_file() and digest_of(new) == sha256:
            continue
        if other and name in _OF_VERSIONS:
            by_versions.append(name)
            continue
        differences.append(_difference(name, here / name, new, sha256))
    # a file that was changed after the run no longer agrees with the runs
    for name, sha256 in asked.sha256.items():
        old = here / name
        if old.is_file() and digest_of(old) != sha256:
            differences.append(f"{old}: was changed after it was written")
    versions = [f"other versions: {', '.join(other)}"] if other else []
    if by_versions:
        versions.append(f"files that differ for this reason: {', '.join(by_versions)}")
    return Repeated(runs, len(asked.sha256), differences, versions)


def _difference(name: str, old: Path, new: Path, sha256: str) -> str:
    """Describe how a file differs; for the table of runs, only the first difference."""
    if name == _RUNS and old.is_file() and new.is_file() and digest_of(old) == sha256:
        for before, after in zip(_lines(old), _lines(new), strict=False):
            if before != after:
                where = ", ".join(before[key] for key in ("world", "change", "policy", "seed"))
                what = f"{before['value']} then, {after['value']} now"
                return f"{_RUNS}: the first run that differs: {where}: {what}"
    return f"{name}: differs from the file that was written"


def _lines(path: Path) -> Iterable[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
