"""`gangline trace synth`: draws a trace."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Annotated, Any

from cyclopts import Parameter

from gangline.cli import _console, _pandas, complete
from gangline.cli._inputs import MaybeWhole, Settings, say_notes


def synth(
    shape: Annotated[str, Parameter(completer=complete.synth)],
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    jobs: MaybeWhole = None,
    seed: MaybeWhole = None,
    settings: Settings = None,
) -> int:
    """Draw a synthetic trace and write it.

    Parameters
    ----------
    shape
        philly, helios, pai, uniform, gavel, bsbf, dally-batch, dally-poisson, dally-week or
        hadar; or a spec such as synth:philly?jobs=1000.
    out
        File to write: .parquet, .arrow or .csv. An earlier .parquet or .arrow trace is replaced.
    jobs
        Number of jobs; required except for bsbf (default 160), hadar (default 480) and the dally
        shapes (default: the published number).
    seed
        The same seed gives the same jobs; default 0.
    settings
        Another parameter as KEY=VALUE; repeatable.
    """
    from urllib.parse import urlencode

    _pandas.leave_out()
    from gangline.policies.registry import parse_setting
    from gangline.trace import read_trace, write_trace

    given: dict[str, Any] = {"jobs": jobs, "seed": seed}
    given = {key: value for key, value in given.items() if value is not None}
    for text in settings or []:
        key, _ = parse_setting(text)
        given[key] = text.partition("=")[2]
    uri = shape if shape.startswith("synth:") else f"synth:{shape}"
    if given:
        uri += ("&" if "?" in uri else "?") + urlencode(given)
    trace = read_trace(uri)
    write_trace(trace, out)
    _console.say(f"{trace!r} written to {out}")
    say_notes(trace)
    return 0
