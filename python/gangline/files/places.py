"""Writes files completely or not at all, and never over a file that gangline did not write.

A file that a later run may replace carries a seal: the word `gangline`, the kind of file, and the
SHA-256 of the whole file, computed with zeros in place of the digits of the SHA-256. An edit breaks
the seal, so an edited file is treated like any other file of the user.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PREFIX",
    "arrow_name",
    "check_free",
    "check_place",
    "flush",
    "is_free",
    "is_sealed",
    "landing",
    "locked",
    "seal",
    "state",
    "unsealed",
    "whole",
    "workplace",
]

PREFIX = ".gangline-"
"""The prefix of the names of temporary folders, which killed processes leave behind."""
_DIGITS = 2 * hashlib.sha256().digest_size
_BLANK = b"0" * _DIGITS
_REACH = 1 << 16  # Seals are searched for in this many bytes at each end of a file; our own choice.
_CHUNK = 1 << 20


def arrow_name(path: str | Path) -> str:
    """Return a name that Arrow reads as a path; it would read `user:mean/jobs.parquet` as a URI."""
    return str(Path(path).absolute())


def unsealed(kind: str) -> str:
    """Return the text that a file of this kind contains until `seal` fills in the checksum.

    Examples
    --------
    >>> unsealed("report")[:20]
    'gangline report 0000'
    """
    return f"gangline {kind} {_BLANK.decode()}"


def seal(path: Path, kind: str, copies: int | None = None) -> None:
    """Complete the seal of a file by writing the checksum into it.

    Parameters
    ----------
    path : Path
        A file that contains `unsealed(kind)` near its beginning or its end.
    kind : str
        The kind of file, such as "report".
    copies : int, optional
        Number of times that the writer has put this text into the file. If the text occurs more
        often, the user's data also contains it and must not be changed; the file then gets no seal.
        By default, the writer puts the text into the file once, before any user data, so the first
        occurrence is the seal.
    """
    with path.open("r+b") as file:
        places = [at for at, digits in _seals(file, kind) if digits == _BLANK]
        places = places[:1] if copies is None else places
        if len(places) == (copies or 1):
            digits = _checksum(file, places)
            for at in places:
                file.seek(at)
                file.write(digits)


def flush(path: Path) -> None:
    """Wait until a file or folder has been written to disk, if the file system supports this."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def is_sealed(source: Path | bytes, kind: str) -> bool:
    """Return whether gangline wrote this file as a file of this kind, and it has not changed since.

    Parameters
    ----------
    source : Path or bytes
        The file, or its content.
    kind : str
        As for `seal`.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        found = _seals(file, kind)
        # If a file begins with its seal, any later text that looks like a seal is part of the
        # user's data.
        return any(
            {digits for _, digits in some} == {_checksum(file, [at for at, _ in some])}
            for some in (found, found[:1])
            if some
        )


def state(path: Path) -> dict[str, Any]:
    """Return the size and the CRC-32 of a file, with which `files.json` detects changes."""
    size = crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return {"bytes": size, "crc32": f"{crc:08x}"}


def is_free(path: Path, kind: str) -> bool:
    """Return whether gangline may write a file of this kind to the path.

    The result is True if the path does not exist, or if it is an empty file, a device, or an
    unchanged file of this kind.
    """
    path = landing(path)
    if not path.is_file():
        return not path.is_dir()
    return path.stat().st_size == 0 or is_sealed(path, kind)


def check_free(path: Path, kind: str) -> None:
    """Raise an OSError in advance if a file of this kind could not be written to the path.

    Raises
    ------
    FileExistsError
        If there is a file at the path that is not an unchanged file of this kind.
    """
    if not is_free(path, kind):
        words = f"exists and is not an unchanged {kind} of gangline; choose another place"
        raise FileExistsError(errno.EEXIST, words, str(path))
    check_place(path)


def _seals(file: IO[bytes], kind: str) -> list[tuple[int, bytes]]:
    """Return the positions and the digits of the seals near both ends of a file."""
    mark = unsealed(kind).encode()[:-_DIGITS]
    found: dict[int, bytes] = {}
    for start in (0, max(file.seek(0, os.SEEK_END) - _REACH, 0)):
        file.seek(start)
        part = file.read(_REACH)
        at = part.find(mark)
        while at >= 0:
            at += len(mark)
            if at + _DIGITS <= len(part):
                found[start + at] = part[at : at + _DIGITS]
            at = part.find(mark, at)
    return sorted(found.items())


def _checksum(file: IO[bytes], places: list[int]) -> bytes:
    """Return the SHA-256 of a file in hexadecimal, computed with zeros at these positions."""
    digest = hashlib.sha256()
    end = file.seek(0, os.SEEK_END)
    begin = 0
    for at in (*places, end):
        file.seek(begin)
        while begin < at and (chunk := file.read(min(_CHUNK, at - begin))):
            digest.update(chunk)
            begin += len(chunk)
        if at < end:
            digest.update(_BLANK)
            begin = at + _DIGITS
    return digest.hexdigest().encode()


def landing(path: Path) -> Path:
    """Return the target of a link, or the path itself if it is not a link.

    Raises
    ------
    OSError
        If the path cannot be resolved, for example because links form a loop, a name is too long,
        or a file is where a folder should be.
    """
    # the link may point to a name that does not exist yet
    with contextlib.suppress(FileNotFoundError):
        path.stat()
    return Path(os.path.realpath(path)) if path.is_symlink() and not _is_device(path) else path


def check_place(path: Path) -> None:
    """Raise an OSError in advance if `path` cannot be written; leave nothing behind."""
    path = landing(path)
    if _is_device(path):
        return
    folder = path if path.is_dir() else path.parent
    while not folder.exists() and not folder.is_symlink():
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    with workplace(folder, path):
        pass


@contextlib.contextmanager
def whole(path: Path, kind: str = "", copies: int | None = None) -> Iterator[Path]:
    """Yield a temporary path next to `path`, to be renamed to `path` on success.

    If `path` is a link, it stays a link, and its target is replaced. If a file is replaced, its
    mode is preserved. A device or a pipe is never replaced: the bytes are written to it once they
    are complete.

    Parameters
    ----------
    path : Path
        Path of the new file; its folder is created if necessary.
    kind, copies : str, int
        As for `seal`; a file without a kind gets no seal.

    Raises
    ------
    OSError
        If the file cannot be written; the error names `path`, and nothing is left behind.
    """
    if not path.name:  # "." and "/"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path = landing(path)
    if _is_device(path):
        with _poured(path) as part:
            yield part
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with workplace(path.parent, path) as part:
        yield part
        if kind:
            seal(part, kind, copies)
        if path.is_file():
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)


@contextlib.contextmanager
def workplace(folder: Path, target: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Yield a path in a new temporary folder inside `folder`, and remove the folder afterwards.

    With `is_folder`, yield the temporary folder itself, which the caller may rename. An OSError
    that names this path, or no path, is raised again with the name of `target`.
    """
    place = None
    try:
        if is_folder:
            place = folder / f"{PREFIX}{secrets.token_hex(8)}"
            place.mkdir()
            yield place
        else:
            place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
            yield place / "new"
    except OSError as error:
        if error.errno is None or PREFIX not in str(error.filename or PREFIX):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from None
    finally:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Keep other processes from replacing files in a folder.

    Some network file systems cannot lock files. On such file systems, checksums detect a mixture
    of old and new files.
    """
    handle = None
    with contextlib.suppress(OSError, ModuleNotFoundError):
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


@contextlib.contextmanager
def _poured(path: Path) -> Iterator[Path]:
    """Yield a temporary path in another folder; its content is written to `path` at the end."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / path.name
        yield part
        try:
            with part.open("rb") as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        except OSError as error:
            code = errno.ENOTDIR if error.errno == errno.EISDIR else error.errno or errno.EIO
            raise OSError(code, os.strerror(code), str(path)) from None
