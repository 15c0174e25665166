"""Draws traces that resemble public traces; the same seed gives the same bytes on all platforms.

Examples
--------
>>> import gangline as gl
>>> trace = gl.synth.philly(jobs=100, seed=1)
>>> len(trace)
100
>>> gl.synth.philly(jobs=100, seed=1).table.equals(trace.table)
True
"""

from gangline.trace.synth.generators import (
    SHAPES,
    bsbf,
    dally_batch,
    dally_poisson,
    dally_week,
    from_uri,
    gavel,
    generate,
    hadar,
    helios,
    pai,
    philly,
    uniform,
)

__all__ = [
    "SHAPES",
    "bsbf",
    "dally_batch",
    "dally_poisson",
    "dally_week",
    "from_uri",
    "gavel",
    "generate",
    "hadar",
    "helios",
    "pai",
    "philly",
    "uniform",
]
