"""Manages a folder with at most one result per digest; every result in it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from gangline.errors import ResultError
from gangline.files.places import PREFIX
from gangline.runs import result_folder
from gangline.runs.offered_load import known

if TYPE_CHECKING:
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.result import Result
    from gangline.runs.summary import RunSummary

__all__ = ["SAVED", "Store"]

SAVED = ("summary", "jobs", "segments")
"""The levels at which a run can be saved; each level includes the levels before it."""

# Results are flushed to disk only for runs of at least this length. Our own choice: after a power
# failure, repeating the shorter runs costs less than flushing all their results would have cost.
_FLUSH_FROM_S = 0.1
_STALE_S = 3600.0  # Our own choice: no result takes an hour to write.
# The number of attempts to write a result if other processes remove its temporary folder; our own
# choice.
_TRIES = 5

T = TypeVar("T")


class _Log(msgspec.Struct):
    """The part of a spec.json that contains the hash of the events."""

    log_hash: str


class _Load(msgspec.Struct):
    """The part of a spec.json that a row of a table needs."""

    offered_load: dict[str, Any] | None = None


class Store:
    """Stores results by digest.

    Parameters
    ----------
    folder : Path
        The folder; created if necessary. Results are in `runs/<digest>/`, as `gangline run --out`
        writes them.
    save : str
        With "summary", results are saved without their tables; otherwise, with them.
    """

    def __init__(self, folder: Path, save: str = "jobs") -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self._has_tables = save != "summary"

    def prepare(self) -> None:
        """Create the folder; remove files that killed processes left behind over an hour ago."""
        self.runs.mkdir(parents=True, exist_ok=True)
        newest = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.runs))
        now = newest.stat().st_mtime  # machines that share the folder may differ in their clocks
        newest.rmdir()
        for path in self.runs.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # another sweep may also remove it
                if now - path.stat().st_mtime > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)

    def place(self, digest: str) -> Path:
        """Return the folder of a result."""
        return self.runs / digest

    def has(self, digest: str) -> bool:
        """Return whether a complete result exists, including its tables if the store saves them.

        A damaged result is removed.

        Raises
        ------
        OSError
            If the result cannot be read at the moment, for example because of its permissions or
            because there are no free file descriptors. The result is not removed, because it may be
            intact.
        """
        folder = self.place(digest)
        try:
            os.lstat(folder)
        except FileNotFoundError:
            return False
        try:
            spec, _, files, _ = result_folder.read(folder)
            if spec.get("digest") == digest:
                return not self._has_tables or "jobs.parquet" in files
        except (FileNotFoundError, ResultError):
            pass
        except OSError as error:
            if error.errno not in result_folder.NO_RESULT:
                raise
        self._remove(folder)
        return False

    def add(self, digest: str, result: Result) -> None:
        """Save a result, unless another process has already saved an equal one.

        Raises
        ------
        ResultError
            If the temporary folder of the result is removed repeatedly.
        """
        is_long = result.summary["wall_s"] >= _FLUSH_FROM_S
        for _ in range(_TRIES):
            if self.has(digest):
                return
            if self.place(digest).exists():  # the result was saved without its tables
                self._remove(self.place(digest))
            with contextlib.suppress(FileNotFoundError):
                result.add_to(self.runs, digest, durable=is_long, has_tables=self._has_tables)
                return
        message = f"{self.place(digest)}: was removed while it was written; run the sweep again"
        raise ResultError(message, path=str(self.place(digest)))

    def summary(self, digest: str) -> RunSummary | None:
        """Return the summary of a result, or None if it does not exist."""
        found = self._read(digest, "summary.json", dict[str, Any])
        return None if found is None else cast("RunSummary", found)

    def log_hash(self, digest: str) -> str | None:
        """Return the hash of the events of a result; None if the result does not exist."""
        found = self._read(digest, result_folder.SPEC, _Log)
        return None if found is None else found.log_hash

    def offered_load(self, digest: str) -> OfferedLoad | None:
        """Return the offered load of a result; None if the result does not exist or has no load."""
        found = self._read(digest, result_folder.SPEC, _Load)
        return None if found is None else known(msgspec.structs.asdict(found))

    def _read(self, digest: str, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.place(digest) / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None

    def _remove(self, folder: Path) -> None:
        # the folder is renamed before it is deleted, so that the folder of the digest is always
        # complete or absent
        with contextlib.suppress(FileNotFoundError):
            aside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.runs))
            folder.rename(aside / "damaged")
            shutil.rmtree(aside, ignore_errors=True)
