"""Turns a sweep's description into its runs."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from gangline._support import formatting, toml
from gangline._support.builtin_values import Json, flaw, to_builtins
from gangline.errors import GanglineError, OptionError, PolicyError
from gangline.policies.choice import resolve_policy
from gangline.policies.source import code_of
from gangline.runs.estimates import EXACT
from gangline.runs.inputs import TABLES, as_cluster, make_options, override
from gangline.runs.options import CheckedOptions
from gangline.runs.spec import PolicyReference, RunSpec, keys_of
from gangline.runs.store import SAVED
from gangline.studies.sweep.clusters import derived
from gangline.trace.formats import FORMATS
from gangline.trace.jobs.options import Options
from gangline.trace.read import refer
from gangline.trace.reference import TraceReference

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from gangline.runs.arrival_window import Window
    from gangline.runs.options import ClusterOptions

__all__ = ["KEYS", "Listed", "Plan", "Runs", "drawn_trace", "is_setting", "read_plan"]

KEYS = ("trace", "cluster", "policy", "trace_seed", "seed", "rescale", "estimates")
_NEEDED = ("trace", "cluster", "policy")
_SEED = "{trace_seed}"
_OF_TRACE = ("trace", "trace_seed", "rescale")
_SETTINGS = "set"
_ABOUT = re.compile(r"(?:run option |options: )?([a-z_.]+): ")  # prefix of many error messages
_REMEMBERED = 64  # our own choice: number of traces, of clusters and of policies that are cached
_TRACE_OPTIONS = (
    *(name for name in Options.__struct_fields__ if name != "special"),
    *dict.fromkeys(name for item in FORMATS for name in item.options),
)

T = TypeVar("T")
Keys = dict[str, Json]  # of a run
Axes = dict[str, Sequence[Json]]  # of a sweep


class _Policy(NamedTuple):
    """A policy, and the hash that identifies the code of a Python policy."""

    reference: PolicyReference
    code: dict[str, str]
    reads_durations: bool


class Listed:
    """Runs that are listed individually and have the same keys; the methods are those of `Plan`."""

    def __init__(
        self, name: str, pairs: Iterable[tuple[Keys, RunSpec]], save: str = "jobs"
    ) -> None:
        self.name = name
        self.save = save
        self.options: dict[str, Any] = {}
        self._pairs = list(pairs)
        self.columns = list(self._pairs[0][0])

    def __len__(self) -> int:
        return len(self._pairs)

    def keys(self, index: int) -> Keys:
        """Return the value of each key in a run."""
        return self._pairs[index][0]

    def spec(self, index: int) -> RunSpec:
        """Return the spec of a run."""
        return self._pairs[index][1]

    def order(self) -> Iterable[int]:
        """Return the indices in the order in which the runs are listed."""
        return range(len(self._pairs))


class Plan:
    """The runs of a sweep, indexed in the order of the description.

    Parameters
    ----------
    name : str
        Name of the sweep.
    grid : mapping
        For each key, the list of its values; every combination is run.
    zips : sequence of mapping
        Mappings from keys to lists of equal length; their rows are combined with the grid and with
        other zips.
    options : mapping
        Options of the reader and of the runs, which all runs share.
    where : str
        Name of the description in error messages, such as its file name.
    save : str
        The tables to save for each run.
    """

    def __init__(
        self,
        name: str,
        grid: Axes,
        zips: list[Axes],
        options: Mapping[str, object],
        where: str,
        save: str,
    ) -> None:
        self.name = name
        self.save = save
        self.options = dict(options)
        self._where = where
        self._written = {key: f"options.{key}" for key in options}
        for place, values in [("grid", grid), *((f"zip[{i}]", t) for i, t in enumerate(zips))]:
            self._written |= {
                key: f'{place}.set."{key}"' if "." in key else f"{place}.{key}" for key in values
            }
        self.axes = [[{key: value} for value in values] for key, values in grid.items()]
        for table in zips:
            rows = zip(*table.values(), strict=True)
            self.axes += [[dict(zip(table, row, strict=True)) for row in rows]] if table else []
        self.columns = [key for axis in self.axes for key in axis[0]]
        self._trace_options = {k: v for k, v in options.items() if k in _TRACE_OPTIONS}
        self._trace_options |= {k: v for k, v in options.items() if k == "format"}
        self._run_options = {k: v for k, v in options.items() if k not in self._trace_options}
        # consecutive runs have most parts in common
        self._trace = self._remembered(self._make_trace, _OF_TRACE)
        self._world = self._remembered(self._make_world, ("cluster", *TABLES))
        self._policy = self._remembered(self._make_policy, ("policy", _SETTINGS))

    def __len__(self) -> int:
        return math.prod(map(len, self.axes))

    @property
    def window(self) -> Window | None:
        """The window whose arrivals are counted; None if all jobs are counted."""
        return make_options(self._run_options).count_arrivals

    def keys(self, index: int) -> Keys:
        """Return the value of each key in a run, except keys that do not concern its policy."""
        places = self._places(index)
        keys = _applied(self._at(places))
        if "estimates" in keys and not self._policy(places).reads_durations:
            del keys["estimates"]
        return keys

    def spec(self, index: int) -> RunSpec:
        """Return the spec of a run."""
        places = self._places(index)
        policy = self._policy(places)
        made = msgspec.structs.replace(
            self._world(places), trace=self._trace(places), policy=policy.reference
        )
        if policy.code:
            made = msgspec.structs.replace(made, versions={**made.versions, **policy.code})
        keys = self.keys(index)
        if "estimates" in keys:
            with self._naming("estimates"):
                told = make_options({**self._run_options, "estimates": keys["estimates"]})
            options = {**made.options, "estimates": told.estimates}
            if told.estimates == EXACT:
                del options["estimates"]
            made = msgspec.structs.replace(made, options=options)
        if "seed" not in keys:
            return made
        with self._naming("seed"):
            seed = make_options({"seed": keys["seed"]}).seed
        return msgspec.structs.replace(made, seed=seed)

    def order(self) -> Iterator[int]:
        """Yield the indices, grouped by trace and then by cluster."""
        sizes = [len(axis) for axis in self.axes]
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        inwards = sorted(range(len(sizes)), key=lambda i: _rank(self.axes[i][0]))
        for places in itertools.product(*(range(sizes[i]) for i in inwards)):
            yield sum(place * strides[i] for i, place in zip(inwards, places, strict=True))

    def _places(self, index: int) -> tuple[int, ...]:
        """Return a run's position on each axis; the last axis varies fastest."""
        places = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis))
            places.append(place)
        return tuple(reversed(places))

    def _at(self, places: tuple[int, ...]) -> Keys:
        rows = (axis[place] for axis, place in zip(self.axes, places, strict=True))
        return {key: value for row in rows for key, value in row.items()}

    def _remembered(
        self, make: Callable[[Keys], T], names: Collection[str]
    ) -> Callable[[tuple[int, ...]], T]:
        """Return `make` as a function of positions; its results are cached by the axes it needs."""
        mine = [any(_part(key) in names for key in axis[0]) for axis in self.axes]

        @lru_cache(_REMEMBERED)
        def known(places: tuple[int, ...]) -> T:
            return make(self._at(places))

        return lambda places: known(
            tuple(place if is_mine else 0 for place, is_mine in zip(places, mine, strict=True))
        )

    def _make_world(self, keys: Keys) -> RunSpec:
        """Return a spec with everything that the runs on this cluster have in common."""
        value: Any = keys["cluster"]
        is_derived = isinstance(value, Mapping) and "from" in value
        with self._naming("cluster"):
            cluster = derived(value) if is_derived else as_cluster(value)
        tables: dict[str, Any] = {
            name: {
                key.removeprefix(f"{name}."): value
                for key, value in keys.items()
                if _part(key) == name
            }
            for name in TABLES
        }
        with self._naming("cluster"):
            options = make_options(self._run_options)
            lab = keys_of(override(cluster, cast("ClusterOptions", tables)))
        return RunSpec.of(lab, TraceReference(), PolicyReference(name=""), options)

    def _make_policy(self, keys: Keys) -> _Policy:
        params = {
            key.rpartition(".")[2]: value
            for key, value in _applied(keys).items()
            if _part(key) == _SETTINGS
        }
        policy: Any = keys["policy"]
        with self._naming("policy"):
            chosen = resolve_policy(policy, params or None)
            if chosen.own is not None:
                _check_made_anew(chosen.reference)
        code = code_of(chosen.reference.python)
        return _Policy(chosen.reference, code, chosen.reads_durations)

    def _make_trace(self, keys: Keys) -> TraceReference:
        given = keys["trace"]
        if not isinstance(given, str | PathLike):
            expected = "a file or a `synth:` address"
            raise _wrong(self._where, self._written["trace"], expected, given)
        path = str(given)
        if "trace_seed" in keys:
            if _SEED not in path:
                message = f"{path}: has no {_SEED}, so `trace_seed` would change nothing"
                place = f"{self._where}: {self._written['trace']}"
                raise OptionError(f"{place}: {message}", field="trace", value=path)
            path = drawn_trace(keys)
        options: dict[str, Any] = dict(self._trace_options)
        if "rescale" in keys:
            options["rescale"] = keys["rescale"]
        if not path.startswith(("synth:", "mini:")):
            path = str(Path(path).absolute())  # a worker may run in a different folder
        with self._naming("trace"):
            return refer(path, **options)

    @contextmanager
    def _naming(self, part: str) -> Iterator[None]:
        """Add the file and a key to an error: the key that it names, or else the key of `part`."""
        try:
            yield
        except GanglineError as error:
            words = str(error)
            found = _ABOUT.match(words)
            key = found[1] if found else ""
            if found and key in self._written:
                words = words[found.end() :]
            error.args = (f"{self._where}: {self._written.get(key, self._written[part])}: {words}",)
            raise


