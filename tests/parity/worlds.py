"""Drawn worlds: small, nasty, and in the format of tests/scenarios. Parameters: `draws.py`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

MODELS = ["vgg16", "ResNet18"]
LABELS = ["vgg16", "resnet50", "bert", "x"]
_ARRIVALS = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 5.0, 7.0, 10.0]),
    st.floats(0.0, 20.0).map(lambda s: round(s, 3)),
)
_DURATIONS = st.one_of(
    st.sampled_from([1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 1e-9]), st.floats(1e-6, 30.0)
)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    """One to three GPU types, one to four blocks of servers, failures now and then."""
    types = [
        {
            "name": f"t{i}",
            "memory_gb": draw(st.sampled_from([8, 16])),
            "speed": draw(st.sampled_from([1.0, 0.5, 1.5, 2.0])),
            "price_per_hour": draw(st.sampled_from([1.0, 0.5, 3.0])),
        }
        for i in range(draw(st.sampled_from([1, 1, 2, 3])))
    ]
    servers = [
        {
            "count": draw(st.integers(1, 3)),
            "gpu": draw(st.sampled_from(types))["name"],
            "gpus": draw(st.sampled_from([1, 2, 3, 4])),
            "rack": draw(st.sampled_from([0, 1, "fill:2"])),
        }
        for _ in range(draw(st.integers(1, 4)))
    ]
    cluster: dict[str, Any] = {"name": "drawn", "gpu_types": types, "servers": servers}
    total = sum(block["count"] for block in servers)
    kind = draw(st.sampled_from(["none", "none", "table", "random", "capacity"]))
    if kind == "capacity":
        counts = st.integers(1, total)
        times = draw(st.sampled_from([[0.0, 6.0], [3.0, 8.0], [2.0, 5.0, 12.0]]))
        cluster["capacity"] = [{"at_s": at, "servers": draw(counts)} for at in times]
        cluster["capacity"].append({"at_s": 20.0, "servers": total})
    if kind == "table":
        chosen = draw(st.sets(st.integers(0, total - 1), min_size=1, max_size=3))
        cluster["failures"] = {
            "table": [
                {
                    "server": server,
                    "down_s": draw(st.sampled_from([1.0, 5.0, 7.5])),
                    "up_s": draw(st.sampled_from([8.0, 9.0, 15.0])),
                }
                for server in sorted(chosen)
            ]
        }
        if draw(st.booleans()):  # a second outage as the first ends, listed before it
            again = {**cluster["failures"]["table"][0]}
            again |= {"down_s": again["up_s"], "up_s": again["up_s"] + 3.0}
            cluster["failures"]["table"].insert(0, again)
    elif kind == "random":
        cluster["failures"] = {"mtbf_hours": 0.01, "mttr_hours": 0.002}
    return cluster


@st.composite
def jobs(draw: st.DrawFn, index: int, types: int) -> dict[str, Any]:
    """One job row of the native trace."""
    row: dict[str, Any] = {
        "job_id": f"j{index}",
        "arrival_s": draw(_ARRIVALS),
        "gpus": draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6])),
        "duration_s": draw(_DURATIONS),
    }
    if draw(st.booleans()):
        row["model"] = draw(st.sampled_from(LABELS))
    if draw(st.integers(0, 3)) == 0:
        row["weight"] = draw(st.sampled_from([0.5, 2.0, 5.0]))
    for name in ("user", "vc"):
        if draw(st.integers(0, 2)) == 0:
            row[name] = draw(st.sampled_from(["a", "b", "B"]))
    if draw(st.integers(0, 3)) == 0:
        row["batch_size"] = draw(st.sampled_from([8, 32, 5]))
    if draw(st.integers(0, 3)) == 0:
        row["memory_gb"] = draw(st.sampled_from([2.0, 5.0, 9.0, 12.0]))
    if draw(st.integers(0, 3)) == 0:
        row["deadline_s"] = row["arrival_s"] + draw(st.sampled_from([0.5, 5.0, 20.0, 60.0]))
    if draw(st.integers(0, 4)) == 0:
        row["iterations"] = float(draw(st.integers(1, 1000)))
    if draw(st.integers(0, 4)) == 0:
        row["gpu_types"] = [f"t{draw(st.integers(0, types - 1))}"]
    return row


@st.composite
def worlds(draw: st.DrawFn, *, checkpoints: bool = True) -> dict[str, Any]:
    """A whole world; `checkpoints=False` leaves out what can make a preemptive run endless."""
    cluster = draw(clusters())
    types = len(cluster["gpu_types"])
    count = draw(st.integers(1, 12))
    world: dict[str, Any] = {
        "cluster": cluster,
        "jobs": [draw(jobs(i, types)) for i in range(count)],
        "run": {"on_infeasible": "drop", "seed": draw(st.integers(0, 99))},
    }
    run = world["run"]
    if draw(st.booleans()):
        run["restart_s"] = draw(st.sampled_from([1.0, 0.5, 3.0]))
    if draw(st.integers(0, 2)) == 0:
        run["first_start_s"] = draw(st.sampled_from([1.0, 2.0]))
    if checkpoints and draw(st.integers(0, 2)) == 0:
        run["checkpoint_interval_s"] = draw(st.sampled_from([1.0, 2.5]))
    if draw(st.integers(0, 4)) == 0:
        run["restart_by_model"] = {"x": 4.0}
    distance = draw(st.sampled_from(["none", "levels", "network", "network"]))
    if distance == "network":
        world["network"] = draw(networks())
    if distance == "levels":
        world["locality"] = {"*": {"rack": 0.7, "network": 0.4}, "x": {"rack": 0.9, "network": 0.9}}
    world["sharing"] = draw(sharings(tuple(row["name"] for row in cluster["gpu_types"])))
    if draw(st.integers(0, 2)) == 0:
        world["throughput"] = draw(throughputs(world))
    draw_window(draw, world)
    return world


def draw_window(draw: st.DrawFn, world: dict[str, Any]) -> None:
    """Count all jobs, or those of a window; a run is refused where no job arrives in it."""
    world["run"].pop("count_arrivals", None)
    if draw(st.integers(0, 2)) == 0:
        first = draw(st.sampled_from(world["jobs"]))["arrival_s"]
        world["run"]["count_arrivals"] = [first, first + draw(st.sampled_from([1.0, 8.0, 30.0]))]


@st.composite
def throughputs(draw: st.DrawFn, world: dict[str, Any]) -> dict[str, Any]:
    """Rates by type for some of the jobs: no order among types, zeros, gaps, some by batch size."""
    rates = st.sampled_from([0.0, 0.25, 1.0, 3.0, 7.5, 40.0])
    known: dict[tuple[str, str, int, int | None], float] = {}
    for row in world["jobs"]:
        if "model" not in row or not draw(st.booleans()):
            continue
        row["iterations"] = float(draw(st.sampled_from([1, 10, 45, 120])))
        batch = row.get("batch_size") if draw(st.booleans()) else None
        for kind in world["cluster"]["gpu_types"]:
            if draw(st.integers(0, 4)):
                key = (kind["name"], row["model"], row["gpus"], batch)
                known[key] = draw(rates)
    rows = [
        {"gpu_type": kind, "model": model, "gpus": gpus, "iters_per_s": rate}
        | ({} if batch is None else {"batch_size": batch})
        for (kind, model, gpus, batch), rate in known.items()
    ]
    return {"rows": rows}


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Links and models: a preset as it is, one that is changed, or own links."""
    model = {"compute_s": 0.1, "grad_bytes": 1.4e9, "buckets": 25}
    models = {
        "vgg16": model | {"last_bytes": 56e6, "skew": 0.7},
        "resnet50": model | {"overlap": draw(st.sampled_from([0.0, 0.5, 1.0])), "skew": 0.02},
        "bert": {"compute_s": 0.02, "grad_bytes": 5e8, "buckets": 3},
        "x": {"compute_s": 1e-4, "grad_bytes": 1e6, "buckets": 40, "last_bytes": 0.0},
    }
    network: dict[str, Any] = {"models": models, "default_model": draw(st.sampled_from(MODELS))}
    if draw(st.booleans()):
        network["preset"] = draw(st.sampled_from(["dally-2024", "hgx-h100", "pcie-25g", "ideal"]))
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
def crowded(draw: st.DrawFn) -> dict[str, Any]:
    """Many narrow racks, gangs that must cross them, up-links too thin for all of them."""
    world = draw(worlds(checkpoints=False))
    cluster = world["cluster"]
    cluster["servers"] = [
        {
            "count": draw(st.integers(2, 5)),
            "gpu": block["gpu"],
            "gpus": draw(st.integers(1, 3)),
            "rack": draw(st.sampled_from(["fill:1", "fill:1", "fill:2"])),
        }
        for block in cluster["servers"][:2]
    ]
    total = sum(block["count"] for block in cluster["servers"])
    failures = cluster.get("failures", {})
    if "table" in failures:
        rows = [row for row in failures["table"] if row["server"] < total]
        cluster["failures"] = {"table": rows}
    for row in cluster.get("capacity", []):
        row["servers"] = min(row["servers"], total)
    for row in world["jobs"]:
        row["gpus"] = draw(st.sampled_from([2, 2, 3, 4]))
        row["model"] = draw(st.sampled_from(LABELS))
    world.pop("locality", None)
    network = draw(networks())
    network |= {"preset": draw(st.sampled_from(["pcie-25g", "hgx-h100"]))}
    network |= {"network": {"uplink_bw": draw(st.sampled_from([1e9, 2e9, 1e10]))}}
    network |= {"contention": draw(st.sampled_from(["maxmin", "maxmin", "peak"]))}
    network |= {"background": draw(st.sampled_from([1.0, 1.0, 0.5]))}
    for key in ("server", "rack", "oversubscription"):
        network.pop(key, None)
    world["network"] = network
    return world


