"""Writes, replaces and checks the folder of a saved result.

`spec.json` is sealed and lists the size and the checksum of every other file. Therefore, gangline
rejects a folder that mixes two runs or lacks a file, and never replaces a file that it did not
write. A sweep may save only the summary of a run.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from gangline.errors import ClusterError, OptionError, ResultError
from gangline.files.decode import wrong_shape
from gangline.files.json_files import check_seal, decode, write_json
from gangline.files.places import (
    PREFIX,
    check_place,
    flush,
    is_sealed,
    landing,
    locked,
    seal,
    state,
    unsealed,
    workplace,
)
from gangline.runs.options import CheckedOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gangline.cluster.description import Cluster

    Stamp = tuple[int, int, int]

__all__ = ["KIND", "NO_RESULT", "SPEC", "TRACE", "add", "check", "read", "stamp", "write"]

FORMAT = 2  # the version of the folder's format
SPEC = "spec.json"
NO_RESULT = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""The error numbers that occur if something other than a result is at the path of a result."""
REPORT = "report.html"  # the file that the command `report` writes
TRACE = "trace.parquet"  # the jobs, if a result keeps them for later explanations
_OTHERS = ("summary.json", "jobs.parquet", "timeline.parquet", "segments.parquet", TRACE)
KIND = "result"
"""The kind of file, as it is named in the seal of spec.json."""


class _File(msgspec.Struct):
    bytes: int
    crc32: str


class _Policy(msgspec.Struct):
    label: str
    name: str
    params: dict[str, Any]
    knowledge: str


class _Trace(msgspec.Struct):
    path: str
    jobs: int
    sha256: str
    metadata: dict[str, str]
    notes: dict[str, int]


class Spec(msgspec.Struct):
    """The keys that every spec.json contains; there may be more."""

    format: int
    files: dict[str, _File]
    gangline: str
    seed: int
    policy: _Policy
    trace: _Trace
    cluster: dict[str, Any]
    options: CheckedOptions
    notes: dict[str, int]
    memory_model: str
    log_hash: str
    outcome: str
    counters: dict[str, int]
    measured: dict[str, int | float | None]


def check(folder: Path) -> None:
    """Raise an error in advance if a result could not be saved in the folder.

    Raises
    ------
    FileExistsError
        If the folder has content but no earlier result, or if that result was changed.
    OSError
        If the path is a file, or if nothing can be written there.
    """
    folder = landing(folder)
    if folder.is_dir():
        with locked(folder):
            _earlier(folder)
    elif folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    check_place(folder)


def write(
    folder: Path, spec: Mapping[str, Any], files: Mapping[str, Callable[[Path], None]]
) -> None:
    """Write a result; a new folder appears complete or not at all.

    In an existing folder, the files of an earlier result are replaced, and all other files stay. If
    the process dies while it replaces them, all remaining files belong to the same run, and the
    next result can still be saved there.

    Parameters
    ----------
    folder : Path
        The folder; missing parents are created.
    spec : mapping
        The content of spec.json.
    files : mapping of str to callable
        For each of the other files, the function that writes it to a path.
    """
    folder = landing(folder)
    check(folder)
    home = folder if folder.is_dir() else folder.parent
    home.mkdir(parents=True, exist_ok=True)
    with workplace(home, folder, is_folder=True) as part:
        _fill(part, spec, files)
        if home != folder:
            try:
                part.rename(folder)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            else:
                return
        with locked(folder):
            old, new = _earlier(folder), (SPEC, *files)
            try:
                _replace(folder, part, old, new)
            except KeyboardInterrupt:  # first complete the replacement that has begun
                _replace(folder, part, old, new)
                raise


def add(
    home: Path,
    name: str,
    spec: Mapping[str, Any],
    files: Mapping[str, Callable[[Path], None]],
    *,
    durable: bool,
) -> None:
    """Write a result to the new folder `home / name`, unless another process has written it first.

    Parameters
    ----------
    home, name : Path, str
        The existing folder that holds results, and the name of this result.
    spec, files : mapping
        As for `write`.
    durable : bool
        Whether all bytes must be on disk before the folder gets its final name.

    Raises
    ------
    FileNotFoundError
        If another process removes the temporary folder in which the result is written.
    OSError
        If something cannot be written.
    """
    with workplace(home, home / name, is_folder=True) as part:
        _fill(part, spec, files)
        if durable:
            for path in (*part.iterdir(), part):
                flush(path)
        try:
            part.rename(home / name)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise


def _fill(part: Path, spec: Mapping[str, Any], files: Mapping[str, Callable[[Path], None]]) -> None:
    for name, write_file in files.items():
        write_file(part / name)
    listed = {name: state(part / name) for name in files}
    head = {"format": FORMAT, "seal": unsealed(KIND), "files": listed}
    write_json(part / SPEC, {**head, **spec})
    seal(part / SPEC, KIND)


def _replace(folder: Path, part: Path, old: Sequence[str], new: Sequence[str]) -> None:
    """Remove the old files and move the new ones into place.

    At any time, the existing files match spec.json. A second call completes an interrupted one.
    """
    for name in old:
        if name not in new or (part / name).exists():
            (folder / name).unlink(missing_ok=True)
    for name in new:
        if (part / name).exists():
            (part / name).replace(folder / name)


