"""Runs the command `gangline` as `python -m gangline`."""

from __future__ import annotations

import _thread
import os
import sys
import time

try:
    import signal  # this imports `enum`, which takes long enough to be interrupted
except KeyboardInterrupt:
    sys.stderr.write("gangline: interrupted\n")
    sys.exit(130)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 130
# Our own choice: an interrupted command needs far less time to save its results and end.
_PATIENCE_S = 10


def main() -> int:
    """Run the command that `sys.argv` holds; an interrupt never shows a traceback."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)  # an exception during imports might be swallowed
    from gangline.cli.app import main as run

    try:
        if is_ours:
            signal.signal(signal.SIGINT, _interrupt)
        code = run()
        if is_ours:  # the work is done, and nothing handles interrupts while Python shuts down
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    # the interrupt came just before or after the command, which handles interrupts itself
    except KeyboardInterrupt:
        code = _INTERRUPTED
    return code


def _interrupt(*_: object) -> NoReturn:
    """Let the command end on its own; a second interrupt or a long delay ends the process.

    Raising an exception would not be enough: an import or a destructor can swallow it, and a solver
    can be busy.
    """

    def leave_later() -> None:
        time.sleep(_PATIENCE_S)
        _leave()

    signal.signal(signal.SIGINT, _leave)
    _thread.start_new_thread(leave_later, ())
    raise KeyboardInterrupt


def _leave(*_: object) -> NoReturn:
    os.write(2, b"gangline: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
