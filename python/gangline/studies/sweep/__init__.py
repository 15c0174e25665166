"""Carries out sweeps: many runs from one description, saved in a folder that later sweeps reuse.

Examples
--------
>>> import gangline as gl, tempfile
>>> done = gl.sweep(
...     {"grid": {"trace": ["synth:philly?jobs=20&seed={trace_seed}&max_gpus=8"],
...               "trace_seed": [0, 1], "cluster": ["pollux-64"], "policy": ["fifo", "srtf"]}},
...     out=tempfile.mkdtemp(), workers=1,
... )
>>> done.counts["finished"], done.table.num_rows
(4, 4)
"""

from gangline.studies.sweep.run import Sweep, sweep

__all__ = ["Sweep", "sweep"]
