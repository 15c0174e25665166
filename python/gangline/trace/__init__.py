"""Traces: read, draw, write, look at."""

from gangline.trace import synth
from gangline.trace.read import read_trace
from gangline.trace.table import Trace
from gangline.trace.write import write_trace

__all__ = ["Trace", "read_trace", "synth", "write_trace"]
