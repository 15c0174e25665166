"""The command line's entry point: commands, one-line errors and exit codes."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.safe import safe
from gangline.cli import _console, _exit, commands
from gangline.errors import GanglineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import UnknownCommandError

__all__ = ["main"]

_ELSEWHERE = "choose another path"
_NO_ROOM = f"; free some space, or {_ELSEWHERE}"
_NO_RIGHT = f"; {_ELSEWHERE}, or change its permissions"
_NO_MEMORY = "; use fewer jobs (--limit), or leave out --segments"
_HINTS = {
    errno.ELOOP: f"; the links form a loop: {_ELSEWHERE}",
    errno.ENOENT: "; check the name",
    errno.ENOTDIR: f"; a file is in the way: {_ELSEWHERE}",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: f"; {_ELSEWHERE}",
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.ENOMEM: _NO_MEMORY,
}


_AT_ONCE: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["--version"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments; by default, the arguments of this process.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    _console.open_voices()
    if tokens in _AT_ONCE:
        return _answer(tokens)
    try:
        return _carry_out(tokens)
    except KeyboardInterrupt:
        _console.say("gangline: interrupted; results already saved are kept")
        return _exit.INTERRUPTED


def _carry_out(tokens: list[str]) -> int:
    """Run a command; every user error becomes a message and an exit code."""
    from cyclopts import CycloptsError, UnknownCommandError, UnusedCliTokensError

    try:
        code = commands.app()(tokens, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        command = " ".join(["gangline", *(error.command_chain or ())])
        if isinstance(error, UnknownCommandError):
            _console.say(
                f"gangline: {_unknown_command(error)} ({command} --help lists the commands)"
            )
        else:
            is_rest = isinstance(error, UnusedCliTokensError)
            words = _rest(error.unused_tokens or []) if is_rest else _one_line(str(error))
            _console.say(f"gangline: {words} ({command} --help lists the options)")
        return _exit.USAGE
    except GanglineError as error:
        notes = getattr(error, "__notes__", ())  # for example, the round of a failed solve
        words = _as_typed(str(error), tokens)
        # Each error of a trace has its own line; line breaks in names have been escaped.
        _console.say(*"; ".join([f"gangline: {words}", *map(safe, notes)]).split("\n"))
        return _exit.code_of(error)
    except MemoryError:
        _console.say(f"gangline: out of memory{_NO_MEMORY}")
        return _exit.REFUSED
    except BrokenPipeError:
        # The reader of stdout has closed it, as with `| head`; this is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _exit.DONE
    except SystemExit as end:
        if end.code != 1:
            raise
        return (
            _exit.DONE
        )  # the library that draws tables and help ends in this way if stdout is closed
    except ModuleNotFoundError as error:
        _console.say(
            f"gangline: {error.name} is not installed; "
            "`gangline doctor` shows the command that installs it"
        )
        return _exit.USAGE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        hint = _HINTS.get(error.errno or 0, "")
        _console.say(f"gangline: {place}{error.strerror or error}{hint}")
        return _exit.USAGE
    return code if isinstance(code, int) else _exit.DONE


def _answer(tokens: list[str]) -> int:
    """Print the version or the list of commands, without the far slower parsing of options."""
    try:
        if tokens == ["--version"]:
            from gangline import _core

            _console.write(f"gangline {_core.__version__}")
        else:
            _console.write(*commands.overview().split("\n"))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _exit.DONE


_ARGUMENT_FIRST = re.compile(r"^(?:run option |options: )?(?:--)?([a-z][a-z_-]*)(?=: )")
_ARGUMENT_WITHIN = re.compile(r'(?<=as |th |se )`([a-z_]+)(?:="(\w+)")?`')  # as, with, raise


def _as_typed(words: str, tokens: Sequence[str]) -> str:
    """Replace Python arguments in an error message by command-line options."""
    flags: dict[str, str] = {}
    for argument in commands.app().parse_commands(tokens)[1][-1].assemble_argument_collection():
        typed = [name for name in argument.names if name in tokens] or argument.names
        flags |= {name.strip("-").replace("-", "_"): typed[0] for name in argument.names}

    def first(found: re.Match[str]) -> str:
        return flags.get(found[1].replace("-", "_"), found[0])

    def within(found: re.Match[str]) -> str:
        flag = flags.get(found[1])
        return found[0] if flag is None else f"`{flag} {found[2] or ''}".rstrip() + "`"

    return _ARGUMENT_WITHIN.sub(within, _ARGUMENT_FIRST.sub(first, words))


def _unknown_command(error: UnknownCommandError) -> str:
    """Describe an unknown command and suggest a similar one."""
    above = commands.app().parse_commands(error.command_chain or ())[1][-1]
    known = [name for name in above if not name.startswith("-")]
    typed = (error.unused_tokens or [""])[0]
    return f"unknown command `{typed}`{formatting.did_you_mean(typed, known)}"


def _rest(tokens: Sequence[str]) -> str:
    """Describe what is left of a command line, such as the end of a value that the shell split."""
    rest = formatting.listed([f"`{token}`" for token in tokens])
    return f"unexpected {rest}; a value with spaces, commas, braces or brackets needs quotes"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
