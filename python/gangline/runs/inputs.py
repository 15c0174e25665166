"""Checks the inputs of a run: clusters, policies and options, in every accepted form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gangline._support.builtin_values import to_builtins
from gangline._support.formatting import did_you_mean
from gangline.errors import ClusterError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike
    from pathlib import Path

    from gangline.cluster.description import Cluster
    from gangline.runs.options import CheckedOptions, ClusterOptions, CompareOptions
    from gangline.trace.jobs.table import ArrowStream, Trace

    Progress: TypeAlias = Callable[[float, int, int], None]
    TraceLike: TypeAlias = Trace | ArrowStream | str | PathLike[str]
    ClusterLike: TypeAlias = Cluster | Mapping[str, object] | str | PathLike[str]

T = TypeVar("T")
TABLES = ("sharing", "runtime")  # the tables of a cluster whose keys a run may override
# The maximum number of seeds in one command; more are probably a typing error. Our own choice.
SEEDS_MAX = 10_000

__all__ = [
    "SEEDS_MAX",
    "TABLES",
    "as_cluster",
    "check_trace_seeds",
    "distinct",
    "make_options",
    "override",
    "take_tables",
]


def make_options(values: Mapping[str, object]) -> CheckedOptions:
    """Build run options from keyword arguments, and check them."""
    import msgspec

    from gangline.files.decode import wrong_shape
    from gangline.runs.arrival_window import parse
    from gangline.runs.options import CheckedOptions

    known = CheckedOptions.__struct_fields__
    for name in values:
        if name not in known:
            near = did_you_mean(name, (*known, *TABLES))
            raise OptionError(f"unknown run option `{name}`{near}", field=name)
    given: dict[str, Any] = to_builtins(values)
    if isinstance(given.get("count_arrivals"), str):
        given["count_arrivals"] = parse(given["count_arrivals"])
    try:
        options = msgspec.convert(given, CheckedOptions)
    except msgspec.ValidationError:
        made = wrong_shape(given, CheckedOptions, None)
        raise OptionError(f"run option {made}", field=made.key, value=made.value) from None
    options.check()
    return options


def as_cluster(value: ClusterLike) -> Cluster:
    """Return a cluster, given its keys, a TOML file, a node list, a preset or a short form."""
    from collections.abc import Mapping
    from pathlib import Path

    from gangline.cluster.description import Cluster
    from gangline.cluster.short_form import keys_of_text

    if isinstance(value, Cluster):
        return value
    if isinstance(value, str):
        if "/" in value or value.endswith(".toml") or Path(value.partition("::")[0]).is_file():
            return _from_file(Path(value))
        keys = keys_of_text(value)
        if keys is not None:
            return Cluster.from_dict(keys, path=value)
        if value in Cluster.presets():
            return Cluster.preset(value)
        file = Path(f"{value}.toml")
        if file.is_file():
            message = f"no cluster preset `{value}`; did you mean the file `{file}`?"
            raise ClusterError(message, key=value)
        is_path = bool(Path(value).suffix) or Path(value).is_dir()
        return _from_file(Path(value)) if is_path else Cluster.preset(value)
    if hasattr(value, "__fspath__"):
        return _from_file(Path(value))
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        message = f"expected a Cluster, its keys, a file or the name of a preset, got {kind}"
        raise ClusterError(message, value=kind)
    return Cluster.from_dict(value)


def _from_file(path: Path) -> Cluster:
    """Read a cluster file; the error for a folder names a cluster file in that folder, if any."""
    from gangline.cluster.description import Cluster

    try:
        return Cluster.from_file(path)
    except IsADirectoryError:
        found = min(path.glob("*.toml"), default=None)
        what = "a TOML file" if found is None else f"a file, such as `{found}`"
        message = f"`{path}` is a folder; expected {what}, a list of servers, a preset or 8x8xA100"
        raise ClusterError(message, key=str(path)) from None


def take_tables(options: CompareOptions) -> ClusterOptions:
    """Remove and return the run options that override the cluster's tables."""
    return {"sharing": options.pop("sharing", None), "runtime": options.pop("runtime", None)}


def override(cluster: Cluster, tables: ClusterOptions) -> Cluster:
    """Return the cluster with some keys of its tables replaced."""
    from gangline.cluster.description import Cluster

    given: dict[str, Any] = {name: keys for name, keys in tables.items() if keys}
    if not given:
        return cluster
    data: dict[str, Any] = {**cluster.to_dict()}
    for name, keys in given.items():
        data[name] = {**data.get(name, {}), **keys}
    return Cluster.from_dict(data)


def distinct(field: str, values: Iterable[T]) -> list[T]:
    """Return values such as seeds as a list; reject duplicates and lists that are too long."""
    from itertools import islice

    from gangline.files.decode import repeated

    listed = list(islice(values, SEEDS_MAX + 1))
    if len(listed) > SEEDS_MAX:
        message = f"{field}: expected at most {SEEDS_MAX:,} values, got more; each is a run"
        raise OptionError(message, field=field)
    twice = repeated(listed)
    if twice is not None:
        raise OptionError(f"{field}: duplicate value {twice}", field=field, value=twice)
    return listed


def check_trace_seeds(given: Iterable[int]) -> list[int]:
    """Reject trace seeds that are duplicates or not integers."""
    seeds = distinct("trace_seeds", given)
    for seed in seeds:
        if type(seed) is not int or not 0 <= seed < 2**63:
            message = f"trace_seeds: expected integers from 0 to 2**63 - 1, got {seed!r}"
            raise OptionError(message, field="trace_seeds", value=seed)
    return seeds