Runs: TypeAlias = Plan | Listed
"""The runs of a sweep, accessed by index; each access builds the run again."""


def drawn_trace(keys: Keys) -> str:
    """Return the trace of a run, with `{trace_seed}` replaced by the seed."""
    path = str(keys["trace"])
    return path.replace(_SEED, str(keys["trace_seed"])) if "trace_seed" in keys else path


def is_setting(key: str) -> bool:
    """Return whether a key is a policy's parameter or the estimates, which change only policies."""
    return key == "estimates" or _part(key) == _SETTINGS


def _part(key: str) -> str:
    """Return the part of a run that a key sets; a key without a dot is a part itself."""
    owner, dot, _ = key.rpartition(".")
    return key if not dot else owner if owner in TABLES else _SETTINGS


def _rank(row: Keys) -> int:
    """Return 0 if an axis changes the trace, 1 if it changes the cluster, and 2 otherwise."""
    parts = {_part(key) for key in row}
    return 0 if parts & set(_OF_TRACE) else 1 if parts & {"cluster", *TABLES} else 2


def _applied(keys: Keys) -> Keys:
    """Return the keys, except settings that belong to other policies."""
    return {
        key: value
        for key, value in keys.items()
        if key.rpartition(".")[0] in ("", *TABLES, keys["policy"])
    }


