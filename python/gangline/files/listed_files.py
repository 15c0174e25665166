"""Protects files that cannot contain a seal, in a folder to which later runs also write.

The sealed file `files.json` lists the size and CRC-32 of each such file. A file that differs from
the list belongs to the user and is never replaced. The list is written before the files and
contains their states before and after. Therefore, even if the process is killed, gangline never
mistakes one of its own files for a file of the user.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from typing import TYPE_CHECKING, Any

from gangline.errors import ResultError
from gangline.files.json_files import read_sealed, write_sealed
from gangline.files.places import check_free, landing, locked, state, whole, workplace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["check", "check_unchanged", "replacing"]

LIST = "files.json"
_KIND = "list of files"
_ADVICE = "run the command again with another folder"


def check(folder: Path, names: Iterable[str]) -> None:
    """Raise an OSError in advance if files with these names could not be replaced in a folder.

    Raises
    ------
    FileExistsError
        If one of the files has changed since gangline wrote it.
    """
    if folder.is_dir():
        with locked(folder):
            _listed(folder, names)
    check_free(folder / LIST, _KIND)


@contextlib.contextmanager
def replacing(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield a temporary folder; on success, its files with these names replace those in `folder`.

    Raises
    ------
    FileExistsError
        If one of the files to replace has changed since gangline wrote it. In that case, no file is
        replaced.
    """
    names = tuple(names)
    folder.mkdir(parents=True, exist_ok=True)
    with workplace(folder, folder) as part:
        part.mkdir()
        yield part
        with locked(folder):
            listed = _listed(folder, names)
            for name in names:
                earlier = folder / name
                before = [state(earlier)] if earlier.is_file() else []
                listed[name] = [state(part / name), *before]
            write_sealed(folder / LIST, _KIND, {"files": listed})
            for name in names:
                with whole(folder / name) as new:
                    shutil.move(part / name, new)


def check_unchanged(folder: Path, name: str) -> Path:
    """Return the path of a file, after checking that it is unchanged since gangline wrote it.

    Raises
    ------
    OSError
        If the file does not exist.
    ResultError
        If the file or the list was changed.
    """
    path = folder / name
    if state(path) not in _files(folder).get(name, ()):
        message = f"{path}: was changed after gangline wrote it; {_ADVICE}"
        raise ResultError(message, path=str(path))
    return path


def _listed(folder: Path, names: Iterable[str]) -> dict[str, list[Any]]:
    """Return the list of a folder; raise an error if a named file differs from its entry."""
    check_free(folder / LIST, _KIND)
    has_list = (folder / LIST).is_file() and (folder / LIST).stat().st_size
    known = _files(folder) if has_list else {}
    for name in names:
        path = landing(folder / name)
        is_other = path.is_file() and path.stat().st_size and state(path) not in known.get(name, ())
        if is_other or path.is_dir():
            words = "exists and is not an unchanged file of gangline; choose another folder"
            raise FileExistsError(errno.EEXIST, words, str(folder / name))
    return known


def _files(folder: Path) -> dict[str, list[Any]]:
    files: dict[str, list[Any]] = read_sealed(folder / LIST, _KIND, _ADVICE)["files"]
    return files
