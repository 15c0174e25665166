"""Computes allocations by linear programming: `gl.lp.solve` and its result.

Examples
--------
>>> import gangline as gl
>>> x = gl.lp.solve("gavel-makespan", rates=[[1, 3]], scale=[1], capacity=[1, 1],
...                 steps_remaining=[30])
>>> round(x.objective, 6), x.shares.tolist()
(10.0, [[0.0, 1.0]])
"""

from gangline.lp.highs import version
from gangline.lp.instance import Allocation, load_instance
from gangline.lp.solve import POLICIES, solve

__all__ = ["POLICIES", "Allocation", "load_instance", "solve", "version"]