def _check_made_anew(reference: PolicyReference) -> None:
    """Raise an error if another process could not recreate a Python policy from its reference."""
    module, _, name = reference.python.partition(":")
    why = ""
    main = getattr(sys.modules["__main__"], "__file__", None) or ""
    if module == "__main__" and not Path(main).is_file():
        why = "a class that was typed into a session cannot be imported there"
    else:
        try:
            resolved = reference.resolve()
        except PolicyError as error:
            why = str(error).partition("; pass")[0]
        else:
            if resolved.params != reference.params:
                why = f"it would have the parameters {resolved.params}, not {reference.params}"
    if why:
        message = (
            f"{reference.name}: cannot be created anew in a process, as {name}(**params()): {why}; "
            "put the class into a module, and what it needs into `params()`"
        )
        raise PolicyError(message, policy=reference.name)


def read_plan(
    source: str | PathLike[str] | Mapping[str, object], *, save: str | None = None
) -> Plan:
    """Read a sweep's description and check its keys; `save` overrides the description's value.

    Raises
    ------
    OptionError
        If the description is not TOML, or if a key is unknown, missing, or not a list.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, Mapping):
        where, name = "sweep", "sweep"
        wrong = flaw(source)
        if wrong is not None:
            raise OptionError(f"sweep: {wrong}", field="sweep")
        data = to_builtins(source)
    else:
        path = Path(source)
        where, name = str(path), path.stem
        if path.is_dir():
            message = f"{path}: expected the TOML file of a sweep, got a folder; name a file in it"
            raise OptionError(message, field=str(path))
        try:
            data = toml.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError as error:
            raise OptionError(f"{path}: expected TOML: {error}", field=str(path)) from None
    for key in data:
        if key not in ("name", "save", "grid", "zip", "options"):
            raise _wrong(where, key, "one of name, save, grid, zip, options", key)
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
    name = data.get("name", name)
    if not isinstance(name, str) or not name:
        raise _wrong(where, "name", "text", name)
    saved = _saved(where, data.get("save", "jobs") if save is None else save, options)
    plan = Plan(name, grid, rows, options, where, saved)
    for key in plan.columns:
        if plan.columns.count(key) > 1:
            raise _wrong(where, key, "each key once in grid and zip", key)
        if key in options:
            raise _wrong(where, f"options.{key}", "each key once", key)
    missing = [f"`{key}`" for key in _NEEDED if key not in plan.columns]
    if missing:
        what = f"the key {missing[0]} is missing; give it"
        if len(missing) > 1:
            what = f"the keys {formatting.listed(missing)} are missing; give each"
        message = f"{where}: {what} a list of values in [grid] or a [[zip]]"
        raise OptionError(message, field="grid")
    names = [row["policy"] for axis in plan.axes for row in axis if "policy" in row]
    for key in plan.columns:
        owner = key.rpartition(".")[0]
        if owner and owner not in TABLES and owner not in names:
            raise _wrong(where, f'set."{key}"', "a policy of the sweep, sharing or runtime", owner)
    return plan


def _axes(where: str, table: str, given: Mapping[str, Any]) -> Axes:
    """Return the lists in a table; settings become separate keys, such as `las.limits`."""
    settings = given.get("set", {})
    if not isinstance(settings, Mapping):
        raise _wrong(where, f"{table}.set", "keys like `las.limits`", settings)
    flat = {key: value for key, value in given.items() if key != "set"}
    for key, value in flat.items():
        if key not in KEYS:
            inner = next(iter(value), "KEY") if isinstance(value, Mapping) else ""
            name = f"{key.removeprefix('set.')}.{inner}" if inner else key.removeprefix("set.")
            form = f'set."{name}"' if "." in name else f'set."POLICY.{name}"'
            known = f"one of {', '.join(KEYS)}, or {form} for a parameter"
            raise _wrong(where, f"{table}.{key}", known, key)
    for key, value in settings.items():
        # set.las.limits = [...] and set."las.limits" = [...] are equivalent
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for name, values in inner:
            flat[f"{key}.{name}" if name else key] = values
            if not name and "." not in key:
                raise _wrong(
                    where, f"{table}.set.{key}", "POLICY.KEY, sharing.KEY or runtime.KEY", key
                )
    for key, values in flat.items():
        if not isinstance(values, list | tuple) or not values:
            raise _wrong(where, f"{table}.{key}", "a list of one value or more", values)
    return flat


def _options(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _wrong(where, "options", "a table [options]", given)
    known = ("format", *_TRACE_OPTIONS, *CheckedOptions.__struct_fields__)
    for key in given:
        if key not in known:
            raise _wrong(where, f"options.{key}", f"one of {', '.join(known)}", key)
    return dict(given)


def _saved(where: str, given: Any, options: dict[str, Any]) -> str:
    """Return the tables to save for each run; enable segments if they are to be saved."""
    if given not in SAVED:
        raise _wrong(where, "save", f"one of {', '.join(SAVED)}", given)
    if given == "summary" and options.get("segments"):
        raise _wrong(where, "save", "jobs or segments where options.segments is true", given)
    if given == "segments":
        options["segments"] = True
    return str(given)


def _wrong(where: str, key: str, expected: str, got: object) -> OptionError:
    return OptionError(f"{where}: {key}: expected {expected}, got {got!r}", field=key, value=got)
