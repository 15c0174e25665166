"""A socket for the messages of one scheduler; every wait on it has a limit."""

from __future__ import annotations

import ipaddress
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gangline._support.safe import safe
from gangline.errors import OptionError, PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Address", "Channel", "accept", "check_timeout", "listening", "parse"]

_CHUNK_BYTES = 65536
_UNIX = "unix:"


class Address(NamedTuple):
    """The address of a socket: a host and a port, or the path of a Unix socket.

    Attributes
    ----------
    host : str
        Name or address of the host, or the path of a Unix socket.
    port : int, optional
        None for a Unix socket.
    """

    host: str
    port: int | None

    def __str__(self) -> str:
        if self.port is None:
            return f"{_UNIX}{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Return whether only processes on this machine can connect."""
        if self.port is None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse(text: str, field: str) -> Address:
    """Read `HOST:PORT`, `[HOST]:PORT` or `unix:PATH`.

    Examples
    --------
    >>> parse("127.0.0.1:7777", "listen").port
    7777
    >>> parse("unix:run.socket", "listen").is_local
    True
    """
    if text.startswith(_UNIX) and text != _UNIX:
        return Address(text.removeprefix(_UNIX), None)
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        message = f'{field}: expected HOST:PORT or unix:PATH, got "{safe(text, 200)}"'
        raise OptionError(message, field=field, value=text)
    return Address(host, int(port))


def check_timeout(timeout_s: float) -> None:
    """Reject a limit that is not a positive number of seconds."""
    if not 0.0 < timeout_s < float("inf"):
        message = f"timeout_s: expected seconds above 0, got {timeout_s}"
        raise OptionError(message, field="timeout_s", value=timeout_s)


@contextmanager
def listening(address: Address) -> Iterator[tuple[socket.socket, Address]]:
    """Yield a listening socket and its address; for port 0, the system chooses a port."""
    if address.port is None:
        door = socket.socket(socket.AF_UNIX)
    else:
        door = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with door:
        try:
            door.bind(address.host if address.port is None else address)
        except OSError as error:
            error.filename = str(address)
            raise
        try:
            if address.port is None:
                Path(address.host).chmod(0o600)  # it does not listen yet, so no client is connected
                bound = address
            else:
                bound = address._replace(port=door.getsockname()[1])
            door.listen(1)
            yield door, bound
        finally:
            if address.port is None:
                Path(address.host).unlink(missing_ok=True)


def accept(door: socket.socket, until: float, timeout_s: float) -> Channel:
    """Wait for a scheduler to connect; `until` is a value of `time.monotonic`."""
    try:
        door.settimeout(max(until - time.monotonic(), 0.001))
        return Channel(door.accept()[0], timeout_s)
    except TimeoutError:
        message = "no scheduler connected in time"
        raise PeerError(message, reason="silent") from None


class Channel:
    """A connected socket; sending or receiving a message fails if it takes over `timeout_s`."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._buffer = bytearray()
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(self, data: bytes, timeout_s: float | None = None) -> None:
        """Send all bytes."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        self._connection.settimeout(limit_s)
        try:
            self._connection.sendall(data)
        except TimeoutError:
            raise _silent(limit_s, "read") from None
        except OSError as error:
            raise _left(error) from None

    def line(self, bytes_max: int, timeout_s: float | None = None) -> bytes:
        """Receive the bytes before the next line feed, which is dropped."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        until, seen = time.monotonic() + limit_s, 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > bytes_max:
                break
            self._receive(until, limit_s)
        if (len(self._buffer) if end < 0 else end) > bytes_max:
            message = f"the scheduler sent a message of more than {bytes_max:,} bytes"
            raise PeerError(message, reason="wrong")
        data = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return data

    def _receive(self, until: float, limit_s: float) -> None:
        self._connection.settimeout(max(until - time.monotonic(), 0.001))
        try:
            chunk = self._connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            raise _silent(limit_s, "answer") from None
        except OSError as error:
            raise _left(error) from None
        if not chunk:
            raise _left(None)
        self._buffer += chunk


def _silent(limit_s: float, what: str) -> PeerError:
    message = f"the scheduler did not {what} within {limit_s:g} s"
    return PeerError(message, reason="silent")


def _left(error: OSError | None) -> PeerError:
    why = "" if error is None else f" ({error.strerror or error})"
    return PeerError(f"the scheduler closed the connection before the end{why}", reason="left")