def _earlier(folder: Path) -> list[str]:
    """Return the files other than spec.json that a new result replaces.

    Raises
    ------
    FileExistsError
        If gangline did not write them, or if they were changed afterwards.
    """
    if all(path.name.startswith(PREFIX) for path in folder.iterdir()):
        return []
    spec = folder / SPEC
    if not spec.is_file() or not is_sealed(spec, KIND):
        _keep(folder, "contains something that is not a result; choose another folder")
    known = json.loads(spec.read_text(encoding="utf-8"))
    if known["format"] != FORMAT:
        _keep(folder, "contains a result from another version; choose another folder")
    there = [name for name in _OTHERS if (folder / name).exists() or (folder / name).is_symlink()]
    for name in there:
        path = folder / name
        if name not in known["files"] or not path.is_file() or state(path) != known["files"][name]:
            words = f"`{name}` in it was changed, or is not gangline's; choose another folder"
            _keep(folder, words)
    report = folder / REPORT
    return [*there, REPORT] if report.is_file() and is_sealed(report, "report") else there


def _keep(folder: Path, words: str) -> NoReturn:
    raise FileExistsError(errno.EEXIST, words, str(folder))


def stamp(path: Path) -> tuple[int, int, int]:
    """Return a key that changes whenever the file is replaced or changed."""
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Stamp], Cluster]:
    """Read spec.json and summary.json, and check that all files exist and are unchanged.

    Returns
    -------
    spec, summary : dict
        The values that were passed to `write`.
    files : dict of str to stamp
        The files other than spec.json.
    cluster : Cluster
        The cluster that the spec describes.
    """
    with locked(folder, shared=True):
        return _read(folder)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Stamp], Cluster]:
    content, spec = _content(folder, SPEC)
    if spec.get("format") != FORMAT:
        raise ResultError(f"{folder}: written by another version; run it again", path=str(folder))
    check_seal(folder / SPEC, content, spec, KIND, "run it again")
    _convert(folder / SPEC, spec, Spec)
    cluster = _checked(folder / SPEC, spec)
    files = spec["files"]
    for name in (_OTHERS[0], *files):
        path = folder / name
        if name not in _OTHERS or name not in files or not _is_file(path):
            message = f"{folder}: incomplete result: {name} is missing; run it again"
            raise ResultError(message, path=str(path))
        if state(path) != files[name]:
            message = f"{path}: damaged, changed, or from another run; run it again"
            raise ResultError(message, path=str(path))
    _, summary = _content(folder, "summary.json")
    _convert(folder / "summary.json", {"summary": summary}, _Summary)
    _convert(folder / "summary.json", summary, _Counts)
    rest = {key: value for key, value in spec.items() if key not in ("format", "seal", "files")}
    return rest, summary, {name: stamp(folder / name) for name in files}, cluster


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; raise an OSError if this cannot be determined."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, *NO_RESULT):
            return False
        raise


class _Summary(msgspec.Struct):
    summary: dict[str, int | float | None]


class _Counts(msgspec.Struct):
    jobs: int
    finished: int
    dropped: int
    preemptions: int
    migrations: int
    decisions: int
    events: int


def _checked(path: Path, spec: dict[str, Any]) -> Cluster:
    """Return the cluster of a spec after the checks that go beyond types."""
    from gangline.cluster.description import Cluster

    try:
        # Null means NaN in other parts of a cluster, but is not allowed in these.
        kept = {key: spec["cluster"].get(key) for key in ("name", "gpu_types", "servers")}
        cluster = Cluster.from_dict(
            {key: value for key, value in kept.items() if value is not None}
        )
        msgspec.convert({**spec["options"], "seed": spec["seed"]}, CheckedOptions).check()
    except (ClusterError, OptionError) as error:
        raise ResultError(f"{path}: {error}", path=str(path)) from None
    for part in ("throughput", "sharing", "runtime"):
        table = spec["cluster"].get(part)
        if isinstance(table, dict) and "table" in table:  # a saved cluster contains its tables
            wrong(path, f"cluster.{part}.table", "rows", "the name of a file")
    if not 0 <= spec["trace"]["jobs"] < 2**53:
        wrong(path, "trace.jobs", "an integer >= 0", spec["trace"]["jobs"])
    return cluster


def wrong(path: Path, key: str, expected: str, value: object) -> NoReturn:
    """Raise the ResultError for an invalid value in a file."""
    raise ResultError(f"{path}: {key}: expected {expected}, got {value}", path=str(path), key=key)


def _content(folder: Path, name: str) -> tuple[bytes, dict[str, Any]]:
    """Return the contents of one of a result's JSON files, and the object that it represents."""
    path = folder / name
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not folder.exists():
            raise
        message = f"{folder}: not a result: it has no {name}"
        raise ResultError(message, path=str(folder)) from None
    return content, decode(path, content)


def _convert(path: Path, data: dict[str, Any], kind: type[Any]) -> None:
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError:
        made = wrong_shape(data, kind, str(path))
        raise ResultError(str(made), path=str(path), key=made.key) from None
    except UnicodeEncodeError:  # an unpaired surrogate in place of a number
        raise ResultError(f"{path}: unpaired surrogates in text", path=str(path)) from None
