"""Hypothesis strategies that generate small and awkward clusters, traces, worlds and plans.

A failing example shrinks to a readable world with round numbers, a few jobs named a, b, c, and only
the features that matter. Every outage ends, so no gang waits for a server that never recovers. The
strategies need the extra `testing`.

Examples
--------
>>> from hypothesis import given, settings
>>> import gangline as gl
>>> from gangline.testing import strategies
>>> @settings(max_examples=20, database=None, derandomize=True, deadline=None)
... @given(world=strategies.plain_worlds())
... def test_every_job_finishes(world):
...     assert world.simulate("fifo").summary["finished"] == len(world.jobs)
>>> test_every_job_finishes()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.errors import MissingExtraError
from gangline.testing.worlds import TIME_SCALES, World

try:
    from hypothesis import strategies as st
except ImportError:
    message = "random worlds need the library hypothesis: pip install 'gangline[testing]'"
    raise MissingExtraError(message, extra="testing") from None

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.cluster.description import Cluster
    from gangline.policies.protocol import Plan, View
    from gangline.trace.jobs.table import Trace

__all__ = [
    "any_worlds",
    "clusters",
    "contended_worlds",
    "elastic_worlds",
    "iteration_worlds",
    "phase_worlds",
    "plain_worlds",
    "plans",
    "run_time_worlds",
    "sharing_worlds",
    "traces",
    "worlds",
]

_MODELS = ("x", "vgg16", "resnet50", "bert")
_DEFAULT_MODELS = ("vgg16", "ResNet18")
IDS = "abcdefghijklmnopqrstuvwxyz"
_ROUND = st.sampled_from([1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 1e-3])
_LENGTHS = _ROUND | st.floats(1e-3, 30.0)
_ANY_LENGTHS = _ROUND | st.just(1e-9) | st.floats(1e-6, 30.0)
_GAPS = {  # the seconds from one arrival to the next
    "at once": (0.0,),
    "stream": (1.0, 2.0),
    "batches": (0.0, 0.0, 0.0, 5.0),
    "any": (0.0, 1.0, 0.0, 2.0, 0.0, 5.0, 0.125, 0.0, 1.0, 7.3, 0.001, 3.0),
}
_OF_CLUSTERS = ("types", "prices", "racks", "outages", "capacity")
_OF_JOBS = (
    *("model", "weight", "user", "vc", "batch_size", "memory_gb", "deadline_s"),
    *("iterations", "gpu_types"),
)
_OF_RUNS = ("restart_s", "first_start_s", "restart_by_model", "count_arrivals")
_OF_PLACES = ("network", "levels", "sharing", "throughput")
_KIND = ("model", "gpus", "gpu_type")  # the keys that select jobs in the table of start costs
_COSTS = ("first_start_s", "restart_s", "stop_s", "checkpoint_s")
_SIGMAS = ("job_noise", "run_noise", "straggler_noise")


def _one_in(draw: st.DrawFn, count: int) -> bool:
    """Draw a flag that is rarely true, and that shrinks to false."""
    return draw(st.integers(0, count - 1)) == count - 1


def _some(names: Sequence[str]) -> st.SearchStrategy[frozenset[str]]:
    """Draw a set of features; the simplest case is the empty set."""
    return st.frozensets(st.sampled_from(names), max_size=min(len(names), 14))


@st.composite
def _cluster(draw: st.DrawFn, features: frozenset[str]) -> dict[str, Any]:
    """Draw a cluster's keys: one to three GPU types, and one to four blocks of servers."""
    many = draw(st.integers(2, 3)) if "types" in features else 1
    types: list[dict[str, Any]] = [
        {"name": name, "memory_gb": draw(st.sampled_from([16, 8]))} for name in "ABC"[:many]
    ]
    for row in types:
        if "types" in features:
            row["speed"] = draw(st.sampled_from([1.0, 0.5, 1.5, 2.0]))
        if "prices" in features:
            row["price_per_hour"] = draw(st.sampled_from([1.0, 0.5, 3.0]))
    names = st.sampled_from([row["name"] for row in types])
    block = st.fixed_dictionaries(
        {
            "count": st.integers(1, 3),
            "gpu": names,
            "gpus": st.sampled_from([1, 2, 3, 4]),
            "rack": st.sampled_from([0, 1, "fill:2"]) if "racks" in features else st.just(0),
        }
    )
    servers = draw(st.lists(block, min_size=1, max_size=4))
    keys: dict[str, Any] = {"gpu_types": types, "servers": servers}
    total = sum(row["count"] for row in servers)
    if "outages" in features:
        if "random failures" in features and draw(st.booleans()):
            keys["failures"] = {"mtbf_hours": 0.01, "mttr_hours": 0.002}
        else:
            keys["failures"] = {"table": draw(_outages(total))}
    elif "capacity" in features:
        counts = st.integers(1, total)
        times = draw(st.sampled_from([[3.0, 8.0], [0.0, 6.0], [2.0, 5.0, 12.0]]))
        keys["capacity"] = [{"at_s": at, "servers": draw(counts)} for at in times]
        keys["capacity"].append({"at_s": 20.0, "servers": total})
    return keys


