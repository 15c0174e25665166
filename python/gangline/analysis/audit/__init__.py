"""Looks for broken rules in any simulator's tables, which say when and where each job ran.

Examples
--------
>>> import gangline as gl
>>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
>>> rows = {"job_id": ["a", "b"], "start_s": [0.0, 5.0], "end_s": [9.0, 7.0], "gpus": [2, 1]}
>>> import pyarrow as pa
>>> found = gl.audit(pa.table(rows), lab)
>>> found.ok, found.counts
(False, {'capacity': 1, 'utilisation': 1})
"""

from __future__ import annotations

from gangline.analysis.audit.face import Audit, audit

__all__ = ["Audit", "audit"]
