"""The request side of ZeroMQ over TCP: as much of ZMTP 3.0 as Batsim's protocol needs.

ZMTP 3.0 is https://rfc.zeromq.org/spec/23/. A request socket sends a message and receives the
answer to it, in turn; there is no encryption and no password.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

from gangline.errors import PeerError
from gangline.remote.channel import Channel

if TYPE_CHECKING:
    from gangline.remote.channel import Address

__all__ = ["RequestSocket"]

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_GREETING = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
_SHORT_MAX = 255
_RETRY_S = 0.1  # ours: as ZeroMQ, which tries again every 100 ms


class RequestSocket:
    """Connects to a reply socket, which need not be there yet.

    Parameters
    ----------
    address : Address
        Where the reply socket is bound.
    timeout_s : float
        Maximum number of seconds to wait for it, and for each message.
    bytes_max : int
        Maximum size of a message that is received.
    """

    def __init__(self, address: Address, timeout_s: float, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._channel = _connect(address, timeout_s)
        try:
            self._shake_hands()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RequestSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def ask(self, request: bytes) -> bytes:
        """Send a request; return the reply."""
        self._channel.send(_frame(_MORE, b"") + _frame(0, request))
        frames = [self._frame()]
        while frames[-1][0] & _MORE:
            frames.append(self._frame())
        if len(frames) != 2 or frames[0][1]:
            raise _wrong("a reply of an empty and a full frame was expected")
        return frames[1][1]

    def _shake_hands(self) -> None:
        self._channel.send(_GREETING)
        greeting = self._channel.exactly(len(_GREETING))
        if (greeting[0], greeting[9]) != (0xFF, 0x7F) or greeting[10] < 3:
            raise _wrong("no greeting of ZMTP 3")
        if greeting[12:32].rstrip(b"\0") != b"NULL":
            raise _wrong("it asks for a security mechanism, and only NULL is known here")
        self._channel.send(_frame(_COMMAND, _ready(b"REQ")))
        flags, body = self._receive()
        if not flags & _COMMAND or not body.startswith(b"\x05READY"):
            raise _wrong("READY was expected")
        if not any(kind in body for kind in (_property(b"REP"), _property(b"ROUTER"))):
            raise _wrong("its socket is neither REP nor ROUTER")

    def _frame(self) -> tuple[int, bytes]:
        """Return the next frame of a message; commands between messages are passed over."""
        flags, body = self._receive()
        while flags & _COMMAND:
            flags, body = self._receive()
        return flags, body

    def _receive(self) -> tuple[int, bytes]:
        flags = self._channel.exactly(1)[0]
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise _wrong("a frame has unknown flags")
        size = (
            struct.unpack(">Q", self._channel.exactly(8))[0]
            if flags & _LONG
            else self._channel.exactly(1)[0]
        )
        if size > self._bytes_max:
            raise _wrong(f"a message of more than {self._bytes_max:,} bytes")
        return flags, self._channel.exactly(size)


def _connect(address: Address, timeout_s: float) -> Channel:
    until = time.monotonic() + timeout_s
    while True:
        try:
            left_s = max(until - time.monotonic(), 0.001)
            return Channel(
                socket.create_connection((address.host, address.port), left_s), timeout_s
            )
        except (ConnectionRefusedError, TimeoutError):
            if time.monotonic() + _RETRY_S >= until:
                message = f"no scheduler was at {address} within {timeout_s:g} s"
                raise PeerError(message, reason="silent") from None
            time.sleep(_RETRY_S)
        except OSError as error:
            error.filename = str(address)
            raise


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) > _SHORT_MAX:
        return struct.pack(">BQ", flags | _LONG, len(body)) + body
    return struct.pack(">BB", flags, len(body)) + body


def _property(value: bytes) -> bytes:
    return b"\x0bSocket-Type" + struct.pack(">I", len(value)) + value


def _ready(kind: bytes) -> bytes:
    return b"\x05READY" + _property(kind) + b"\x08Identity" + bytes(4)


def _wrong(why: str) -> PeerError:
    return PeerError(f"the scheduler does not speak ZeroMQ as expected: {why}", reason="wrong")
