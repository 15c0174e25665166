"""Opens the source of a trace: a plain or compressed file, or a file in an archive."""

from __future__ import annotations

import hashlib
import io
import lzma
import threading
import zlib
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from gangline._support.interrupts import uninterrupted
from gangline.errors import TraceError
from gangline.files.faults import short
from gangline.files.tar import Tar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_T = TypeVar("_T")

HEAD_BYTES = 64 * 1024
_CHUNK = 1 << 20
_CELL_BYTES = 8  # bytes of a number in memory; the offset of a text needs the same number
_LZMA_MEMORY = 1 << 29  # Our own choice: `xz -9` needs 65 MiB, and a header may ask for 4 GiB.
_MEMBERS_SHOWN = 10
BUNDLED = "mini:"  # the prefix of the names of bundled traces
_BUNDLED_SUFFIXES = (".parquet", ".gz")
_BUNDLED = Path(__file__).parents[1] / "trace" / "mini"
_SUFFIXES = (".gz", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


class Source:
    """One input: `path`, `archive::member`, or `mini:NAME` for a trace that comes with gangline.

    Parameters
    ----------
    name : str or Path
        The path; gzip, xz and zstandard are recognised by suffix or content.
    max_bytes : int
        Maximum number of bytes after unpacking, for the text and also for the columns made from it.
        In an archive, all bytes up to the end of the member count towards this limit.

    Raises
    ------
    OSError
        If the file does not exist.
    TraceError
        If no trace of that name comes with gangline.
    """

    def __init__(self, name: str | Path, max_bytes: int) -> None:
        self.name = str(name)
        archive, separator, member = self.name.partition("::")
        self.path = _bundled(archive) if archive.startswith(BUNDLED) else Path(archive)
        self.member = member if separator else None
        self.max_bytes = max_bytes
        self._hashing: threading.Thread | None = None
        self._digest = ""
        if "\0" in archive or not self.path.exists():
            if "{trace_seed}" in archive:
                message = f"{archive}: no such file; only a sweep replaces {{trace_seed}}"
                raise TraceError(message, path=archive)
            raise FileNotFoundError(2, "no such file", archive.replace("\0", "\\0"))
        self.is_folder = self.path.is_dir()

    @cached_property
    def _packing(self) -> str:
        if self.path.suffix in _SUFFIXES:
            return self.path.suffix
        if not self.path.is_file():  # a pipe can be read only once
            return ""
        with self.path.open("rb") as file:
            start = file.read(6)
        return next((suffix for magic, suffix in _MAGIC.items() if start.startswith(magic)), "")

    @property
    def is_plain(self) -> bool:
        """Return whether the file is the trace itself, neither compressed nor in an archive."""
        return self.member is None and not self._packing

    @property
    def sha256(self) -> str:
        """Hash of the stored bytes of the input."""
        self.start_hash()
        assert self._hashing is not None, "the hash has just been started"
        self._hashing.join()
        return self._digest

    def start_hash(self) -> None:
        """Hash the input in the background; the GIL is released while large pieces are hashed."""
        if self._hashing is None:
            hashing = threading.Thread(target=self._hash)
            with uninterrupted():
                hashing.start()
            self._hashing = hashing

    def _hash(self) -> None:
        if self.is_plain and "data" in self.__dict__:
            self._digest = hashlib.sha256(self.data).hexdigest()
            return
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError:  # the file has disappeared; the trace can be used without a hash
            return
        self._digest = digest.hexdigest()

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB after unpacking."""
        if "data" in self.__dict__ or self.member is not None or not self.path.is_file():
            return self.data[:HEAD_BYTES]
        with self._open() as file:
            return self.guarded(lambda: file.read(HEAD_BYTES))

    @cached_property
    def data(self) -> bytes:
        """Everything after unpacking."""
        if self.is_folder:
            raise IsADirectoryError(21, "expected a trace file, got a folder", str(self.path))
        if self.member is not None:
            return self.guarded(self._read_member)
        if self.is_plain and self.path.is_file():
            if self.path.stat().st_size > self.max_bytes:
                raise self.too_large()
            return self.path.read_bytes()
        with self._open() as file:
            pieces = iter(lambda: self.guarded(lambda: file.read(_CHUNK)), b"")
            return b"".join(self._chunks(pieces))

    def release(self) -> None:
        """Wait until the hash is computed, and free the unpacked bytes."""
        if self._hashing is not None:
            self._hashing.join()
        self.__dict__.pop("data", None)

    def _chunks(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        total = 0
        for piece in pieces:
            total += len(piece)
            if total > self.max_bytes:
                raise self.too_large()
            yield piece

    def has_room(self, rows: int, columns: int) -> bool:
        """Return whether this many rows of numbers fit in `max_bytes`."""
        return rows * columns * _CELL_BYTES <= self.max_bytes

    def admit(self, rows: int, columns: int) -> None:
        """Raise a TraceError if this many rows do not fit in `max_bytes`."""
        if not self.has_room(rows, columns):
            raise self.too_large(f"holds {rows:,} rows, which take")

    def too_large(self, words: str = "unpacks to") -> TraceError:
        """Build the error for an input that exceeds `max_bytes`."""
        return TraceError(
            f"{self.name}: {words} more than {self.max_bytes} bytes; "
            "raise `max_bytes` if this is intended",
            path=self.name,
        )

    def guarded(self, read: Callable[[], _T]) -> _T:
        """Call a function that unpacks data; damaged data raises a TraceError."""
        try:
            return read()
        except TraceError:
            raise
        except (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise TraceError(
                f"{self.name}: damaged or truncated: {error}; fetch the file again",
                path=self.name,
                value=str(error),
                expected="a complete file",
            ) from None

    def _open(self) -> IO[bytes]:
        if self._packing == ".gz":
            import gzip

            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        if self._packing == ".xz":
            return cast("IO[bytes]", io.BufferedReader(_XzFile(self.path), _CHUNK))
        if self._packing == ".zst":
            import pyarrow as pa

            return cast("IO[bytes]", pa.CompressedInputStream(str(self.path), "zstd"))
        return self.path.open("rb")

    def members(self) -> str:
        """Return the names of the first files of an archive, and whether there are more."""

        def first() -> list[str]:
            with self.archive() as archive:
                return list(islice(archive, _MEMBERS_SHOWN + 1))

        return _listed(self.guarded(first))

    def _read_member(self) -> bytes:
        if self.is_folder:
            raise IsADirectoryError(21, "expected an archive, got a folder", str(self.path))
        wanted = (self.member or "").removeprefix("./")
        names: list[str] = []
        with self.archive() as archive:
            for name in archive:
                if name.removeprefix("./") == wanted:
                    return b"".join(self._chunks(archive.chunks()))
                if len(names) <= _MEMBERS_SHOWN:
                    names.append(name)
        raise TraceError(
            f"{self.path}: no member `{short(self.member)}`; it holds {_listed(names)}",
            path=self.name,
            value=self.member,
        )

    @contextmanager
    def archive(self) -> Iterator[Tar]:
        """Open the archive as a size-limited, forward-only stream."""
        with self._open() as file:
            yield Tar(_Bounded(file, self.max_bytes, self.too_large), str(self.path))


def _listed(names: list[str]) -> str:
    more = [] if len(names) <= _MEMBERS_SHOWN else ["and more"]
    return ", ".join([*map(short, names[:_MEMBERS_SHOWN]), *more]) or "no files"


class _XzFile(io.RawIOBase):
    """Reads an xz stream; memory is limited, whatever the header of the stream requests."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = self._fresh()
        self._rest = b""

    @staticmethod
    def _fresh() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decoder.eof:
                # Another stream may follow after padding with zeros.
                self._rest = (self._decoder.unused_data or self._file.read(_CHUNK)).lstrip(b"\0")
                if not self._rest:
                    return 0
                self._decoder = self._fresh()
            elif self._decoder.needs_input:
                self._rest = self._file.read(_CHUNK)
                if not self._rest:
                    raise EOFError("the xz stream ends before its end marker")
            data = self._decoder.decompress(self._rest, max_length=len(buffer))
            self._rest = b""
            if data:
                buffer[: len(data)] = data
                return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Bounded:
    """Reads from a stream, up to a given number of bytes."""

    def __init__(self, file: IO[bytes], limit: int, error: Callable[[], TraceError]) -> None:
        self._file = file
        self._left = limit + 2 * io.DEFAULT_BUFFER_SIZE + HEAD_BYTES  # headers and padding
        self._error = error

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._error()
        return data


def bundled() -> list[str]:
    """Return the sorted names of the traces that come with gangline."""
    return sorted(_bundled_files())


def _bundled(name: str) -> Path:
    known = _bundled_files()
    if name not in known:
        listed = ", ".join(sorted(known))
        raise TraceError(f"{name}: no such bundled trace; known: {listed}", path=name)
    return known[name]


def _bundled_files() -> dict[str, Path]:
    """Return the files of the bundled traces by name, without the manifest."""
    files = (path for path in _BUNDLED.iterdir() if path.suffix in _BUNDLED_SUFFIXES)
    return {f"{BUNDLED}{path.name.partition('.')[0]}": path for path in files}