@st.composite
def _outages(draw: st.DrawFn, servers: int) -> list[dict[str, Any]]:
    """Draw up to three servers that fail and recover; one of them may fail twice."""
    chosen = draw(st.sets(st.integers(0, servers - 1), min_size=1, max_size=3))
    table = [
        {
            "server": server,
            "down_s": draw(st.sampled_from([1.0, 5.0, 7.5])),
            "up_s": draw(st.sampled_from([8.0, 9.0, 15.0])),
        }
        for server in sorted(chosen)
    ]
    # a second outage begins when the first one ends, and is listed before it
    if draw(st.booleans()):
        at_s = table[0]["up_s"]
        table.insert(0, {**table[0], "down_s": at_s, "up_s": at_s + 3.0})
    return table


@st.composite
def _jobs(
    draw: st.DrawFn, features: frozenset[str], types: Sequence[str], gpus: int
) -> list[dict[str, Any]]:
    """Draw up to twelve rows of a trace, whose arrivals follow one of several patterns.

    The number of draws for a row does not depend on the pattern, so a failing example can change
    its pattern while it shrinks.
    """
    gaps = draw(st.sampled_from([*_GAPS.values()]))
    same_length, same_gang = draw(st.booleans()), draw(st.booleans())
    lengths = _ANY_LENGTHS if "random failures" in features else _LENGTHS
    job = st.tuples(st.integers(0, 11), st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, gpus]), lengths)
    rows = draw(st.lists(job, min_size=1, max_size=12))
    found: list[dict[str, Any]] = []
    at_s = 0.0
    for i, (gap, gang, length) in enumerate(rows):
        at_s += gaps[gap % len(gaps)]
        row: dict[str, Any] = {
            "job_id": IDS[i],
            "arrival_s": at_s,
            "gpus": rows[0][1] if same_gang else gang,
            "duration_s": rows[0][2] if same_length else length,
        }
        for name in _OF_JOBS:
            if name in features and not draw(st.booleans()):
                row[name] = draw(_value(name, row, types))
        found.append(row)
    return found


def _value(name: str, row: dict[str, Any], types: Sequence[str]) -> st.SearchStrategy[Any]:
    """Return the values of an optional column."""
    at_s = row["arrival_s"]
    values: dict[str, st.SearchStrategy[Any]] = {
        "model": st.sampled_from(_MODELS),
        "weight": st.sampled_from([2.0, 0.5, 5.0]),
        "user": st.sampled_from(["a", "b", "B"]),
        "vc": st.sampled_from(["a", "b", "B"]),
        "batch_size": st.sampled_from([8, 32, 5]),
        "memory_gb": st.sampled_from([2.0, 5.0, 9.0, 12.0]),
        "deadline_s": st.sampled_from([5.0, 20.0, 60.0, 0.5]).map(lambda after: at_s + after),
        "iterations": st.integers(1, 1000).map(float),
        "gpu_types": st.sampled_from(types).map(lambda kind: [kind]),
    }
    return values[name]


