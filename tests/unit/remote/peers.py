"""Schedulers for the tests of sockets, which send prepared messages in a thread."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Callable


class Peer:
    """The other end of gangline's protocol, which sends and receives lines."""

    def __init__(self, address: str) -> None:
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address.removeprefix("unix:"))
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), 20.0)
        self.socket.settimeout(20.0)
        self.lines = self.socket.makefile("rb")

    def hear(self) -> Any:
        """Return the next message, None if the connection was closed."""
        line = self.lines.readline()
        return json.loads(line) if line else None

    def say(self, message: object) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.socket.sendall(data)

    def ask(self, message: object) -> Any:
        self.say(message)
        return self.hear()

    def begin(self, **wishes: object) -> Any:
        """Advance to the first decision; return (hello, world, decision)."""
        hello = self.hear()
        world = self.ask({"type": "hello", "version": 1, **wishes})
        return hello, world, self.hear()

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def serve(run: gl.Simulation, scheduler: Callable[[Peer], object], **options: Any) -> gl.Result:
    """Drive a run by a scheduler in a thread; its failure is that of the test."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def act(address: str) -> None:
        peer = Peer(address)
        try:
            scheduler(peer)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)
        finally:
            peer.close()

    def start(address: str) -> None:
        threads.append(threading.Thread(target=act, args=[address]))
        threads[0].start()

    try:
        return gl.serve(run, on_listening=start, **{"timeout_s": 20.0, **options})
    finally:
        for thread in threads:
            thread.join(30.0)
        assert failures == []
