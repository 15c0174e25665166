"""`gangline trace`: draws, converts, checks, fits, inspects and lists traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts import App

from gangline.cli.commands import examples
from gangline.cli.trace_convert import convert
from gangline.cli.trace_fit import fit
from gangline.cli.trace_fit_runtime import fit_runtime
from gangline.cli.trace_info import formats, info, validate
from gangline.cli.trace_synth import synth

if TYPE_CHECKING:
    from collections.abc import Callable

app = App(name="trace", help="Inspect, check, convert, draw and fit traces.")
# functions instead of import paths, because `gangline trace --help` shows no text for a path
_COMMANDS: dict[str, Callable[..., Any]] = {
    "info": info,
    "validate": validate,
    "formats": formats,
    "convert": convert,
    "synth": synth,
    "fit": fit,
    "fit-runtime": fit_runtime,
}
for _name, _function in _COMMANDS.items():
    app.command(_function, name=_name, help_epilogue=examples(f"trace {_name}"))
