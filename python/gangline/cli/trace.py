"""`gangline trace`: draw, convert, check, fit, look at and list traces."""

from __future__ import annotations

from cyclopts import App

from gangline.cli.trace_convert import convert
from gangline.cli.trace_fit import fit
from gangline.cli.trace_info import formats, info, validate
from gangline.cli.trace_synth import synth

app = App(name="trace", help="Draw, convert, check and look at traces.")
app.command(info)
app.command(validate)
app.command(formats)
app.command(convert)
app.command(synth)
app.command(fit)
