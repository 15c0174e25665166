"""`gangline trace convert`: converts a trace from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gangline.cli import _console
from gangline.cli._inputs import Flag, Jobs, Settings, TraceChoice, say_notes
from gangline.errors import TraceError


def convert(
    trace: Jobs,
    out: Path,
    /,
    *,
    to: str | None = None,
    strict: Flag = False,
    settings: Settings = None,
    choice: Annotated[TraceChoice | None, Parameter(name="*")] = None,
) -> int:
    """Read a trace, write it in another format, and report what that format cannot hold.

    Parameters
    ----------
    trace
        A file or a generator.
    out
        File to write; a final suffix .gz compresses it. An earlier .parquet or .arrow trace is
        replaced.
    to
        Format; the default depends on the suffix: .parquet, .arrow and .csv are native, .swf is
        SWF.
    strict
        Fail if anything would be left out.
    settings
        Option of the writer as KEY=VALUE, for instance epoch=2020-04-01T00:00:00; repeatable.
    choice
        Options for reading the trace.
    """
    from gangline.trace import write_trace

    options = {key: value for key, _, value in (text.partition("=") for text in settings or [])}
    found = (choice or TraceChoice()).read(trace)
    if out.exists() and Path(trace).exists() and out.samefile(trace):
        raise TraceError(
            f"{out}: is the trace that is being read; choose another name", path=str(out)
        )
    lost = write_trace(found, out, format=to, strict=strict, **_typed(options))
    _console.say(f"{found!r} written to {out}")
    for loss in lost:
        _console.say(f"not carried: {loss}")
    say_notes(found)
    return 0


def _typed(options: dict[str, str]) -> dict[str, object]:
    """Convert the only numeric option to a number; dates stay strings."""
    return {
        key: int(value) if key == "nb_res" and value.isdigit() else value
        for key, value in options.items()
    }
