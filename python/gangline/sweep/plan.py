"""From the description of a sweep to its runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline import _toml
from gangline._builtin_values import to_builtins
from gangline.errors import OptionError
from gangline.run_inputs import as_cluster, make_options, override, resolve_policy
from gangline.run_options import RunOptions
from gangline.run_spec import PolicyReference, RunSpec, class_of, name_of
from gangline.sweep.clusters import derived
from gangline.trace.jobs.options import Options
from gangline.trace.read import refer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from gangline.cluster import Cluster
    from gangline.trace.reference import TraceReference

__all__ = ["KEYS", "Plan", "Runs", "read_plan"]

KEYS = ("trace", "cluster", "policy", "trace_seed", "seed", "rescale")
_NEEDED = ("trace", "cluster", "policy")
_SEED = "{trace_seed}"
_SHARING = "sharing"
_TRACE_OPTIONS = tuple(name for name in Options.__struct_fields__ if name != "special")

Keys = dict[str, Any]


class Runs:
    """Runs that are listed one by one, with keys of the same names; digests are made once."""

    def __init__(self, name: str, pairs: Iterable[tuple[Keys, RunSpec]]) -> None:
        self.name = name
        self._listed = [(keys, spec, spec.digest) for keys, spec in pairs]
        self.keys = list(self._listed[0][0])

    def __iter__(self) -> Iterator[tuple[Keys, RunSpec, str]]:
        """Yield the keys, the spec and the digest of each run."""
        return iter(self._listed)


class Plan:
    """The runs of a sweep, in the order of the description; made anew each time they are asked for.

    Parameters
    ----------
    name : str
        Of the sweep.
    grid : mapping
        Keys to lists; every combination is run.
    zips : sequence of mapping
        Keys to lists of one length; rows side by side, combined with the grid and other zips.
    options : mapping
        Options of the reader and of the run that all runs share.
    """

    def __init__(self, name: str, grid: Keys, zips: list[Keys], options: Mapping[str, Any]) -> None:
        self.name = name
        self.axes = [[{key: value} for value in values] for key, values in grid.items()]
        for table in zips:
            rows = zip(*table.values(), strict=True)
            self.axes.append([dict(zip(table, row, strict=True)) for row in rows])
        self.keys = [key for axis in self.axes for key in axis[0]]
        self._trace_options = {k: v for k, v in options.items() if k in _TRACE_OPTIONS}
        self._trace_options |= {k: v for k, v in options.items() if k == "format"}
        self._run_options = {k: v for k, v in options.items() if k not in self._trace_options}
        self._clusters: dict[str, Cluster] = {}
        self._traces: dict[str, TraceReference] = {}

    def __iter__(self) -> Iterator[tuple[Keys, RunSpec, str]]:
        """Yield keys, spec and digest of each run; combinations that are one run come once."""
        seen: set[str] = set()
        for parts in itertools.product(*self.axes):
            keys = {key: value for part in parts for key, value in part.items()}
            spec = self.spec(keys)
            digest = spec.digest
            if digest not in seen:
                seen.add(digest)
                yield self._applied(keys), spec, digest

    def spec(self, keys: Keys) -> RunSpec:
        """Return the run of one combination."""
        settings = self._applied(keys)
        sharing: Keys = {}
        params: Keys = {}
        for key, value in settings.items():
            owner, dot, name = key.rpartition(".")
            if dot:
                (sharing if owner == _SHARING else params)[name] = value
        policy = keys["policy"]
        chosen, label, values = resolve_policy(_policy(policy), params or None)
        options = dict(self._run_options)
        if "seed" in keys:
            options["seed"] = keys["seed"]
        return RunSpec.of(
            override(self._cluster(keys["cluster"]), sharing),
            self._trace(keys),
            PolicyReference(name=name_of(label), params=values, python=class_of(chosen)),
            make_options(options),
        )

    @cached_property
    def _traces_vary(self) -> bool:
        return "trace_seed" in self.keys

    def _applied(self, keys: Keys) -> Keys:
        """Return the keys without the settings of other policies."""
        return {
            key: value
            for key, value in keys.items()
            if key.rpartition(".")[0] in ("", _SHARING, keys["policy"])
        }

    def _cluster(self, value: Any) -> Cluster:
        known = repr(value)
        if known not in self._clusters:
            is_derived = isinstance(value, Mapping) and "from" in value
            self._clusters[known] = derived(value) if is_derived else as_cluster(value)
        return self._clusters[known]

    def _trace(self, keys: Keys) -> TraceReference:
        path = str(keys["trace"])
        if self._traces_vary:
            if _SEED not in path:
                message = f"trace: {path}: has no {_SEED}, so `trace_seed` would change nothing"
                raise OptionError(message, field="trace", value=path)
            path = path.replace(_SEED, str(keys["trace_seed"]))
        options = dict(self._trace_options)
        if "rescale" in keys:
            options["rescale"] = keys["rescale"]
        if path.startswith("synth:"):
            return refer(path, **options)
        path = str(Path(path).absolute())  # a worker may run elsewhere
        known = repr((path, options))
        if known not in self._traces:  # hashes the file
            self._traces[known] = refer(path, **options)
        return self._traces[known]


def _policy(value: Any) -> Any:
    """Return a policy: a name, an object, or `module:Class` of one in Python."""
    if isinstance(value, str) and ":" in value:
        return PolicyReference(name=value, python=value).build()
    return value


def read_plan(source: str | PathLike[str] | Mapping[str, Any]) -> Plan:
    """Read the description of a sweep and check its keys.

    Raises
    ------
    OptionError
        If it is not TOML, or a key is unknown, missing or no list.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, Mapping):
        where, data, name = "sweep", to_builtins(source), "sweep"
    else:
        path = Path(source)
        where, name = str(path), path.stem
        try:
            data = _toml.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise OptionError(f"{path}: expected TOML: {error}", field=str(path)) from None
    for key in data:
        if key not in ("name", "grid", "zip", "options"):
            raise _wrong(where, key, "one of name, grid, zip, options", key)
    zips = data.get("zip", [])
    if not isinstance(zips, list) or not all(isinstance(table, Mapping) for table in zips):
        raise _wrong(where, "zip", "tables [[zip]]", zips)
    if not isinstance(data.get("grid", {}), Mapping):
        raise _wrong(where, "grid", "a table [grid]", data["grid"])
    grid = _axes(where, "grid", data.get("grid", {}))
    rows = [_axes(where, f"zip[{i}]", table) for i, table in enumerate(zips)]
    for i, table in enumerate(rows):
        lengths = {key: len(values) for key, values in table.items()}
        if len(set(lengths.values())) > 1:
            raise _wrong(where, f"zip[{i}]", "lists of one length", lengths)
    options = _options(where, data.get("options", {}))
    plan = Plan(str(data.get("name", name)), grid, [table for table in rows if table], options)
    for key in plan.keys:
        if plan.keys.count(key) > 1:
            raise _wrong(where, key, "each key once in grid and zip", key)
        if key in options:
            raise _wrong(where, f"options.{key}", "each key once", key)
    for key in _NEEDED:
        if key not in plan.keys:
            raise _wrong(where, "grid", f"the key `{key}`", ", ".join(plan.keys) or "none")
    names = [row["policy"] for axis in plan.axes for row in axis if "policy" in row]
    for key in plan.keys:
        owner = key.rpartition(".")[0]
        if owner and owner != _SHARING and owner not in names:
            raise _wrong(where, f'set."{key}"', "a policy of the sweep, or sharing", owner)
    return plan


