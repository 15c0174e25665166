"""Advises on the scheduler and the number of servers from a log, and shows which users gain.

Examples
--------
>>> import gangline as gl
>>> jobs = "synth:pai?jobs=300&seed=0&max_gpus=16&users=5&load=1&cluster_gpus=32"
>>> found = gl.advise("8x4xV100", jobs, ["fifo", "srtf"], servers=[8, 10])
>>> found.base, len(found.options)
('fifo', 4)
"""

from gangline.studies.advise.advice import Advice
from gangline.studies.advise.face import advise
from gangline.studies.advise.facts import Claim, Facts
from gangline.studies.advise.options import Affected, Option

__all__ = ["Advice", "Affected", "Claim", "Facts", "Option", "advise"]