@st.composite
def sharings(draw: st.DrawFn, types: tuple[str, ...] = ()) -> dict[str, Any]:
    """Any source of slowdown factors; of a gang the largest or the mean."""
    gang = {"gang_xi": draw(st.sampled_from(["max", "mean"]))}
    kind = draw(st.sampled_from(["constant", "constant", "table", "table", "matrix", "analytic"]))
    if kind == "constant":
        return gang | {"xi": draw(st.sampled_from([1.5, 1.0]))}
    if kind == "analytic":
        util = {label: draw(st.sampled_from([0.3, 0.6, 1.0])) for label in LABELS[:3]}
        return gang | {"interference": kind, "util": util, "missing": "infeasible"}
    values = st.sampled_from([0.9, 1.3, 2.0, 0.0])
    if kind == "matrix":
        cells = [[draw(values) for _ in LABELS] for _ in LABELS]
        matrix = {"interference": kind, "models": LABELS, "matrix": cells, "symmetric": False}
        return gang | matrix | {"missing": "constant", "xi": 1.75}
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in LABELS for b in LABELS]
    if draw(st.booleans()):
        return gang | {"interference": kind, "missing": "infeasible", "rows": rows}
    for row in rows:
        if types and draw(st.integers(0, 3)) == 0:
            row["gpu_type"] = draw(st.sampled_from(types))
        if draw(st.integers(0, 3)) == 0:
            row["gpus"] = draw(st.sampled_from([1, 2]))
        if draw(st.integers(0, 5)) == 0:
            row |= {"batch_size": draw(st.sampled_from([8, 32])), "co_batch_size": 32}
    return gang | {
        "interference": draw(st.sampled_from([kind, "gavel"])),
        "missing": draw(st.sampled_from(["infeasible", "constant"])),
        "gang_fallback": draw(st.sampled_from(["single", "infeasible"])),
        "xi": 1.5,
        "rows": rows,
    }


