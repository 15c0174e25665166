"""Reads, draws, writes and inspects traces.

- `read`, `write`, `formats`: opening and saving traces, and the formats of both
- `jobs`: the table of jobs, its options and checks, and its conversion for the compiled core
- `readers`, `writers`: one module per format
- `synth`: the generators
"""

from gangline.trace import synth
from gangline.trace.jobs.table import Trace
from gangline.trace.read import read_trace
from gangline.trace.write import write_trace

__all__ = ["Trace", "read_trace", "synth", "write_trace"]
