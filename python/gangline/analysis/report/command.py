"""Builds the command line that repeats saved runs from their specs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from gangline._support.builtin_values import finite
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.analysis.report.digest import Digest

__all__ = [
    "CLUSTER_FILE",
    "cluster_argument",
    "json_object",
    "repeat",
    "trace_seeds",
    "typed",
    "without_folders",
]

CLUSTER_FILE = "cluster.toml"
_OUTPUTS = ("--html", "--out", "-o")
_NO_PATHS = ("label", "name", "user", "job_id", "licence", "citation")
_INSIDE = re.compile(r"""(?<![\w/:.~-])~?/(?:[^/"'\s,;]+/)+""")  # the folders of a path in a text
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
    """Return the command that repeats the runs; None if the command line cannot express them.

    The command line cannot express policies written in Python, options that only the library
    offers, or tables in memory.
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
    drawn = ",".join(map(str, trace_seeds(runs)))
    words += ["--trace-seeds", drawn] if drawn else []
    return shlex.join([*words, *options])


def trace_seeds(runs: Sequence[Digest]) -> list[int]:
    """Return the seeds with which the traces were drawn; empty if all runs have the same trace."""
    seeds = list(dict.fromkeys(run.trace_seed for run in runs))
    known = [seed for seed in seeds if seed is not None]
    return known if len(known) == len(seeds) > 1 else []


def typed(arguments: Sequence[str]) -> str:
    """Return a command line as it was typed, but without outputs and this machine's folders."""
    kept, skips = [], False
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if skips or flag in _OUTPUTS:
            skips = not skips and not equals
        elif equals and flag.startswith("--"):
            kept.append(f"{flag}={without_folders(value)}")
        else:
            kept.append(without_folders(argument))
    return f"gangline {shlex.join(kept)}"


def without_folders(value: Any, key: str = "") -> Any:
    """Return a value of a spec, with this machine's paths replaced by file names.

    Relative paths inside the working folder are kept, because they are the same in every checkout.
    Names and labels of policies are not paths.

    Examples
    --------
    >>> without_folders({"path": "/srv/ann/traces/week.csv", "table": "data/rates.csv"})
    {'path': 'week.csv', 'table': 'data/rates.csv'}
    """
    if isinstance(value, dict):
        return {name: without_folders(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if not isinstance(value, str) or key in _NO_PATHS:
        return value
    if key == "options":  # values in a trace's metadata are strings that contain JSON
        given = json_object(value)
        return value if given is None else json.dumps(without_folders(given))
    path = PurePosixPath(value)
    if PureWindowsPath(value).drive[1:] == ":":
        return PureWindowsPath(value).name
    if path.is_absolute() or value.startswith("~") or ".." in path.parts:
        return path.name
    return _INSIDE.sub("", value)


def cluster_argument(cluster: Mapping[str, Any]) -> str:
    """Return the cluster's name for the command line: a preset, `8x8xA100`, or a file to write."""
    from gangline.cluster.description import Cluster
    from gangline.cluster.short_form import keys_of_text

    name = str(cluster.get("name", ""))
    try:
        keys = keys_of_text(name)
        if keys is None and name not in Cluster.presets():
            return CLUSTER_FILE
        known = Cluster.preset(name) if keys is None else Cluster.from_dict(keys)
    except ClusterError:
        return CLUSTER_FILE
    return name if finite(known.to_dict()) == finite(cluster) else CLUSTER_FILE


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a string of a trace's metadata; None if the string is not one.

    The writer of a native file controls its metadata, so the metadata can contain anything.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _trace(trace: Mapping[str, Any]) -> list[str] | None:
    path = str(trace["path"])
    given = json_object(trace["metadata"].get("options", "{}"))
    if path.startswith("synth:"):
        from urllib.parse import urlencode

        shape, _, drawn = trace["metadata"].get("origin", "").partition(" ")
        numbers = json_object(drawn or "{}")
        path = "" if numbers is None else f"{shape}?{urlencode(numbers)}"
    if given is None or path in ("", "table"):
        return None
    words = ["--trace", path]
    for name, value in given.items():
        if name in _TRACE_FLAGS:
            words += ["--" + name.replace("_", "-"), str(value)]
        elif name in ("window", "status") and isinstance(value, list):
            words += [f"--{name}", ",".join(map(str, value))]
        else:
            return None
    return words


def _options(options: dict[str, Any]) -> list[str] | None:
    words: list[str] = []
    for name, value in options.items():
        if name in _FLAGS:
            words += [] if value is None else [_FLAGS[name], repr(value)]
        elif name == "count_arrivals":
            words += ["--count-arrivals", ",".join(repr(end).removesuffix(".0") for end in value)]
        elif name == "on_infeasible":
            words += ["--on-infeasible", str(value)]
        elif name == "segments":
            words += ["--segments"] if value else []
        elif name not in ("check_invariants", "skip_rounds", "timeline"):
            return None  # these three do not change the result
    return words


def _toml(value: object) -> str:
    from gangline._support import toml

    try:
        return toml.inline(value)
    except TypeError:
        return str(value)
