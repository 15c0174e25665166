"""`python -m gangline` is the command `gangline`."""

from __future__ import annotations

import os
import sys

try:
    import signal  # which imports `enum`: long enough for an interrupt
except KeyboardInterrupt:
    sys.stderr.write("gangline: interrupted\n")
    sys.exit(130)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 130


def main() -> int:
    """Run the command line of the process; an interrupt never ends in a traceback."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)  # an exception amid imports might be swallowed
    from gangline.cli.app import main as run

    try:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run()
        if is_ours:  # all is done; while Python ends, any handler of ours would be gone
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # just before or after the command, which has its own answer
        code = _INTERRUPTED
    return code


def _leave(*_: object) -> NoReturn:
    os.write(2, b"gangline: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
