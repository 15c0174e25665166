"""`gangline trace`: draw, convert, check, fit, look at and list traces."""

from __future__ import annotations

from cyclopts import App

from gangline.cli.commands import examples

app = App(name="trace", help="Look at, check, convert, draw and fit traces.")
for _name, _place in {
    "info": "trace_info:info",
    "validate": "trace_info:validate",
    "formats": "trace_info:formats",
    "convert": "trace_convert:convert",
    "synth": "trace_synth:synth",
    "fit": "trace_fit:fit",
    "fit-runtime": "trace_fit_runtime:fit_runtime",
}.items():
    app.command(f"gangline.cli.{_place}", name=_name, help_epilogue=examples(f"trace {_name}"))