@st.composite
def _options(
    draw: st.DrawFn, features: frozenset[str], jobs: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Draw the options of a run."""
    options: dict[str, Any] = {"on_infeasible": "drop"}
    values: dict[str, st.SearchStrategy[Any]] = {
        "restart_s": st.sampled_from([1.0, 0.5, 3.0]),
        "first_start_s": st.sampled_from([1.0, 2.0]),
        "checkpoint_interval_s": st.sampled_from([1.0, 2.5]),
        "restart_by_model": st.just({"x": 4.0}),
        "seed": st.integers(0, 99),
    }
    options |= {name: draw(values[name]) for name in values if name in features}
    if "count_arrivals" in features:
        options["count_arrivals"] = draw(_windows(jobs))
    return options


@st.composite
def _windows(draw: st.DrawFn, jobs: Sequence[dict[str, Any]]) -> list[float]:
    """Draw a window that contains at least one arrival, because a run rejects an empty window."""
    first = draw(st.sampled_from(jobs))["arrival_s"]
    return [first, first + draw(st.sampled_from([1.0, 8.0, 30.0]))]


def _types(keys: dict[str, Any]) -> list[str]:
    return [row["name"] for row in keys["gpu_types"]]


def _gpus(keys: dict[str, Any]) -> int:
    return sum(int(row["count"]) * int(row["gpus"]) for row in keys["servers"])


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw clusters: GPU types, blocks of servers, racks, prices, outages, and changes over time.

    Returns
    -------
    strategy of Cluster
        Clusters of at most 12 servers with at most 4 GPUs each; they have no network and no tables.
    """
    from gangline.cluster.description import Cluster

    return Cluster.from_dict(draw(_cluster(draw(_some(_OF_CLUSTERS)))))


@st.composite
def traces(draw: st.DrawFn, *, types: Sequence[str] = ("A",), gpus: int = 4) -> Trace:
    """Draw traces of at most 12 jobs: arriving at once, in batches, as a stream, or at any time.

    Parameters
    ----------
    types : sequence of str
        GPU types that jobs may request.
    gpus : int
        Number of GPUs of the largest gang; the other gangs have 1 to 6 GPUs.

    Returns
    -------
    strategy of Trace
        Traces with any of the optional columns of the native format.
    """
    jobs = draw(_jobs(draw(_some(_OF_JOBS)), types, gpus))
    trace: Trace = World({}, jobs).trace
    return trace


@st.composite
def plain_worlds(draw: st.DrawFn, *, time_scales: Sequence[float] = (1.0,)) -> World:
    """Draw worlds where only time and GPUs matter: one GPU type, no overhead, no failures.

    Parameters
    ----------
    time_scales : sequence of float
        As for `any_worlds`; the default is 1 alone.

    Returns
    -------
    strategy of World
        Worlds in which every job runs at rate 1 everywhere, so results are easy to compute by hand.
    """
    keys = draw(_cluster(frozenset()))
    gpus = _gpus(keys)
    jobs = draw(_jobs(frozenset(), ["A"], gpus))
    for row in jobs:
        row["gpus"] = min(row["gpus"], gpus)
    return _stretched(World(keys, jobs, {}), draw(st.sampled_from(time_scales)))


@st.composite
def worlds(draw: st.DrawFn, *, checkpoints: bool = False, random_failures: bool = False) -> World:
    """Draw worlds with any features: GPU types, racks, networks, tables, sharing, memory, outages.

    Parameters
    ----------
    checkpoints : bool
        Whether stopped jobs may lose their progress since the last checkpoint. A run may then never
        end, if its policy stops jobs more often than they write checkpoints.
    random_failures : bool
        Whether servers may fail at random times; a long job may then never end. With such failures,
        jobs may also be as short as a nanosecond, which is below the tolerance for sums over a run.

    Returns
    -------
    strategy of World
        Small worlds, most of which have a few of these features.
    """
    names = [*_OF_CLUSTERS, *_OF_JOBS, *_OF_RUNS, *_OF_PLACES, "seed"]
    names += ["checkpoint_interval_s"] if checkpoints else []
    features = draw(_some(names))
    features |= {"random failures"} if random_failures else set()
    if features & {*_OF_PLACES, "restart_by_model"}:  # these features depend on the model of a job
        features |= {"model"}
    keys = draw(_cluster(features))
    jobs = draw(_jobs(features, _types(keys), _gpus(keys)))
    if "network" in features:
        keys["network"] = draw(_networks())
    elif "levels" in features:
        keys["network"] = {"levels": {"*": [1.0, 0.7, 0.4], "x": [1.0, 0.9, 0.9]}}
    keys["sharing"] = draw(_sharings(_types(keys))) if "sharing" in features else {"xi": 1.5}
    if "throughput" in features:
        keys["throughput"] = draw(_throughputs(keys, jobs))
    return World(keys, jobs, draw(_options(features, jobs)))


@st.composite
def run_time_tables(
    draw: st.DrawFn,
    models: Sequence[str],
    types: Sequence[str],
    *,
    checkpoint_interval_s: float | None = None,
    restarts: bool = True,
) -> dict[str, Any]:
    """Draw a `[runtime]` table: noise, and start costs for each kind of job.

    Without `restarts`, a restart or a stop takes at most a quarter of a second, because a lease,
    turn or round must be longer than a restart.
    """
    noise = st.sampled_from([0.0, 0.0, 0.05, 0.3, 2.0])
    table: dict[str, Any] = {name: draw(noise) for name in _SIGMAS if draw(st.booleans())}
    costs = {name: st.sampled_from([0.0, 0.25, 1.0, 3.0]) for name in _COSTS}
    if not restarts:
        costs["restart_s"] = costs["stop_s"] = st.sampled_from([0.0, 0.25])
    if checkpoint_interval_s is None:
        del costs["checkpoint_s"]
    else:
        parts = [0.0, 0.1 * checkpoint_interval_s, 0.75 * checkpoint_interval_s]
        costs["checkpoint_s"] = st.sampled_from(parts)
        if draw(st.booleans()):
            table["checkpoint_s"] = draw(costs["checkpoint_s"])
    kinds = st.tuples(
        st.sampled_from([None, *models, "no such"]),
        st.sampled_from([None, 1, 2, 3, 4, 8]),
        st.sampled_from([None, *types]),
    )
    rows = []
    for kind in draw(st.lists(kinds, unique=True, max_size=6)):
        named = {key: value for key, value in zip(_KIND, kind, strict=True) if value is not None}
        some = draw(st.sets(st.sampled_from(sorted(costs)), min_size=1))
        rows.append(named | {name: draw(costs[name]) for name in sorted(some)})
    if rows:
        table["rows"] = rows
    return table


@st.composite
def run_time_worlds(draw: st.DrawFn) -> World:
    """Draw worlds like those of `worlds`, with a `[runtime]` table: noise, start and stop costs.

    Returns
    -------
    strategy of World
        Worlds in which a restart takes at most a quarter of a second longer than in `worlds`.
    """
    world = draw(worlds())
    models = sorted({str(row["model"]) for row in world.jobs if row.get("model")})
    table = run_time_tables(models, _types(world.cluster_keys), restarts=False)
    world.cluster_keys["runtime"] = draw(table)
    return world


@st.composite
def phases(draw: st.DrawFn) -> str:
    """Draw a job's phases in a trace's format: some with equal rates, some with step sizes."""
    starts = st.sampled_from([1e-9, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.75, 0.999]) | st.floats(
        0.01, 0.99
    )
    rates = st.sampled_from([0.25, 0.5, 1.0, 1.0, 1.7, 3.0, 40.0])
    progress = [0.0, *sorted(set(draw(st.lists(starts, max_size=4))))]
    sizes = st.sampled_from(["", "", ":1", ":2", ":0.5", ":16"])
    return ";".join(f"{start!r}:{draw(rates)!r}{draw(sizes)}" for start in progress)


@st.composite
def phase_worlds(draw: st.DrawFn) -> World:
    """Draw worlds like those of `worlds`, with jobs whose rate changes as they progress.

    Returns
    -------
    strategy of World
        Worlds in which most jobs have up to five phases, given in the column `phases`.
    """
    world = draw(worlds())
    for row in world.jobs:
        if not _one_in(draw, 4):
            row["phases"] = draw(phases())
    return world


@st.composite
def _throughputs(
    draw: st.DrawFn, keys: dict[str, Any], jobs: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Draw rates for some jobs, so that each model may be fastest on a different GPU type.

    Some rates are 0 or missing, and some apply only to one batch size.
    """
    rates = st.sampled_from([1.0, 0.0, 0.25, 3.0, 7.5, 40.0])
    known: dict[tuple[str, str, int, int | None], float] = {}
    for row in jobs:
        if "model" not in row or draw(st.booleans()):
            continue
        row["iterations"] = float(draw(st.sampled_from([1, 10, 45, 120])))
        batch = row.get("batch_size") if draw(st.booleans()) else None
        for kind in _types(keys):
            if not _one_in(draw, 5):
                known[kind, row["model"], row["gpus"], batch] = draw(rates)
    rows = [
        {"gpu_type": kind, "model": model, "gpus": gpus, "iters_per_s": rate}
        | ({} if batch is None else {"batch_size": batch})
        for (kind, model, gpus, batch), rate in known.items()
    ]
    return {"rows": rows}


@st.composite
def _networks(draw: st.DrawFn) -> dict[str, Any]:
    """Draw links and models: a preset, a modified preset, or links for every tier."""
    model = {"compute_s": 0.1, "grad_bytes": 1.4e9, "buckets": 25}
    models = {
        "vgg16": model | {"last_bytes": 56e6, "skew": 0.7},
        "resnet50": model | {"overlap": draw(st.sampled_from([0.0, 0.5, 1.0])), "skew": 0.02},
        "bert": {"compute_s": 0.02, "grad_bytes": 5e8, "buckets": 3},
        "x": {"compute_s": 1e-4, "grad_bytes": 1e6, "buckets": 40, "last_bytes": 0.0},
    }
    network: dict[str, Any] = {
        "models": models,
        "default_model": draw(st.sampled_from(_DEFAULT_MODELS)),
    }
    if not draw(st.booleans()):
        network["preset"] = draw(st.sampled_from(["ideal", "dally-2024", "hgx-h100", "pcie-25g"]))
        if network["preset"] in ("hgx-h100", "pcie-25g") and draw(st.booleans()):
            network["oversubscription"] = draw(st.sampled_from([1.0, 8.0]))
    else:
        algos = st.sampled_from(["ring", "halving", "direct", "auto", ["ring", "halving"]])
        for tier in ("server", "rack", "network"):
            network[tier] = {
                "algo": draw(algos),
                "alpha_s": draw(st.sampled_from([0.0, 1e-6, 1e-3])),
                "port_bw": draw(st.sampled_from([1e9, 1e10, 5e11])),
            }
        if draw(st.booleans()):
            network["rack"]["server_bw"] = 2e9
            network["network"]["uplink_bw"] = 3e9
    if draw(st.booleans()):
        network["detail"] = draw(st.sampled_from(["tier", "layers"]))
        network["order"] = draw(st.sampled_from(["lifo", "fifo"]))
    if draw(st.booleans()):
        network["pipeline"] = False
    has_uplink = network.get("preset") in ("hgx-h100", "pcie-25g") or "uplink_bw" in network.get(
        "network", {}
    )
    if has_uplink and draw(st.booleans()):
        network["contention"] = draw(st.sampled_from(["maxmin", "peak"]))
        network["background"] = draw(st.sampled_from([1.0, 0.5, 0.1]))
    return network


@st.composite
def contended_worlds(draw: st.DrawFn) -> World:
    """Draw worlds with many small racks, in which wide gangs contend for narrow uplinks.

    Returns
    -------
    strategy of World
        Worlds with a network whose uplinks are shared according to max-min fairness or to the peak
        rule.
    """
    drawn = draw(worlds())
    keys: dict[str, Any] = drawn.cluster_keys
    jobs = drawn.jobs
    keys["servers"] = [
        {
            "count": draw(st.integers(2, 5)),
            "gpu": block["gpu"],
            "gpus": draw(st.integers(1, 3)),
            "rack": draw(st.sampled_from(["fill:1", "fill:1", "fill:2"])),
        }
        for block in keys["servers"][:2]
    ]
    total = sum(block["count"] for block in keys["servers"])
    if "failures" in keys:
        rows = [row for row in keys["failures"]["table"] if row["server"] < total]
        keys["failures"] = {"table": rows}
    for row in keys.get("capacity", []):
        row["servers"] = min(row["servers"], total)
    if "capacity" in keys:
        keys["capacity"][-1]["servers"] = total
    for row in jobs:
        row["gpus"] = draw(st.sampled_from([2, 2, 3, 4]))
        row["model"] = draw(st.sampled_from(_MODELS))
    network = draw(_networks())
    network |= {"preset": draw(st.sampled_from(["pcie-25g", "hgx-h100"]))}
    network |= {"network": {"uplink_bw": draw(st.sampled_from([1e9, 2e9, 1e10]))}}
    network |= {"contention": draw(st.sampled_from(["maxmin", "maxmin", "peak"]))}
    network |= {"background": draw(st.sampled_from([1.0, 1.0, 0.5]))}
    for key in ("server", "rack", "oversubscription"):
        network.pop(key, None)
    keys["network"] = network
    return World(keys, jobs, drawn.options)


@st.composite
def _sharings(draw: st.DrawFn, types: Sequence[str] = ()) -> dict[str, Any]:
    """Draw any source of slowdown factors; a gang gets the maximum or the mean of its factors."""
    gang = {"gang_xi": draw(st.sampled_from(["max", "mean"]))}
    kind = draw(st.sampled_from(["constant", "constant", "table", "table", "matrix", "analytic"]))
    if kind == "constant":
        return gang | {"xi": draw(st.sampled_from([1.5, 1.0]))}
    if kind == "analytic":
        util = {label: draw(st.sampled_from([0.3, 0.6, 1.0])) for label in _MODELS[1:]}
        return gang | {"interference": kind, "util": util, "missing": "infeasible"}
    values = st.sampled_from([1.3, 0.9, 2.0, 0.0])
    if kind == "matrix":
        cells = [[draw(values) for _ in _MODELS] for _ in _MODELS]
        matrix = {"interference": kind, "models": [*_MODELS], "matrix": cells, "symmetric": False}
        return gang | matrix | {"missing": "constant", "xi": 1.75}
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in _MODELS for b in _MODELS]
    if draw(st.booleans()):
        return gang | {"interference": kind, "missing": "infeasible", "rows": rows}
    for row in rows:
        if types and _one_in(draw, 4):
            row["gpu_type"] = draw(st.sampled_from(types))
        if _one_in(draw, 4):
            row["gpus"] = draw(st.sampled_from([1, 2]))
        if _one_in(draw, 6):
            row |= {"batch_size": draw(st.sampled_from([8, 32])), "co_batch_size": 32}
    return gang | {
        "interference": draw(st.sampled_from([kind, "gavel"])),
        "missing": draw(st.sampled_from(["infeasible", "constant"])),
        "gang_fallback": draw(st.sampled_from(["single", "infeasible"])),
        "xi": 1.5,
        "rows": rows,
    }


@st.composite
def sharing_worlds(draw: st.DrawFn) -> World:
    """Draw worlds with few GPUs and many jobs, most of which have memory and a batch size.

    Returns
    -------
    strategy of World
        Worlds with slowdown factors around the point where sharing no longer pays, and without
        shared uplinks.
    """
    features = draw(_some([*_OF_RUNS, "levels", "seed"]))
    types: list[dict[str, Any]] = [{"name": "A", "memory_gb": 16, "speed": 1.0}]
    if draw(st.booleans()):
        types.append({"name": "B", "memory_gb": 8, "speed": draw(st.sampled_from([2.0, 0.5]))})
    names = [row["name"] for row in types]
    server = st.fixed_dictionaries({"gpu": st.sampled_from(names), "gpus": st.integers(1, 4)})
    drawn = draw(st.lists(server, min_size=1, max_size=4))
    servers = [{"count": 1, **row, "rack": rack} for rack, row in enumerate(drawn)]
    keys: dict[str, Any] = {"gpu_types": types, "servers": servers}
    if _one_in(draw, 3):
        down = {"server": draw(st.integers(0, len(servers) - 1)), "down_s": 9.0, "up_s": 12.0}
        keys["failures"] = {"table": [down]}
    if "levels" in features:
        keys["network"] = {"levels": {"*": [1.0, 0.7, 0.4], "x": [1.0, 0.9, 0.9]}}
    keys["sharing"] = draw(_slowdowns(names))
    job = st.fixed_dictionaries(
        {
            "arrival_s": st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.5, 20.0]),
            "gpus": st.sampled_from([1, 1, 1, 2, 2, 3, 4]),
            "duration_s": st.sampled_from([2.0, 5.0, 6.0, 10.0, 25.0, 60.0]) | st.floats(1.0, 50.0),
            "model": st.sampled_from(_MODELS),
        },
        optional={
            "batch_size": st.sampled_from([1, 5, 8, 32]),
            "memory_gb": st.sampled_from([2.0, 4.5, 6.0, 7.5, 9.0, 10.0]),
        },
    )
    rows = draw(st.lists(job, min_size=2, max_size=14))
    jobs: list[dict[str, Any]] = [{"job_id": IDS[i], **row} for i, row in enumerate(rows)]
    for row in jobs:
        if _one_in(draw, 6):
            row["gpu_types"] = [draw(st.sampled_from(names))]
    return World(keys, jobs, draw(_options(features, jobs)))


@st.composite
def _slowdowns(draw: st.DrawFn, types: Sequence[str]) -> dict[str, Any]:
    """Draw slowdown factors around the point where sharing no longer pays."""
    sharing: dict[str, Any] = {
        "gang_xi": draw(st.sampled_from(["max", "mean"])),
        "acc_cost": draw(st.sampled_from([0.05, 0.0, 0.01, 0.5])),
        "memory_fixed_fraction": draw(st.sampled_from([0.5, 0.0, 0.1])),
        "overhead_interferes": draw(st.sampled_from([True, True, False])),
    }
    if not draw(st.booleans()):
        return sharing | {"xi": draw(st.sampled_from([1.0, 1.25, 1.5, 1.6, 1.6, 2.0]))}
    values = st.sampled_from([1.0, 1.2, 1.4, 1.6, 2.0, 2.5, 0.0])
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in _MODELS for b in _MODELS]
    for row in rows:
        if _one_in(draw, 5):
            row["gpu_type"] = draw(st.sampled_from(types))
        if _one_in(draw, 5):
            row["gpus"] = draw(st.sampled_from([1, 2]))
    return sharing | {
        "interference": "table",
        "missing": draw(st.sampled_from(["infeasible", "constant"])),
        "rows": rows,
        "xi": 1.3,
    }


@st.composite
def iteration_worlds(draw: st.DrawFn) -> World:
    """Draw worlds like those of `sharing_worlds`, with fitted or measured iteration times.

    Returns
    -------
    strategy of World
        Worlds whose cluster has a table `iter_time`.
    """
    world = draw(sharing_worlds())
    keys: dict[str, Any] = world.cluster_keys
    types = _types(keys)
    seconds = st.sampled_from([0.0, 0.01, 0.1, 0.5])
    rows: list[dict[str, Any]] = []
    rates = {model: draw(_measured_rates(model, types)) for model in _MODELS}
    levels = keys.get("network", {}).get("levels", {})
    for model in _MODELS:
        for kind in (None, *types):
            if not draw(st.booleans()):
                continue
            row: dict[str, Any] = {"model": model}
            row |= {} if kind is None else {"gpu_type": kind}
            source = draw(st.sampled_from(["pollux", "alpha_beta", "table"]))
            if source == "table":
                if rates[model]:
                    rows.append(row | {"kind": "table"})
                continue
            row |= {"a_c": draw(st.sampled_from([0.01, 0.1, 1.0])), "b_c": draw(seconds)}
            norm = draw(st.sampled_from([1.0, 1.5, 2.0, 10.0]))
            if source == "pollux" and model not in levels:
                times = {key: draw(seconds) for key in ("a_n", "b_n", "a_r", "b_r")}
                row |= {"kind": "pollux", "gamma": norm} | times
            else:
                row |= {"kind": "alpha_beta", "a_m": draw(seconds), "b_m": 1e-9, "delta": norm}
                row["bytes"] = draw(st.sampled_from([0.0, 1e8]))
            rows.append(row)
    keys["iter_time"] = rows
    if any(row["kind"] == "table" for row in rows):
        keys["throughput"] = {"rows": [rate for some in rates.values() for rate in some]}
    return world


@st.composite
def _measured_rates(draw: st.DrawFn, model: str, types: Sequence[str]) -> list[dict[str, Any]]:
    """Draw iterations per second at some batch sizes; most are faster at smaller batches."""
    speeds = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])
    return [
        {"gpu_type": t, "model": model, "gpus": gpus, "batch_size": batch, "iters_per_s": speed}
        for t in types
        for gpus in (1, 2)
        for batch in (32, 16, 8, 5, 4, 3)
        if draw(st.booleans()) and (speed := draw(speeds))
    ]


@st.composite
def elastic_worlds(draw: st.DrawFn, *, checkpoints: bool = False) -> World:
    """Draw worlds with one GPU type and mostly elastic jobs; some gangs have a fixed size.

    Parameters
    ----------
    checkpoints : bool
        As for `worlds`.

    Returns
    -------
    strategy of World
        Worlds whose cluster has a table `elastic`.
    """
    drawn = draw(worlds(checkpoints=checkpoints, random_failures=checkpoints))
    keys: dict[str, Any] = drawn.cluster_keys
    jobs: list[dict[str, Any]] = drawn.jobs
    kind = keys["gpu_types"][0]
    keys["gpu_types"] = [kind]
    for block in keys["servers"]:
        block["gpu"] = kind["name"]
    for key in ("network", "throughput"):
        keys.pop(key, None)
    fixed = draw(st.sampled_from([0.5, 0.5, 0.0, 0.1, 1.0]))
    keys["sharing"] = {"xi": 1.5, "memory_fixed_fraction": fixed}
    keys["elastic"] = draw(_elastic_models())
    models = keys["elastic"]["models"]
    for row in jobs:
        row.pop("iterations", None)
        row.pop("gpu_types", None)
        row["gpus"] = min(row["gpus"], _gpus(keys))
        row["duration_s"] = draw(st.sampled_from([2.0, 5.0, 20.0, 33.3, 80.0]))
        row["model"] = draw(st.sampled_from(["vgg16", "vgg16", "bert", "x"]))
        if row["model"] in models:
            init = models[row["model"]]["init_batch"]
            least = -(-init // row["gpus"])
            # passes may be larger than the traced batch and then need more memory
            if draw(st.booleans()):
                row["memory_gb"] = draw(st.sampled_from([2.0, 5.0, 7.7, 9.0, 12.0]))
            row["batch_size"] = least * draw(st.sampled_from([1, 1, 2, 5]))
            if _one_in(draw, 5):
                row["min_gpus"] = draw(st.integers(1, row["gpus"]))
            if _one_in(draw, 5):
                row["max_gpus"] = row["gpus"] + draw(st.integers(0, 6))
    return World(keys, jobs, drawn.options)


@st.composite
def _elastic_models(draw: st.DrawFn) -> dict[str, Any]:
    """Draw models of elastic jobs, with steps of milliseconds to seconds, and some with phases."""
    found = {}
    for label in ("vgg16", "bert"):
        init = draw(st.sampled_from([8, 16, 20]))
        row: dict[str, Any] = {
            "a_c": draw(st.sampled_from([0.01, 0.1, 0.3])),
            "b_c": draw(st.sampled_from([0.001, 0.02])),
            "a_r": draw(st.sampled_from([0.0, 0.03, 0.2])),
            "b_r": draw(st.sampled_from([0.0, 0.01])),
            "a_n": draw(st.sampled_from([0.05, 0.3, 1.0])),
            "b_n": draw(st.sampled_from([0.0, 0.02])),
            "gamma": draw(st.sampled_from([1.0, 1.5, 2.489, 10.0])),
            "init_batch": init,
            "max_batch": init * draw(st.sampled_from([1, 6, 50])),
            "min_pass_batch": draw(st.sampled_from([1, 4])),
            "max_pass_batch": draw(st.sampled_from([4, 8, 32])),
        }
        kind = draw(st.sampled_from(["default", "scale", "phases", "phases", "batches"]))
        if kind == "scale":
            row["noise_scale"] = draw(st.sampled_from([1.0, 50.0, 1000.0]))
        if kind in ("phases", "batches"):
            batches = [1] if kind == "phases" else draw(st.sampled_from([[init], [8, 20, 100]]))
            starts = [0.0, *draw(st.sampled_from([[], [0.5], [0.1, 0.35], [0.25, 0.5, 0.9]]))]
            gradients = st.sampled_from([0.0, 0.01, 0.5, 3.0])
            row["noise"] = [[at, *(draw(gradients) for _ in 2 * batches)] for at in starts]
            if kind == "batches":
                row["noise_batches"] = batches
        found[label] = row
    return {"models": found}


@st.composite
def any_worlds(draw: st.DrawFn, *, time_scales: Sequence[float] = TIME_SCALES) -> World:
    """Draw worlds from most strategies of this module, with jobs of seconds, minutes or hours.

    Parameters
    ----------
    time_scales : sequence of float
        Positive factors. One of these factors multiplies the instants of all events in a world and
        the work of its jobs. The costs of starts and stops remain in seconds, because leases and
        rounds must be longer than a restart. Put the simplest factor first. The default is 1, 60
        and 3600.

    Returns
    -------
    strategy of World
        Worlds from `plain_worlds`, `worlds`, `run_time_worlds`, `phase_worlds`, `contended_worlds`,
        `sharing_worlds`, `elastic_worlds`. Simple worlds are the most frequent.
    """
    simple, rich = plain_worlds(), worlds()
    costly = (run_time_worlds(), phase_worlds())
    special = (contended_worlds(), sharing_worlds(), elastic_worlds())
    kinds = st.one_of(simple, simple, rich, rich, rich, *costly, *special)
    return _stretched(draw(kinds), draw(st.sampled_from(time_scales)))


def _stretched(world: World, scale: float) -> World:
    """Multiply the times of a world's events, and the work of its jobs."""
    if scale == 1.0:
        return world
    keys: dict[str, Any] = {**world.cluster_keys}
    options: dict[str, Any] = {**world.options}
    if "failures" in keys:
        keys["failures"] = {
            name: [_times(row, ("down_s", "up_s"), scale) for row in value]
            if name == "table"
            else value * scale
            for name, value in keys["failures"].items()
        }
    if "capacity" in keys:
        keys["capacity"] = [_times(row, ("at_s",), scale) for row in keys["capacity"]]
    if "count_arrivals" in options:
        options["count_arrivals"] = [at * scale for at in options["count_arrivals"]]
    columns = ("arrival_s", "duration_s", "deadline_s", "iterations")
    return World(keys, [_times(row, columns, scale) for row in world.jobs], options)


def _times(row: dict[str, Any], names: Sequence[str], scale: float) -> dict[str, Any]:
    """Return the row with the named values multiplied by `scale`."""
    return row | {name: row[name] * scale for name in names if row.get(name) is not None}


@st.composite
def plans(draw: st.DrawFn, view: View, *, wild: bool = False) -> Plan:
    """Draw plans for a view: preemptions, and starts on GPUs that are free afterwards.

    Parameters
    ----------
    view : View
        The view with which `decide` is called.
    wild : bool
        Whether plans may break the engine's rules: jobs that are not waiting, gangs of the wrong
        size, or GPUs that are in use or do not exist.

    Returns
    -------
    strategy of Plan
        Plans; without `wild`, the engine accepts them if every job may use every GPU type.

    Examples
    --------
    >>> from hypothesis import given, settings, strategies as st
    >>> import gangline as gl
    >>> from gangline.testing import strategies
    >>> class Drawn(gl.Policy):
    ...     '''Does whatever is drawn.'''
    ...     wake_on = ("arrival", "completion", "capacity", "timer")
    ...     def __init__(self, data):
    ...         self.data = data
    ...     def decide(self, view, changes):
    ...         plan = self.data.draw(strategies.plans(view))
    ...         plan.wake_at(view.now_s + 1.0)
    ...         return plan
    >>> @settings(max_examples=20, database=None, derandomize=True, deadline=None)
    ... @given(world=strategies.plain_worlds(), data=st.data())
    ... def test_any_plan_keeps_every_law(world, data):
    ...     result = world.simulate(Drawn(data), segments=True, max_events=200)
    ...     gl.testing.check_result(result, world.cluster, world.trace)
    >>> test_any_plan_keeps_every_law()
    """
    from gangline.policies.protocol import Plan

    plan = Plan()
    free = [int(mask) for mask in view.servers("free_mask")]
    kinds = [int(kind) for kind in view.servers("gpu_type")]
    for job in view.running("job").tolist():
        if _one_in(draw, 6):
            plan.preempt(job)
            for server, mask in view.gpus_of(job).items():
                free[server] |= mask
    waiting = zip(
        *(view.waiting(name).tolist() for name in ("job", "gpus", "gpu_types")), strict=True
    )
    for job, gang, allowed in waiting:
        if _one_in(draw, 4):
            continue
        if wild and _one_in(draw, 3):
            server = draw(st.integers(0, len(free)))
            plan.start(draw(st.integers(0, job + 1)), masks={server: draw(st.integers(1, 31))})
            continue
        for kind in draw(st.permutations(sorted(set(kinds)))):
            suits = allowed >> kind & 1
            order = draw(st.permutations([at for at, k in enumerate(kinds) if k == kind and suits]))
            taken = _take(free, order, gang)
            if taken:
                plan.start(job, masks=taken)
                break
    return plan


def _take(free: list[int], order: Sequence[int], gang: int) -> dict[int, int]:
    """Take free GPUs on the servers in this order, lowest slots first; none if too few are free."""
    if sum(free[server].bit_count() for server in order) < gang:
        return {}
    taken: dict[int, int] = {}
    for server in order:
        while gang and free[server]:
            lowest = free[server] & -free[server]
            free[server] ^= lowest
            taken[server] = taken.get(server, 0) | lowest
            gang -= 1
    return taken