def _axes(where: str, table: str, given: Mapping[str, Any]) -> Keys:
    """Return the lists of a table; settings are keys of their own, as `las.limits`."""
    settings = given.get("set", {})
    if not isinstance(settings, Mapping):
        raise _wrong(where, f"{table}.set", "keys like `las.limits`", settings)
    flat = {key: value for key, value in given.items() if key != "set"}
    for key in flat:
        if key not in KEYS:
            raise _wrong(where, f"{table}.{key}", f"one of {', '.join(KEYS)}, set", key)
    for key, value in settings.items():
        # set.las.limits = [...] and set."las.limits" = [...] say the same
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for name, values in inner:
            flat[f"{key}.{name}" if name else key] = values
            if not name and "." not in key:
                raise _wrong(where, f"{table}.set.{key}", "POLICY.KEY or sharing.KEY", key)
    for key, values in flat.items():
        if not isinstance(values, list | tuple) or not values:
            raise _wrong(where, f"{table}.{key}", "a list of one value or more", values)
    return flat


def _options(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(where, "options", "a table [options]", given)
    known = ("format", *_TRACE_OPTIONS, *RunOptions.__struct_fields__)
    for key in given:
        if key not in known:
            raise _wrong(where, f"options.{key}", f"one of {', '.join(known)}", key)
    return dict(given)


def _wrong(where: str, key: str, expected: str, got: object) -> OptionError:
    return OptionError(f"{where}: {key}: expected {expected}, got {got!r}", field=key, value=got)
