"""Opens what holds a trace: a file, a compressed file, a member of an archive, or a folder."""

from __future__ import annotations

import hashlib
import io
import lzma
import threading
import zlib
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from gangline.errors import TraceError

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Iterator

HEAD_BYTES = 64 * 1024
_CHUNK = 1 << 20
_LZMA_MEMORY = 1 << 29  # ours: `xz -9` needs 65 MiB; a header may ask for 4 GiB
_MEMBERS_SHOWN = 10
_SUFFIXES = (".gz", ".xz", ".zst")
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_TAR_MAGIC_AT = 257


class Source:
    """One input: `path`, or `archive::member`.

    Parameters
    ----------
    name : str or Path
        Where it is; gzip, xz and zstandard are recognised by suffix or by content.
    max_bytes : int
        Most bytes after unpacking; of an archive all bytes up to the end of the member count.

    Raises
    ------
    OSError
        If it is absent.
    """

    def __init__(self, name: str | Path, max_bytes: int) -> None:
        self.name = str(name)
        archive, separator, member = self.name.partition("::")
        self.path = Path(archive)
        self.member = member if separator else None
        self.max_bytes = max_bytes
        self._hashing: threading.Thread | None = None
        self._digest = ""
        if "\0" in archive or not self.path.exists():
            raise FileNotFoundError(2, "no such trace file", archive.replace("\0", "\\0"))
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
        """Whether the bytes on disk are the trace itself."""
        return self.member is None and not self._packing

    @property
    def sha256(self) -> str:
        """Hash of the input as it is stored."""
        self.start_hash()
        assert self._hashing is not None, "it was just started"
        self._hashing.join()
        return self._digest

    def start_hash(self) -> None:
        """Hash the input in the background; hashing large pieces needs no interpreter."""
        if self._hashing is None:
            self._hashing = threading.Thread(target=self._hash)
            self._hashing.start()

    def _hash(self) -> None:
        if self.is_plain and "data" in self.__dict__:
            self._digest = hashlib.sha256(self.data).hexdigest()
            return
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError:  # it was read a moment ago; a file without a hash is still a trace
            return
        self._digest = digest.hexdigest()

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB after unpacking."""
        if "data" in self.__dict__ or self.member is not None or not self.path.is_file():
            return self.data[:HEAD_BYTES]
        with self._open() as file:
            return self._guarded(lambda: file.read(HEAD_BYTES))

    @cached_property
    def data(self) -> bytes:
        """Everything after unpacking."""
        if self.is_folder:
            raise IsADirectoryError(21, "expected a trace file, got a folder", str(self.path))
        if self.member is not None:
            return self._guarded(self._read_member)
        if self.is_plain and self.path.is_file():
            if self.path.stat().st_size > self.max_bytes:
                raise self._too_large()
            return self.path.read_bytes()
        with self._open() as file:
            return b"".join(self._chunks(file))

    def release(self) -> None:
        """Wait for the hash and forget the unpacked bytes."""
        if self._hashing is not None:
            self._hashing.join()
        self.__dict__.pop("data", None)

    def _chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        total = 0
        while chunk := self._guarded(lambda: file.read(_CHUNK)):
            total += len(chunk)
            if total > self.max_bytes:
                raise self._too_large()
            yield chunk

    def _too_large(self) -> TraceError:
        return TraceError(
            f"{self.name}: unpacks to more than {self.max_bytes} bytes; "
            "raise `max_bytes` if that is meant",
            path=self.name,
        )

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        import tarfile

        try:
            return read()
        except TraceError:
            raise
        except tarfile.TarError as error:
            raise TraceError(
                f"{self.path}: expected a tar archive: {error}", path=self.name
            ) from None
        except (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise TraceError(
                f"{self.name}: damaged or truncated: {error}; fetch the file again", path=self.name
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
        """Name the first files of an archive, and how many more it holds."""

        def listed() -> bytes:
            with self._archive() as archive:
                return _listed([info.name for info in archive if info.isfile()]).encode()

        return self._guarded(listed).decode()

    def _read_member(self) -> bytes:
        if self.is_folder:
            raise IsADirectoryError(21, "expected an archive, got a folder", str(self.path))
        names: list[str] = []
        with self._archive() as archive:
            for info in archive:
                if not info.isfile():
                    continue
                names.append(info.name)
                if info.name.removeprefix("./") == (self.member or "").removeprefix("./"):
                    member = archive.extractfile(info)
                    assert member is not None, "a regular file can be read"
                    return b"".join(self._chunks(member))
        raise TraceError(
            f"{self.path}: no member `{self.member}`; it holds {_listed(names)}",
            path=self.name,
            value=self.member,
        )

    @contextmanager
    def _archive(self) -> Iterator[tarfile.TarFile]:
        """Open as a stream, which never goes back: unpacked once, and bounded."""
        import tarfile

        with self._open() as file:
            stream = _Bounded(file, self.max_bytes, self._too_large)
            with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
                yield archive


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MEMBERS_SHOWN])
    more = len(names) - _MEMBERS_SHOWN
    return (shown or "no files") + (f", and {more} more" if more > 0 else "")


class _XzFile(io.RawIOBase):
    """An xz stream whose header cannot make us allocate more than we want."""

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
                # Another stream may follow, after padding by zeros.
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
    """Reads from a stream until a number of bytes went through."""

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


def is_tar(head: bytes) -> bool:
    """Whether these bytes begin a tar archive."""
    return head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar"