@st.composite
def iteration_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """The same with iteration times of some models, fitted or measured."""
    world = draw(sharing_worlds())
    types = [row["name"] for row in world["cluster"]["gpu_types"]]
    seconds = st.sampled_from([0.0, 0.01, 0.1, 0.5])
    rows: list[dict[str, Any]] = []
    rates = {model: draw(measured_rates(model, types)) for model in LABELS}
    for model in LABELS:
        for kind in (None, *types):
            if draw(st.booleans()):
                continue
            row = {"model": model} | ({} if kind is None else {"gpu_type": kind})
            source = draw(st.sampled_from(["pollux", "alpha_beta", "table"]))
            if source == "table":
                if rates[model]:
                    rows.append(row | {"kind": "table"})
                continue
            row |= {"a_c": draw(st.sampled_from([0.01, 0.1, 1.0])), "b_c": draw(seconds)}
            norm = draw(st.sampled_from([1.0, 1.5, 2.0, 10.0]))
            if source == "pollux" and model not in world.get("locality", {}):
                times = {key: draw(seconds) for key in ("a_n", "b_n", "a_r", "b_r")}
                row |= {"kind": "pollux", "gamma": norm} | times
            else:
                row |= {"kind": "alpha_beta", "a_m": draw(seconds), "b_m": 1e-9, "delta": norm}
                row["bytes"] = draw(st.sampled_from([0.0, 1e8]))
            rows.append(row)
    if any(row["kind"] == "table" for row in rows):
        world["throughput"] = {"rows": [rate for some in rates.values() for rate in some]}
    return world | {"iter_time": rows}


