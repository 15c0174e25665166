"""`gangline trace`: draw, convert, look at and list traces."""

from __future__ import annotations

from cyclopts import App

from gangline.cli.trace_info import formats, info, validate
from gangline.cli.trace_synth import synth

app = App(name="trace", help="Draw traces, look at them, check them.")
app.command(info)
app.command(validate)
app.command(formats)
app.command(synth)
