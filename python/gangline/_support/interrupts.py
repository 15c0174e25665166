"""Delays a Ctrl-C interrupt while this thread holds locks that other threads need."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay an interrupt of this thread until the end of the block, which must be short.

    The conditions of `threading`, and therefore the futures of a pool, acquire their lock in Python
    code. If an interrupt arrives after the lock is acquired but before the block that would release
    it, the lock stays locked. A thread that needs the lock then waits forever, and so does the main
    thread, which waits for that thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_here = threading.current_thread() is threading.main_thread()
    if not is_here or not callable(handler):  # only the main thread receives interrupts
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *given: held.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
