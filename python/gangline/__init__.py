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

# `typing` is not imported, because an interrupt during that import would show a traceback
TYPE_CHECKING = False
if TYPE_CHECKING:
    import gangline.analysis.report as report
    import gangline.cluster.network as network
    import gangline.cluster.sharing as sharing
    import gangline.cluster.tables as tables
    import gangline.errors as errors
    import gangline.hadare as hadare
    import gangline.lp as lp
    import gangline.paper as paper
    import gangline.plot as plot
    import gangline.policies as policies
    import gangline.policies.orders as orders
    import gangline.studies.bench as bench
    import gangline.studies.profile as profile
    import gangline.studies.reproduce as reproduce
    import gangline.testing as testing
    import gangline.trace.synth as synth
    from gangline.analysis.audit import Audit, audit
    from gangline.cluster.description import Cluster, Sharing, read_cluster
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
        PeerError,
        PlacementError,
        PlanError,
        PolicyError,
        ResultError,
        SolverError,
        StalledError,
        TraceError,
        UnknownModel,
    )
    from gangline.policies.prices import Prices
    from gangline.policies.protocol import STEADY, Changes, Plan, Policy, Reason, View
    from gangline.remote.batsim import serve_batsim
    from gangline.remote.serve import serve
    from gangline.runs.compare import compare
    from gangline.runs.comparison import Comparison
    from gangline.runs.load import load_result
    from gangline.runs.offered_load import OfferedLoad, offered_load
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result
    from gangline.runs.simulate import run, simulate
    from gangline.runs.simulation import Simulation
    from gangline.runs.spec import RunSpec
    from gangline.runs.summary import RunSummary
    from gangline.runs.what_if import WhatIf, what_if
    from gangline.studies.advise import advise
    from gangline.studies.capacity import plan_capacity
    from gangline.studies.eta import Eta, eta
    from gangline.studies.sweep import Sweep, sweep
    from gangline.studies.validate import RuntimeFit, Validation, fit_runtime, validate
    from gangline.trace import Trace, read_trace, write_trace

    plan = plan_capacity
    __version__: str

__all__ = [
    "STEADY",
    "Audit",
    "Changes",
    "Cluster",
    "ClusterError",
    "Comparison",
    "Eta",
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
    "PeerError",
    "PlacementError",
    "Plan",
    "PlanError",
    "Policy",
    "PolicyError",
    "Prices",
    "Reason",
    "Result",
    "ResultError",
    "RunOptions",
    "RunSpec",
    "RunSummary",
    "RuntimeFit",
    "Sharing",
    "Simulation",
    "SolverError",
    "StalledError",
    "Sweep",
    "Trace",
    "TraceError",
    "UnknownModel",
    "Validation",
    "View",
    "WhatIf",
    "__version__",
    "advise",
    "audit",
    "bench",
    "compare",
    "errors",
    "eta",
    "fit_runtime",
    "hadare",
    "load_result",
    "lp",
    "network",
    "offered_load",
    "orders",
    "paper",
    "plan_capacity",
    "plot",
    "policies",
    "profile",
    "read_cluster",
    "read_trace",
    "report",
    "reproduce",
    "run",
    "serve",
    "serve_batsim",
    "sharing",
    "simulate",
    "sweep",
    "synth",
    "tables",
    "testing",
    "validate",
    "what_if",
    "write_trace",
]

# Names are loaded on first use, so that `gangline --help` does not load numpy and pyarrow.
_HOMES = {
    "gangline.analysis.audit": "Audit audit",
    "gangline.cluster.description": "Cluster Sharing read_cluster",
    "gangline.errors": (
        "ClusterError GanglineError InfeasibleJobError MergeError MissingDuration "
        "MissingExtraError MissingThroughput NetworkError OptionError OutOfMemoryError "
        "PeerError PlacementError PlanError PolicyError ResultError SolverError StalledError "
        "TraceError UnknownModel"
    ),
    "gangline.policies.prices": "Prices",
    "gangline.policies.protocol": "STEADY Changes Plan Policy Reason View",
    "gangline.remote.batsim": "serve_batsim",
    "gangline.remote.serve": "serve",
    "gangline.runs.compare": "compare",
    "gangline.runs.comparison": "Comparison",
    "gangline.runs.load": "load_result",
    "gangline.runs.offered_load": "OfferedLoad offered_load",
    "gangline.runs.options": "RunOptions",
    "gangline.runs.result": "Result",
    "gangline.runs.simulate": "run simulate",
    "gangline.runs.simulation": "Simulation",
    "gangline.runs.spec": "RunSpec",
    "gangline.runs.summary": "RunSummary",
    "gangline.studies.advise": "advise",
    "gangline.studies.capacity": "plan_capacity",
    "gangline.studies.sweep": "Sweep sweep",
    "gangline.runs.what_if": "WhatIf what_if",
    "gangline.studies.eta": "Eta eta",
    "gangline.studies.validate": "RuntimeFit Validation fit_runtime validate",
    "gangline.trace": "Trace read_trace write_trace",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = {
    "bench": "gangline.studies.bench",
    "errors": "gangline.errors",
    "hadare": "gangline.hadare",
    "lp": "gangline.lp",
    "network": "gangline.cluster.network",
    "orders": "gangline.policies.orders",
    "paper": "gangline.paper",
    "plot": "gangline.plot",
    "policies": "gangline.policies",
    "profile": "gangline.studies.profile",
    "report": "gangline.analysis.report",
    "reproduce": "gangline.studies.reproduce",
    "sharing": "gangline.cluster.sharing",
    "synth": "gangline.trace.synth",
    "tables": "gangline.cluster.tables",
    "testing": "gangline.testing",
}


def __getattr__(name: str) -> object:
    import importlib

    if name in _MODULES:
        value: object = importlib.import_module(_MODULES[name])
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    elif name == "plan":  # this name is kept until 0.2
        import warnings

        message = "gangline.plan is now gangline.plan_capacity; the old name will be removed in 0.2"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return importlib.import_module("gangline.studies.capacity").plan_capacity
    elif name == "__version__":
        value = importlib.import_module("gangline._core").__version__
    else:
        raise AttributeError(f"module 'gangline' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
