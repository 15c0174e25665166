"""Reads tables of measured rates: of whole gangs, of pairs that share GPUs, and of elastic jobs.

Examples
--------
>>> import gangline as gl
>>> import pyarrow as pa
>>> measured = pa.table(
...     {
...         "gpu_type": ["V100", "V100"],
...         "model": ["VGG16", "VGG16"],
...         "gpus": [1, 4],
...         "iters_per_s": [3.0, 10.0],
...     }
... )
>>> table = gl.tables.ThroughputTable.from_arrow(measured)
>>> table.rate("V100", "VGG16", 4)
10.0
"""

from gangline.cluster.tables.files import read_throughput
from gangline.cluster.tables.fit import StepFit, fit_pollux
from gangline.cluster.tables.interference import interference_of, read_interference
from gangline.cluster.tables.pollux import PolluxProfile, PolluxProfiles, read_pollux
from gangline.cluster.tables.throughput import ThroughputTable

__all__ = [
    "PolluxProfile",
    "PolluxProfiles",
    "StepFit",
    "ThroughputTable",
    "fit_pollux",
    "interference_of",
    "read_interference",
    "read_pollux",
    "read_throughput",
]
