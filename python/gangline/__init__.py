"""gangline: exact and fast simulation of deep-learning job scheduling on GPU clusters.

Examples
--------
>>> import gangline as gl
>>> cluster = gl.Cluster.homogeneous(servers=2, gpus=4, gpu="V100")
>>> trace = gl.synth.philly(jobs=50, seed=1, max_gpus=8)
>>> result = gl.simulate(cluster, trace, "srtf")
>>> result.summary["finished"]
50
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from gangline.audit import Audit, audit
from gangline.capacity import plan
from gangline.compare import compare
from gangline.errors import (
    ClusterError,
    GanglineError,
    InfeasibleJobError,
    MergeError,
    MissingDuration,
    MissingExtraError,
    MissingThroughput,
    NetworkError,
    OptionError,
    OutOfMemoryError,
    PlacementError,
    PlanError,
    PolicyError,
    ResultError,
    SolverError,
    StalledError,
    TraceError,
    UnknownModel,
)
from gangline.offered_load import offered_load
from gangline.simulate import run, simulate
from gangline.sweep import sweep

if TYPE_CHECKING:
    import gangline.bench as bench
    import gangline.hadare as hadare
    import gangline.lp as lp
    import gangline.network as network
    import gangline.plot as plot
    import gangline.policies as policies
    import gangline.report as report
    import gangline.reproduce as reproduce
    import gangline.sharing as sharing
    import gangline.tables as tables
    import gangline.testing as testing
    from gangline.cluster import Cluster, Sharing, read_cluster
    from gangline.comparison import Comparison
    from gangline.load import load_result
    from gangline.offered_load import OfferedLoad
    from gangline.policies.protocol import STEADY, Changes, Plan, Policy, Reason, View
    from gangline.result import Result
    from gangline.run_spec import RunSpec
    from gangline.sweep import Sweep
    from gangline.trace import Trace, read_trace, synth, write_trace

    __version__: str

__all__ = [
    "STEADY",
    "Audit",
    "Changes",
    "Cluster",
    "ClusterError",
    "Comparison",
    "GanglineError",
    "InfeasibleJobError",
    "MergeError",
    "MissingDuration",
    "MissingExtraError",
    "MissingThroughput",
    "NetworkError",
    "OfferedLoad",
    "OptionError",
    "OutOfMemoryError",
    "PlacementError",
    "Plan",
    "PlanError",
    "Policy",
    "PolicyError",
    "Reason",
    "Result",
    "ResultError",
    "RunSpec",
    "Sharing",
    "SolverError",
    "StalledError",
    "Sweep",
    "Trace",
    "TraceError",
    "UnknownModel",
    "View",
    "__version__",
    "audit",
    "bench",
    "compare",
    "hadare",
    "load_result",
    "lp",
    "network",
    "offered_load",
    "plan",
    "plot",
    "policies",
    "read_cluster",
    "read_trace",
    "report",
    "reproduce",
    "run",
    "sharing",
    "simulate",
    "sweep",
    "synth",
    "tables",
    "testing",
    "write_trace",
]

# Names are loaded on first use: `gangline --help` must not pay for numpy and pyarrow.
# `audit`, `compare`, `offered_load`, `simulate` and `sweep` are also names of modules, so they are
# bound above, for good.
_HOMES = {
    "STEADY": "gangline.policies.protocol",
    "Changes": "gangline.policies.protocol",
    "Plan": "gangline.policies.protocol",
    "Policy": "gangline.policies.protocol",
    "View": "gangline.policies.protocol",
    "Cluster": "gangline.cluster",
    "Sharing": "gangline.cluster",
    "Comparison": "gangline.comparison",
    "read_cluster": "gangline.cluster",
    "OfferedLoad": "gangline.offered_load",
    "Reason": "gangline.policies.protocol",
    "Result": "gangline.result",
    "RunSpec": "gangline.run_spec",
    "Sweep": "gangline.sweep.run",
    "load_result": "gangline.load",
    "Trace": "gangline.trace",
    "read_trace": "gangline.trace",
    "write_trace": "gangline.trace",
}
_MODULES = {
    "bench": "gangline.bench",
    "hadare": "gangline.hadare",
    "lp": "gangline.lp",
    "network": "gangline.network",
    "plot": "gangline.plot",
    "policies": "gangline.policies",
    "report": "gangline.report",
    "reproduce": "gangline.reproduce",
    "sharing": "gangline.sharing",
    "synth": "gangline.trace.synth",
    "tables": "gangline.tables",
    "testing": "gangline.testing",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value: object = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name == "__version__":
        value = importlib.import_module("gangline._core").__version__
    else:
        raise AttributeError(f"module 'gangline' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