@st.composite
def measured_rates(draw: st.DrawFn, model: str, types: list[str]) -> list[dict[str, Any]]:
    """Iterations per second at some batch sizes, most of them faster at smaller ones."""
    speeds = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])
    return [
        {"gpu_type": t, "model": model, "gpus": gpus, "batch_size": batch, "iters_per_s": speed}
        for t in types
        for gpus in (1, 2)
        for batch in (32, 16, 8, 5, 4, 3)
        if draw(st.booleans()) and (speed := draw(speeds))
    ]


@st.composite
def sharing_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A few GPUs for many jobs, most with memory and a batch size; no shared up-links."""
    world = draw(worlds(checkpoints=False))
    kinds = [{"name": "t0", "memory_gb": 16, "speed": 1.0}]
    if draw(st.booleans()):
        kinds.append({"name": "t1", "memory_gb": 8, "speed": draw(st.sampled_from([2.0, 0.5]))})
    servers = [
        {
            "count": 1,
            "gpu": draw(st.sampled_from(kinds))["name"],
            "gpus": draw(st.integers(1, 4)),
            "rack": rack,
        }
        for rack in range(draw(st.integers(1, 4)))
    ]
    cluster: dict[str, Any] = {"name": "few", "gpu_types": kinds, "servers": servers}
    if draw(st.integers(0, 2)) == 0:
        down = {"server": draw(st.integers(0, len(servers) - 1)), "down_s": 9.0, "up_s": 12.0}
        cluster["failures"] = {"table": [down]}
    times = st.sampled_from([2.0, 5.0, 6.0, 10.0, 25.0, 60.0])
    world |= {"cluster": cluster, "sharing": draw(crowding(tuple(k["name"] for k in kinds)))}
    world["jobs"] = [
        {
            "job_id": f"j{i}",
            "arrival_s": draw(st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.5, 20.0])),
            "gpus": draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4])),
            "duration_s": draw(st.one_of(times, st.floats(1.0, 50.0))),
            "model": draw(st.sampled_from(LABELS)),
        }
        for i in range(draw(st.integers(2, 14)))
    ]
    for row in world["jobs"]:
        if draw(st.integers(0, 3)):
            row["batch_size"] = draw(st.sampled_from([1, 5, 8, 32]))
        if draw(st.integers(0, 3)):
            row["memory_gb"] = draw(st.sampled_from([2.0, 4.5, 6.0, 7.5, 9.0, 10.0]))
        if draw(st.integers(0, 5)) == 0:
            row["gpu_types"] = [draw(st.sampled_from(kinds))["name"]]
    for key in ("network", "throughput"):
        world.pop(key, None)
    draw_window(draw, world)
    return world


@st.composite
def elastic_models(draw: st.DrawFn) -> dict[str, Any]:
    """Models of elastic jobs whose steps take milliseconds to seconds, some with phases."""
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
        kind = draw(st.sampled_from(["default", "scale", "phases", "phases"]))
        if kind == "scale":
            row["noise_scale"] = draw(st.sampled_from([1.0, 50.0, 1000.0]))
        if kind == "phases":
            starts = [0.0, *draw(st.sampled_from([[], [0.5], [0.1, 0.35], [0.25, 0.5, 0.9]]))]
            gradients = st.sampled_from([0.0, 0.01, 0.5, 3.0])
            row["noise"] = [[at, draw(gradients), draw(gradients)] for at in starts]
        found[label] = row
    return {"models": found}


@st.composite
def elastic_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Servers of one GPU type; most jobs are elastic, some are gangs of one size."""
    world = draw(worlds(checkpoints=draw(st.booleans())))
    cluster = world["cluster"]
    kind = cluster["gpu_types"][0]
    cluster["gpu_types"] = [kind]
    for block in cluster["servers"]:
        block["gpu"] = kind["name"]
    for key in ("network", "locality", "throughput"):
        world.pop(key, None)
    fixed = draw(st.sampled_from([0.5, 0.5, 0.0, 0.1, 1.0]))
    world["sharing"] = {"xi": 1.5, "memory_fixed_fraction": fixed}
    models = world["elastic"] = draw(elastic_models())
    total = sum(block["count"] * block["gpus"] for block in cluster["servers"])
    for row in world["jobs"]:
        row.pop("iterations", None)
        row.pop("gpu_types", None)
        row["gpus"] = min(row["gpus"], total)
        row["duration_s"] = draw(st.sampled_from([2.0, 5.0, 20.0, 33.3, 80.0]))
        row["model"] = draw(st.sampled_from(["vgg16", "vgg16", "bert", "x"]))
        if row["model"] in models["models"]:
            init = models["models"][row["model"]]["init_batch"]
            least = -(-init // row["gpus"])
            if draw(st.booleans()):  # passes may be larger than the traced batch, and need more
                row["memory_gb"] = draw(st.sampled_from([2.0, 5.0, 7.7, 9.0, 12.0]))
            row["batch_size"] = least * draw(st.sampled_from([1, 1, 2, 5]))
            if draw(st.integers(0, 4)) == 0:
                row["min_gpus"] = draw(st.integers(1, row["gpus"]))
            if draw(st.integers(0, 4)) == 0:
                row["max_gpus"] = row["gpus"] + draw(st.integers(0, 6))
    return world


@st.composite
def crowding(draw: st.DrawFn, types: tuple[str, ...]) -> dict[str, Any]:
    """Slowdown factors around those where sharing stops to pay."""
    sharing: dict[str, Any] = {
        "gang_xi": draw(st.sampled_from(["max", "mean"])),
        "acc_cost": draw(st.sampled_from([0.05, 0.0, 0.01, 0.5])),
        "memory_fixed_fraction": draw(st.sampled_from([0.5, 0.0, 0.1])),
        "overhead_interferes": draw(st.sampled_from([True, True, False])),
    }
    if draw(st.booleans()):
        return sharing | {"xi": draw(st.sampled_from([1.0, 1.25, 1.5, 1.6, 1.6, 2.0]))}
    values = st.sampled_from([1.0, 1.2, 1.4, 1.6, 2.0, 2.5, 0.0])
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in LABELS for b in LABELS]
    for row in rows:
        if draw(st.integers(0, 4)) == 0:
            row["gpu_type"] = draw(st.sampled_from(types))
        if draw(st.integers(0, 4)) == 0:
            row["gpus"] = draw(st.sampled_from([1, 2]))
    return sharing | {
        "interference": "table",
        "missing": draw(st.sampled_from(["infeasible", "constant"])),
        "rows": rows,
        "xi": 1.3,
    }
