"""Plans capacity: finds the fewest servers, or the largest load, that meet targets.

Examples
--------
>>> import gangline as gl
>>> lab = gl.Cluster.homogeneous(servers=8, gpus=4)
>>> jobs = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=32"
>>> gl.plan_capacity(lab, jobs, "srtf", keep=["p95_wait < 1h", "mean_jct <= 8h"]).answer
10
"""

from gangline.studies.capacity.contest import CapacityContest
from gangline.studies.capacity.plan import plan_capacity
from gangline.studies.capacity.result import CapacityPlan, Point

__all__ = ["CapacityContest", "CapacityPlan", "Point", "plan_capacity"]
