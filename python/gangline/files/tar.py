"""Reads tar archives as streams: each byte is read once, and headers and members are limited.

The standard library takes minutes to hours to read a malicious header of one megabyte. This module
needs only to read files in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Stream", "Tar", "is_tar"]

_BLOCK = 512
_CHUNK = 1 << 20
# Our own choice: a name has at most 4096 bytes on the systems on which such archives are made.
_HEADER_MAX = 1 << 16
# Our own choice: the largest public archive of traces has a few hundred members.
_MEMBERS_MAX = 20_000
_MAGIC = slice(257, 263)
_FILES = (b"0", b"\0", b"7")
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
_EXTENDED = (b"x", b"X")
_LONG_NAME, _LONG_LINK, _GLOBAL, _SPARSE = b"L", b"K", b"g", b"S"
_DIGITS = 20  # the maximum number of digits of a length or size


class Stream(Protocol):
    """The file object of an archive."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; fewer than requested only at the end of the file."""


class Tar:
    """The files of an archive in order; the bytes of the current file can be read.

    Parameters
    ----------
    stream : Stream
        The unpacked archive.
    name : str
        Name of the archive, for messages.

    Raises
    ------
    TraceError
        If the file is not an archive, ends early, has too many members, or has a header that is too
        long.
    """

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._left = 0  # remaining bytes of the current file
        self._padding = 0

    def __iter__(self) -> Iterator[str]:
        long_name, long_size = "", -1
        for number in range(_MEMBERS_MAX + 1):
            header = self._header(number)
            if header is None:
                return
            kind = header[156:157]
            size = _number(header[124:136]) if long_size < 0 else long_size
            if size is None or kind == _SPARSE:
                raise self.error("a sparse file" if size is not None else "an invalid size")
            self._left = 0 if kind in _WITHOUT_DATA else size
            self._padding = -self._left % _BLOCK
            if kind in _EXTENDED:
                long_name, long_size = self._records(long_name)
            elif kind == _LONG_NAME:
                long_name = _text(self._whole())
            elif kind not in (_LONG_LINK, _GLOBAL):
                if kind in _FILES and not (name := long_name or _name(header)).endswith("/"):
                    yield name
                long_name, long_size = "", -1
            self._skip()
        raise self.error(f"more than {_MEMBERS_MAX} members")

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the current file."""
        while self._left:
            chunk = self._stream.read(min(self._left, _CHUNK))
            if not chunk:
                raise EOFError("the archive ends within a file")
            self._left -= len(chunk)
            yield chunk

    def error(self, words: str) -> TraceError:
        """Build the error for an archive that cannot be read any further."""
        return TraceError(f"{self._name}: expected a tar archive: it has {words}", path=self._name)

    def _header(self, number: int) -> bytes | None:
        try:
            header = self._exactly(_BLOCK, may_end=True)
        except EOFError:
            if number:
                raise
            raise self.error("no header") from None
        if not header.strip(b"\0"):
            if not header and not number:
                raise self.error("no header")
            return None  # the archive ends with zeros or with nothing
        stated = _number(header[148:156])
        blank = header[:148] + b" " * 8 + header[156:]
        # some old writers sum signed bytes
        signed = sum(blank) - 256 * sum(byte > 0x7F for byte in blank)
        if stated not in (sum(blank), signed):
            raise self.error("a damaged header" if number else "no header")
        return header

    def _records(self, name: str) -> tuple[str, int]:
        """Return the name in an extended header, and the size if the header contains it.

        Such a header is a list of records "length key=value", each followed by a newline.
        """
        data = self._whole()
        size = -1
        at = 0
        while at < len(data) and data[at]:
            blank = data.find(b" ", at, at + _DIGITS)
            length = data[at:blank] if blank >= 0 else b""
            end = at + int(length) if length.isdigit() else at
            if end <= blank + 1 or data[end - 1 : end] != b"\n":
                raise self.error("a damaged extended header")
            key, _, value = data[blank + 1 : end - 1].partition(b"=")
            if key.startswith(b"GNU.sparse."):
                raise self.error("a sparse file")
            if key == b"path":
                name = _text(value)
            if key == b"size":
                if not value.isdigit() or len(value) > _DIGITS:
                    raise self.error("an invalid size")
                size = int(value)
            at = end
        return name, size

    def _whole(self) -> bytes:
        """Return the contents of an extended header, which is stored like a file."""
        if self._left > _HEADER_MAX:
            raise self.error(f"a header of more than {_HEADER_MAX} bytes")
        return b"".join(self.chunks())

    def _skip(self) -> None:
        for _ in self.chunks():
            pass
        self._exactly(self._padding, may_end=True)

    def _exactly(self, size: int, *, may_end: bool = False) -> bytes:
        parts = []
        while size and (part := self._stream.read(size)):
            parts.append(part)
            size -= len(part)
        data = b"".join(parts)
        if size and not (may_end and not data):
            raise EOFError("the archive ends within a block")
        return data


def _number(field: bytes) -> int | None:
    """Parse a number in a header: octal digits, or binary for large numbers; None if neither."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    try:
        return int(digits, 8) if digits.isdigit() else None
    except ValueError:
        return None


def _name(header: bytes) -> str:
    name, prefix = header[:100].partition(b"\0")[0], header[345:500].partition(b"\0")[0]
    return _text(prefix + b"/" + name if prefix and header[_MAGIC] == b"ustar\0" else name)


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "surrogateescape")


def is_tar(head: bytes) -> bool:
    """Return whether these bytes begin a tar archive."""
    return head[_MAGIC][:5] == b"ustar"
