"""Opens what holds a trace: a file, a compressed file, or a member of a compressed archive."""

from __future__ import annotations

import hashlib
import io
import zlib
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES = 64 * 1024
_CHUNK = 1 << 20


class Source:
    """One input: `path`, or `archive::member`.

    Parameters
    ----------
    name : str or Path
        Where it is; `.gz`, `.xz`, `.zst` are unpacked by their names.
    max_bytes : int
        Most bytes after unpacking.
    """

    def __init__(self, name: str | Path, max_bytes: int) -> None:
        self.name = str(name)
        archive, separator, member = self.name.partition("::")
        self.path = Path(archive)
        self.member = member if separator else None
        self._max_bytes = max_bytes
        if not self.path.exists():
            raise FileNotFoundError(2, "no such trace file", str(self.path))
        if self.path.is_dir():
            raise IsADirectoryError(21, "expected a trace file, got a folder", str(self.path))

    @property
    def is_plain(self) -> bool:
        """Whether the bytes on disk are the trace itself."""
        return self.member is None and self.path.suffix not in (".gz", ".xz", ".zst")

    @cached_property
    def sha256(self) -> str:
        """Hash of the input as it is stored."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB after unpacking."""
        if "data" in self.__dict__:
            return self.data[:HEAD_BYTES]
        with self._open() as file:
            return self._guarded(lambda: file.read(HEAD_BYTES))

    @cached_property
    def data(self) -> bytes:
        """Everything after unpacking."""
        with self._open() as file:
            parts, total = [], 0
            while chunk := self._guarded(lambda: file.read(_CHUNK)):
                total += len(chunk)
                if total > self._max_bytes:
                    raise TraceError(
                        f"{self.name}: unpacks to more than {self._max_bytes} bytes; "
                        "raise `max_bytes` if that is meant",
                        path=self.name,
                    )
                parts.append(chunk)
        return b"".join(parts)

    def release(self) -> None:
        """Forget the unpacked bytes."""
        self.__dict__.pop("data", None)

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        import lzma

        try:
            return read()
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise TraceError(
                f"{self.name}: damaged or truncated: {error}; fetch the file again", path=self.name
            ) from None

    def _open(self) -> IO[bytes]:
        if self.member is not None:
            return self._open_member()
        suffix = self.path.suffix
        if suffix == ".gz":
            import gzip

            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        if suffix == ".xz":
            import lzma

            return cast("IO[bytes]", lzma.open(self.path, "rb"))
        if suffix == ".zst":
            import pyarrow as pa

            return cast("IO[bytes]", pa.CompressedInputStream(str(self.path), "zstd"))
        return self.path.open("rb")

    def _open_member(self) -> IO[bytes]:
        import tarfile

        try:
            with tarfile.open(self.path, "r:*") as archive:
                names = [item.name for item in archive.getmembers() if item.isfile()]
                found = self.member if self.member in names else None
                if found is None:
                    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
                    raise TraceError(
                        f"{self.path}: no member `{self.member}`; it holds {shown}",
                        path=self.name,
                        value=self.member,
                    )
                info = archive.getmember(found)
                if info.size > self._max_bytes:
                    raise TraceError(
                        f"{self.name}: unpacks to more than {self._max_bytes} bytes", path=self.name
                    )
                file = archive.extractfile(info)
                assert file is not None, "a regular file can be read"
                return io.BytesIO(self._guarded(file.read))
        except tarfile.TarError as error:
            raise TraceError(
                f"{self.path}: expected a tar archive: {error}", path=self.name
            ) from None
