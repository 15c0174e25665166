"""The folder of a sweep: one result per digest, each whole or absent."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.errors import ResultError
from gangline.files.places import PREFIX
from gangline.runs import result_folder
from gangline.runs.offered_load import known

if TYPE_CHECKING:
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.result import Result

__all__ = ["Store"]

_FLUSH_FROM_S = 0.1  # ours: after a loss of power a shorter run is sooner done than waited for
_STALE_S = 3600.0  # ours: no result takes an hour to write
_TRIES = 5  # ours: to write a result whose temporary folder another process removes


class Store:
    """Results by digest.

    Parameters
    ----------
    folder : Path
        Made if need be; results are in `runs/<digest>/`, as `gangline run --out` writes them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"

    def prepare(self) -> None:
        """Make the folder, and remove what killed processes left there more than an hour ago."""
        self.runs.mkdir(parents=True, exist_ok=True)
        newest = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.runs))
        now = newest.stat().st_mtime  # machines that share the folder may differ in their clocks
        newest.rmdir()
        for path in self.runs.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # another sweep may remove it as well
                if now - path.stat().st_mtime > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)

    def place(self, digest: str) -> Path:
        """Return the folder of a result."""
        return self.runs / digest

    def has(self, digest: str) -> bool:
        """Whether the result is there and whole; a damaged one is removed.

        Raises
        ------
        OSError
            If it cannot be read now, as without rights or free file descriptors: that says nothing
            about the result, which stays.
        """
        folder = self.place(digest)
        try:
            folder.lstat()
            spec, *_ = result_folder.read(folder)
            if spec.get("digest") == digest:
                return True
        except FileNotFoundError:
            if not folder.is_symlink():
                return False
        except ResultError:
            pass
        except OSError as error:
            if error.errno not in result_folder.NO_RESULT:
                raise
        self._remove(folder)
        return False

    def add(self, digest: str, result: Result) -> None:
        """Save a result; if another process was sooner, its own stays: it has the same bytes.

        Raises
        ------
        ResultError
            If the temporary folder in which it is written is removed again and again.
        """
        is_long = result.summary["wall_s"] >= _FLUSH_FROM_S
        for _ in range(_TRIES):
            if self.place(digest).exists():
                return
            with contextlib.suppress(FileNotFoundError):
                result.add_to(self.runs, digest, durable=is_long)
                return
        message = f"{self.place(digest)}: was removed while it was written; run the sweep again"
        raise ResultError(message, path=str(self.place(digest)))

    def summary(self, digest: str) -> dict[str, Any] | None:
        """Return the summary of a result, None if it is not there."""
        try:
            text = (self.place(digest) / "summary.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        found: dict[str, Any] = json.loads(text)
        return found

    def offered_load(self, digest: str) -> OfferedLoad | None:
        """Return the load of a result; None if it is not there, or says none."""
        try:
            text = (self.place(digest) / "spec.json").read_bytes()
        except FileNotFoundError:
            return None
        return known(json.loads(text))

    def _remove(self, folder: Path) -> None:
        # by way of another name: what stands under the digest is whole at any time, or absent
        with contextlib.suppress(FileNotFoundError):
            aside = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.runs))
            folder.rename(aside / "damaged")
            shutil.rmtree(aside, ignore_errors=True)
