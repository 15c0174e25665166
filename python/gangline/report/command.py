"""How to repeat saved runs: the command line that their spec stands for."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from gangline.result import finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.report.digest import Digest

__all__ = ["CLUSTER_FILE", "cluster_argument", "repeat"]

CLUSTER_FILE = "cluster.toml"
_FLAGS = {"restart_s": "--restart-s", "first_start_s": "--first-start-s"}
_TRACE_FLAGS = (
    "limit",
    "rescale",
    "min_duration_s",
    "max_gpus",
    "on_bad_row",
    "models",
    "models_seed",
    "models_reference",
)


def repeat(runs: Sequence[Digest]) -> str | None:
    """Return the command that repeats the runs, None if the command line cannot say it.

    Policies written in Python, options that only the library has, and tables in memory are beyond
    the command line.
    """
    from gangline.policies.registry import registry

    spec = runs[0].spec
    names = list(dict.fromkeys(run.spec["policy"]["name"] for run in runs))
    labels = list(dict.fromkeys(run.label for run in runs))
    trace = _trace(spec["trace"])
    options = _options(spec["options"])
    told = all(name in registry for name in names) and len(labels) == len(names)
    if not told or trace is None or options is None:
        return None
    seeds = ",".join(str(seed) for seed in dict.fromkeys(run.seed for run in runs))
    settings = []
    for run in {run.label: run for run in runs}.values():
        prefix = "" if len(names) == 1 else run.spec["policy"]["name"] + "."
        for key, value in run.changed.items():
            settings += ["--set", f"{prefix}{key}={_toml(value)}"]
    one = len(runs) == 1
    words = ["gangline", "run" if one else "compare", *trace]
    words += ["--cluster", cluster_argument(spec["cluster"])]
    words += ["--policy" if one else "--policies", ",".join(names), *settings]
    words += ["--seed" if one else "--seeds", seeds] if seeds != "0" else []
    return shlex.join([*words, *options])


def cluster_argument(cluster: dict[str, Any]) -> str:
    """Return the preset's name if the cluster is one, else the name of the file to write."""
    from gangline.cluster import Cluster

    name = str(cluster.get("name", ""))
    if name in Cluster.presets() and finite(Cluster.preset(name).to_dict()) == finite(cluster):
        return name
    return CLUSTER_FILE


def _trace(trace: dict[str, Any]) -> list[str] | None:
    path = str(trace["path"])
    if path.startswith("synth:"):
        from urllib.parse import urlencode

        shape, _, drawn = trace["metadata"].get("origin", "").partition(" ")
        path = f"{shape}?{urlencode(json.loads(drawn or '{}'))}"
    elif not path or path == "table":
        return None
    words = ["--trace", path]
    given = json.loads(trace["metadata"].get("options", "{}"))
    for name, value in given.items():
        if name in _TRACE_FLAGS:
            words += ["--" + name.replace("_", "-"), str(value)]
        elif name == "window" and value:
            words += ["--window", ",".join(str(edge) for edge in value)]
        elif name == "status" and value:
            words += ["--status", ",".join(value)]
        else:
            return None
    return words


def _options(options: dict[str, Any]) -> list[str] | None:
    words: list[str] = []
    for name, value in options.items():
        if name in _FLAGS:
            words += [] if value is None else [_FLAGS[name], repr(value)]
        elif name == "on_infeasible":
            words += ["--on-infeasible", str(value)]
        elif name == "segments":
            words += ["--segments"] if value else []
        elif name not in ("check_invariants", "skip_rounds", "timeline"):
            return None  # these three do not change what happens
    return words


def _toml(value: object) -> str:
    from gangline import _toml

    try:
        return _toml.inline(value)
    except TypeError:
        return str(value)
