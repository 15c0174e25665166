"""Defines options that several commands share, and parses their values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter

from gangline._support import formatting
from gangline.cli import _console, _pandas, complete
from gangline.errors import PolicyError, TraceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cyclopts import Token

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.policies.parameters import PolicyBase
    from gangline.policies.protocol import Policy
    from gangline.runs.inputs import ClusterLike
    from gangline.runs.options import ClusterOptions
    from gangline.runs.premises import Lack
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """Read a whole number here, because the command-line library would round 1.5."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'expected a whole number, got "{text}"') from None


def _length(_: object, tokens: Sequence[Token]) -> float:
    """Read a length of time: seconds, or a number with a unit."""
    text = tokens[0].value
    found = formatting.seconds(text)
    if found is None:
        raise ValueError(f'expected seconds, or a length such as 5min, got "{text}"')
    return found


Seconds = Annotated[float, Parameter(converter=_length)]
MaybeSeconds = Annotated[float | None, Parameter(converter=_length)]
Whole = Annotated[int, Parameter(converter=_whole)]
MaybeWhole = Annotated[int | None, Parameter(converter=_whole)]
Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="")]
Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", allow_leading_hyphen=True, completer=complete.settings),
]
_NAMES = Parameter(name=["--policies", "--policy"], completer=complete.policies)
Names = Annotated[str, _NAMES]
MaybeNames = Annotated[str | None, _NAMES]
Lab = Annotated[str, Parameter(completer=complete.cluster)]
MaybeLab = Annotated[str | None, Parameter(completer=complete.cluster)]
Jobs = Annotated[str, Parameter(completer=complete.trace)]
MaybeJobs = Annotated[str | None, Parameter(completer=complete.trace)]
MaybePolicy = Annotated[str | None, Parameter(completer=complete.policy)]
TraceFormat = Annotated[str | None, Parameter(completer=complete.format_name)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TraceReading:
    """Options for reading a trace.

    Parameters
    ----------
    format
        Name of the trace format; by default, it is detected.
    limit
        Keep only the first N jobs.
    window
        Keep only arrivals from FROM to TO, as FROM,TO in seconds.
    rescale
        Factor by which arrivals are multiplied; 0.5 doubles the load.
    min_duration_s
        Raise shorter durations to this value; by default, jobs that last 0 seconds are dropped
        instead.
    max_gpus
        Drop larger gangs.
    models
        A throughput table; each job without a model gets one that was measured at its gang size.
    models_seed
        Seed with which `--models` draws models.
    models_reference
        GPU type in the table on which durations stay unchanged.
    status
        Keep only these trace statuses, separated by commas.
    on_bad_row
        Whether an unreadable row is an error or is left out and counted.
    cpu_jobs
        Whether jobs without GPUs are left out or are an error, in formats that have such jobs.
    zone
        Time zone of local times, such as America/Los_Angeles; by default, differences between local
        clock times are used.
    max_bytes
        Maximum number of bytes of an unpacked input.
    option
        An option of one format as KEY=VALUE, such as unit=job; repeatable.
    """

    format: TraceFormat = None
    limit: MaybeWhole = None
    window: str | None = None
    rescale: float = 1.0
    min_duration_s: Seconds = 0.0
    max_gpus: MaybeWhole = None
    models: str | None = None
    models_seed: Whole = 0
    models_reference: str = "v100"
    status: str | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    cpu_jobs: Literal["drop", "error"] | None = None
    zone: str | None = None
    max_bytes: MaybeWhole = None
    option: Annotated[list[str] | None, Parameter(negative="")] = None

    @property
    def mapping(self) -> str | None:
        """Mapping from native column names to those of the trace."""
        return None

    def read(self, path: str, *, max_errors: int | None = None) -> Trace:
        """Read the trace; at most `max_errors` errors are shown in full."""
        _pandas.leave_out()
        from gangline.trace import read_trace

        return read_trace(path, max_errors=max_errors, **self.reading)

    @property
    def reading(self) -> dict[str, Any]:
        """The options of `gangline.read_trace`, including the format."""
        options: dict[str, Any] = {
            "format": self.format,
            "limit": self.limit,
            "rescale": self.rescale,
            "min_duration_s": self.min_duration_s,
            "max_gpus": self.max_gpus,
            "models": self.models,
            "models_seed": self.models_seed,
            "models_reference": self.models_reference,
            "on_bad_row": self.on_bad_row,
            "cpu_jobs": self.cpu_jobs,
            "zone": self.zone,
            "max_bytes": self.max_bytes,
            **_special(self.option or []),
        }
        if self.mapping is not None:
            options["columns"] = self.mapping
        if self.window is not None:
            options["window"] = _window(self.window)
        if self.status is not None:
            options["status"] = tuple(self.status.split(","))
        return options


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TraceChoice(TraceReading):
    """Options for reading the trace.

    Parameters
    ----------
    columns
        NATIVE=THEIRS,... for a table with other column names, such as
        gpus=nodes*gpus_per_node,duration_s=end-start,arrival_s=submitted@ms.
    """

    columns: str | None = None

    @property
    def mapping(self) -> str | None:
        """Mapping from native column names to those of the trace."""
        return self.columns


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TraceBeside(TraceReading):
    """Options for reading the trace if `--columns` belongs to another table.

    Parameters
    ----------
    trace_columns
        NATIVE=THEIRS,... for a trace with other column names, like `--columns` of `gangline run`.
    """

    trace_columns: str | None = None

    @property
    def mapping(self) -> str | None:
        """Mapping from native column names to those of the trace."""
        return self.trace_columns


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Overheads:
    """Costs of starts and stops.

    Parameters
    ----------
    restart_s
        Time in seconds without progress after a restart or move; default 0.
    first_start_s
        Time in seconds without progress after the first start; default 0.
    checkpoint_interval_s
        Progress in seconds between checkpoints, to which a stopped job falls back; by default, a
        stop loses no work.
    """

    restart_s: MaybeSeconds = None
    first_start_s: MaybeSeconds = None
    checkpoint_interval_s: MaybeSeconds = None

    @property
    def costs(self) -> dict[str, Any]:
        """The costs as options of a run."""
        names = ("restart_s", "first_start_s", "checkpoint_interval_s")
        return {name: getattr(self, name) for name in names}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class World(Overheads):
    """Options common to all runs.

    Parameters
    ----------
    trace
        A file, or a generator such as synth:philly?jobs=10000&seed=1.
    cluster
        A TOML file, a list of servers, a preset, or 8x8xA100 (8 servers of 8).
    count_arrivals
        FROM,TO such as 2d,9d: metrics cover only the jobs that arrive in this window, but all jobs
        are run.
    estimate_default_s
        Estimate in seconds for jobs without an estimate; default 3600.
    """

    trace: Jobs
    cluster: Lab
    count_arrivals: str | None = None
    estimate_default_s: MaybeSeconds = None

    def read(self, choice: TraceReading | None) -> Trace:
        """Read the trace."""
        return (choice or TraceChoice()).read(self.trace)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run."""
        found: dict[str, Any] = {**self.costs, "count_arrivals": self.count_arrivals}
        if self.estimate_default_s is not None:
            found["estimate_default_s"] = self.estimate_default_s
        return found


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Kept:
    """Tables that a run keeps, and the jobs that they cover.

    Parameters
    ----------
    html
        File for a self-contained report with tables and charts.
    segments
        Keep the segments table, which `gangline gantt` needs; --html keeps it as well.
    explain
        Keep the segments table and the jobs, so that `gangline explain` works without the trace.
    on_infeasible
        Whether a job that can never run is an error or is left out and listed.
    """

    html: Path | None = None
    segments: Flag = False
    explain: Flag = False
    on_infeasible: Literal["error", "drop"] = "error"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run."""
        # a report derives the reasons for waiting from segments
        segments = self.segments or self.explain or self.html is not None
        return {"segments": segments, "on_infeasible": self.on_infeasible}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Replicates:
    """Seeds of runs and traces.

    Parameters
    ----------
    seeds
        Seeds of the runs, separated by commas, or a range such as 0..9; at most 10,000.
    trace_seeds
        Draw a synth: trace anew with each of these seeds; with five or more, results have
        confidence intervals.
    """

    seeds: Annotated[str, Parameter(name=["--seeds", "--seed"])] = "0"
    trace_seeds: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The seeds as lists."""
        drawn = [] if self.trace_seeds is None else seeds(self.trace_seeds, "--trace-seeds")
        return {"seeds": seeds(self.seeds), "trace_seeds": drawn}


def say_about(trace: Trace, cluster: Cluster, policies: Sequence[PolicyLike]) -> None:
    """Print notes on a trace, on a cluster, and on their combination with policies."""
    say_notes(trace)
    _console.say(*notes_of(cluster))
    _say_types(trace, cluster)
    _say_runtime(trace, cluster)
    _say_elastic(trace, cluster, policies)
    say_names(trace, policies)


def say_lacks(
    trace: Trace,
    cluster: ClusterLike,
    policies: Sequence[PolicyLike],
    tables: ClusterOptions | None = None,
    *,
    drops: bool = False,
) -> None:
    """Before the first run, print which premises of the policies are not met."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.inputs import as_cluster, override
    from gangline.runs.premises import lacks, require

    world = override(as_cluster(cluster), tables or {})
    found = lacks(world, trace, [resolve_policy(one) for one in policies], drops=drops)
    require(found)
    say_each(found)


def say_absent(trace: Trace, policies: Sequence[PolicyLike], told: Sequence[str]) -> None:
    """Print which labels are missing for the estimates that policies use."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.estimates import absent

    if any(resolve_policy(one).reads_durations for one in policies):
        for words in dict.fromkeys(absent(estimates, trace) for estimates in told):
            if words:
                _console.say(f"note: {words}")


def dropped(result: Result) -> list[str]:
    """Return one note per reason why jobs can never run."""
    return [
        f"note: under {result.policy}, {formatting.plural(count, 'job')} can never run and "
        f"{'was left out: it' if count == 1 else 'were left out: each'} {why}"
        for why, count in result.spec.get("dropped", {}).items()
    ]


def say_each(found: Iterable[Lack]) -> None:
    """Print one note per premise that is not met."""
    for lack in found:
        _console.say(f"note: {lack.sentence()}")


def say_notes(trace: Trace) -> None:
    """Print notes on omissions and irregularities in a trace, with explanations."""
    from gangline.trace.jobs.notes import explain

    for name, count in trace.notes.items():
        _console.say(f"note: {name} {count:,}: {explain(name, trace.metadata)}")


def notes_of(cluster: Cluster) -> list[str]:
    """Return one line per note on a cluster: its name, its count and what it counts."""
    from gangline.cluster.node_lists.notes import lines

    return [f"note: {line}" for line in lines(cluster.notes)]


def _say_types(trace: Trace, cluster: Cluster) -> None:
    """Print the GPU types that jobs name but the cluster lacks; they may be typing errors."""
    if "gpu_types" not in trace.columns:
        return
    named = set(trace.column("gpu_types").flatten().unique().to_pylist())
    known = [gpu.name for gpu in cluster.gpu_types]
    unknown = sorted(str(name) for name in named.difference(known))
    if unknown:
        listed = formatting.listed([f"`{name}`" for name in unknown])
        _console.say(
            f"note: jobs may use {listed}, which the cluster lacks; it has {', '.join(known)}"
        )


def _say_runtime(trace: Trace, cluster: Cluster) -> None:
    """Print the models in `[runtime]` that no job has; they may be typing errors."""
    from gangline.cluster.runtime import models_of

    named = models_of(cluster.runtime)
    if named and "model" in trace.columns:
        named = named.difference(trace.column("model").unique().to_pylist())
    if named:
        listed = formatting.listed([f"`{name}`" for name in sorted(named)])
        _console.say(f"note: `[runtime]` has costs of {listed}, which no job has as its model")


def _say_elastic(trace: Trace, cluster: Cluster, policies: Sequence[PolicyLike]) -> None:
    """Print how the policies treat elastic jobs, if there are any."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.elastic import notice
    from gangline.runs.execution import is_elastic

    labels: dict[bool, list[str]] = {True: [], False: []}
    for policy in policies:
        chosen, label, _ = resolve_policy(policy, None)
        labels[isinstance(chosen, str) and is_elastic(chosen)].append(label)
    said = notice(trace, cluster, labels[True], labels[False])
    if said is not None:
        _console.say(f"note: {said}")


def say_names(trace: Trace, policies: Sequence[PolicyLike]) -> None:
    """Print the names in the tables of the policy `slurm` that no job has."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.slurm_names import unused

    chosen = [resolve_policy(one) for one in policies]
    said = [line for one in chosen for line in unused(one, trace)]
    bound = [one.params.get("partition_types") for one in chosen]
    if any(bound) and not all(bound):
        said.append(
            "only slurm ties partitions to GPU types (`partition_types`): the other policies "
            "may use every type, so part of their gain is due to that; `--option types=allocated` "
            "binds all policies"
        )
    _console.say(*(f"note: {line}" for line in dict.fromkeys(said)))


def _window(text: str) -> tuple[float, float]:
    first, _, last = text.partition(",")
    try:
        return float(first or 0.0), float(last or "inf")
    except ValueError:
        raise TraceError.at("--window", None, None, text, "FROM,TO in seconds") from None


def _special(options: list[str]) -> dict[str, Any]:
    """Read options such as `unit=job` and `durations.bert=2928`."""
    from gangline.policies.registry import parse_setting

    found: dict[str, Any] = {}
    for text in options:
        if not text.partition("=")[0].strip() or "=" not in text:
            raise TraceError.at("--option", None, None, text, "KEY=VALUE")
        key, value = parse_setting(text)
        name, _, inner = key.partition(".")
        if inner:
            inside = found.setdefault(name, {})
            if not isinstance(inside, dict):
                raise TraceError.at("--option", None, name, text, "one value or several keys")
            inside[inner] = value
        else:
            found[name] = value
    return found


def seeds(text: str, flag: str = "--seeds") -> list[int]:
    """Read seeds such as `1,2,3` or `0..9`."""
    from gangline.runs.inputs import SEEDS_MAX

    found: list[int] = []
    try:
        for item in text.split(","):
            first, dots, last = item.partition("..")
            numbers = range(int(first), int(last) + 1) if dots else [int(item)]
            found += numbers[: SEEDS_MAX + 1]
    except ValueError:
        found = []
    if not found:
        message = f"{flag}: expected integers N,N,... or N..N, got {text!r}"
        raise PolicyError(message, value=text)
    if len(found) > SEEDS_MAX:
        message = f"{flag}: expected at most {SEEDS_MAX:,} seeds, got more in {text!r}"
        raise PolicyError(f"{message}; each seed is a run", value=text)
    return found


def split_settings(settings: list[str] | None) -> tuple[dict[str, Any], ClusterOptions]:
    """Split settings into those of the policy and those of the cluster's tables.

    `@FILE` stands for all parameters in a TOML file, and `POLICY.@FILE` gives them to one policy.
    """
    from pathlib import Path

    from gangline.policies.registry import parse_setting, read_settings
    from gangline.runs.inputs import TABLES

    given: list[tuple[str, Any]] = []
    for text in settings or []:
        owner, at, file = text.partition("@")
        if at and (not owner or owner.endswith(".")):
            given += [(owner + key, value) for key, value in read_settings(Path(file)).items()]
        else:
            given.append(parse_setting(text))
    policy: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in given:
        name, dot, rest = key.partition(".")
        if dot and name in TABLES:
            tables.setdefault(name, {})[rest] = value
        else:
            policy[key] = value
    return policy, cast("ClusterOptions", tables)  # checked with the cluster


def policy(name: str, params: dict[str, Any]) -> PolicyBase | Policy:
    """Build a policy: from the registry, from an installed package, or from `module:Class`.

    The name of a parameter may begin with that of the policy, as in commands with several policies.
    Modules in the working directory are found, as with `python -m`.
    """
    from gangline.policies.own import is_own, make_own
    from gangline.policies.registry import make, presets, registry

    params = {key.removeprefix(f"{name}."): value for key, value in params.items()}
    if name in registry or name in presets or not is_own(name):
        return make(name, params)
    find_modules_here()
    return make_own(name, params)


def find_modules_here() -> None:
    """Let policies in Python be imported from the working directory, also in child processes."""
    import sys
    from pathlib import Path

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def policies(
    names: str, settings: list[str] | None
) -> tuple[list[PolicyBase | Policy], ClusterOptions]:
    """Build the policies of `--policies a,b` with `--set a.key=value`, and the cluster settings.

    A setting without a policy name applies to every policy with this parameter.
    """
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise PolicyError("--policies: expected names separated by commas, got none")
    given, tables = split_settings(settings)
    for name in chosen:
        if "(" in name:
            plain = name.partition("(")[0]
            message = f"--policies: {name}: expected a name; give parameters by --set"
            raise PolicyError(f"{message} {plain}.KEY=VALUE", field="policies", value=name)
    values: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for key, value in given.items():
        name, _, parameter = key.rpartition(".")
        if name:
            if name not in values:
                message = f"--set {key}: `{name}` is not among --policies {names}"
                hint = "settings of the cluster begin with `sharing.` or `runtime.`"
                raise PolicyError(f"{message}; {hint}", field=key, value=value)
            values[name][parameter] = value
            continue
        takers = [item for item in chosen if key in _parameters(item)]
        if not takers:
            raise PolicyError(
                f"--set {key}: none of the policies has it; write POLICY.KEY=VALUE", field=key
            )
        for taker in takers:
            values[taker][key] = value
    return [policy(name, values[name]) for name in chosen], tables


def _parameters(name: str) -> Collection[str]:
    from gangline.policies.own import is_own, load, parameters
    from gangline.policies.registry import find, presets, registry

    if name in registry or name in presets or not is_own(name):
        return find(name)().params()
    find_modules_here()
    return parameters(load(name))
