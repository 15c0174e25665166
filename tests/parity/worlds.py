"""Drawn worlds: small, nasty, and in the format of tests/scenarios."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gangline import _core

MODELS = ["vgg16", "ResNet18"]
LABELS = ["vgg16", "resnet50", "bert", "x"]
RULES = [
    "consolidate",
    "yarn",
    "whole_servers",
    "spread",
    "random",
    "random_server",
    "count",
    "skew",
    "best_speed",
]
PREEMPTIVE = ("srtf", "srsf", "las", "gittins", "tiresias", "tiresias-gittins", "dally")
QUEUES = ("fifo", "fifo-skip", "easy", "sjf", "sjf-strict", "ssf")
FAIR = ("themis", "yarn-cs")
SLICES = ("gandiva",)
TOLD = ("srtf", "srsf", "easy", "sjf", "sjf-strict", "ssf", "themis")  # may be told wrong times
TOYS = ("toy-round", "toy-timer", "toy-share", "toy-fork", "toy-mixed")
ROUNDS = (
    "gavel-las",
    "gavel-las-agnostic",
    "gavel-ftf",
    "gavel-ftf-agnostic",
    "gavel-makespan",
    "gavel-makespan-agnostic",
    "gavel-max-sum",
    "gavel-cost",
    "gavel-water-filling",
    "gavel-water-filling-agnostic",
    "gavel-isolated",
    "gavel-allox",
    "gavel-gandiva",
    "gavel-fifo",
    "gavel-fifo-perf",
)
PRICED = ("hadar",)
PACKING = ("gavel-las", "gavel-ftf", "gavel-makespan", "gavel-max-sum", "gavel-water-filling")
PAIRING = tuple(name for name in ROUNDS if name.startswith((*PACKING, "gavel-gandiva")))
SHARING = (
    "sjf-ffs",
    "sjf-ffs-code",
    "sjf-ffs-consolidated",
    "sjf-bsbf",
    "sjf-bsbf-code",
    "sjf-bsbf-consolidated",
)
BUILT = {entry["name"] for entry in _core.registry()}  # some are in the slow simulator first
SHARING_BUILT = tuple(name for name in SHARING if name in BUILT)
POLICIES = (
    *QUEUES,
    *PREEMPTIVE,
    *SLICES,
    *FAIR,
    *ROUNDS,
    *PRICED,
    *SHARING_BUILT,
    *TOYS,
)

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
    world["sharing"] = draw(sharings())
    if draw(st.integers(0, 2)) == 0:
        world["throughput"] = draw(throughputs(world))
    return world


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
def sharings(draw: st.DrawFn) -> dict[str, Any]:
    """A constant or a table of slow-downs; of a gang the largest or the mean."""
    gang = {"gang_xi": draw(st.sampled_from(["max", "mean"]))}
    if draw(st.booleans()):
        return gang | {"xi": draw(st.sampled_from([1.5, 1.0]))}
    values = st.sampled_from([0.9, 1.3, 2.0, 0.0])
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in LABELS for b in LABELS]
    return gang | {"interference": "table", "missing": "infeasible", "rows": rows}


@st.composite
def sharing_worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A few GPUs for many jobs, most with memory and a batch size; no shared up-links."""
    world = draw(worlds(checkpoints=False))
    kinds = [{"name": "t0", "memory_gb": 16, "speed": 1.0}]
    if draw(st.booleans()):
        kinds.append({"name": "t1", "memory_gb": 8, "speed": draw(st.sampled_from([2.0, 0.5]))})
    servers = [
        {"gpu": draw(st.sampled_from(kinds))["name"], "gpus": draw(st.integers(1, 4)), "rack": rack}
        for rack in range(draw(st.integers(1, 4)))
    ]
    cluster: dict[str, Any] = {"name": "few", "gpu_types": kinds, "servers": servers}
    if draw(st.integers(0, 2)) == 0:
        down = {"server": draw(st.integers(0, len(servers) - 1)), "down_s": 9.0, "up_s": 12.0}
        cluster["failures"] = {"table": [down]}
    times = st.sampled_from([2.0, 5.0, 6.0, 10.0, 25.0, 60.0])
    world |= {"cluster": cluster, "sharing": draw(crowding())}
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
    return world


@st.composite
def crowding(draw: st.DrawFn) -> dict[str, Any]:
    """Slow-downs around those where sharing stops to pay."""
    sharing: dict[str, Any] = {
        "gang_xi": draw(st.sampled_from(["max", "mean"])),
        "acc_cost": draw(st.sampled_from([0.05, 0.0, 0.01, 0.5])),
        "memory_fixed_fraction": draw(st.sampled_from([0.5, 0.0, 0.1])),
    }
    if draw(st.booleans()):
        return sharing | {"xi": draw(st.sampled_from([1.0, 1.25, 1.5, 1.6, 1.6, 2.0]))}
    values = st.sampled_from([1.0, 1.2, 1.4, 1.6, 2.0, 2.5, 0.0])
    rows = [{"model": a, "co_model": b, "xi": draw(values)} for a in LABELS for b in LABELS]
    return sharing | {"interference": "table", "missing": "infeasible", "rows": rows}


@st.composite
def sharing_settings(draw: st.DrawFn, policy: str) -> dict[str, Any]:
    """Parameters of the policies that share without preemption."""
    values: dict[str, tuple[Any, ...]] = {
        "gather": ("cluster", "server_first"),
        "free_pick": ("best_fit", "few_residents"),
        "key": ("time", "gpu_time"),
        "retest": ("always", "on_release"),
        "block": (True,),
        "estimate_error": (0.5, 3.0),
    }
    if policy.startswith("sjf-bsbf"):
        values |= {
            "partner_time": ("current", "exclusive"),
            "sub_batches": (False, True),
            "min_sub_batch": (2, 4, 16),
            "sub_batch_rule": ("largest",),
            "restore_sub_batch": (False,),
            "max_probe": (1, 2, 3),
        }
    names = [name for name in values if draw(st.integers(0, 2)) == 0]
    return {name: draw(st.sampled_from(values[name])) for name in names}


def auction_settings() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            # longer than every restart of the drawn worlds
            "lease_s": st.sampled_from([5.0, 7.5, 12.0]),
            "fairness": st.sampled_from([0.0, 0.3, 0.8, 0.999]),
            "leftover": st.sampled_from(["rho", "random"]),
            "auction": st.sampled_from(["greedy", "greedy", "milp"]),
        }
    )


@st.composite
def settings_of(draw: st.DrawFn, policy: str, types: tuple[str, ...] = ()) -> dict[str, Any]:
    """Parameters of a policy; `types` are the names of the cluster's GPU types, if known."""
    if policy in TOYS:
        return {
            "toy-round": {"round_s": draw(st.sampled_from([1.0, 3.0, 10.0]))},
            "toy-timer": {"delay_s": draw(st.sampled_from([0.0, 2.0, 5.0]))},
            "toy-share": {"halve": draw(st.booleans())},
            "toy-fork": {
                "copies": draw(st.sampled_from([1, 2, 3, 5])),
                "quota": draw(st.sampled_from([None, 3.0, 20.0])),
                "merge_s": draw(st.sampled_from([0.0, 0.5, 2.0])),
                "period_s": draw(st.sampled_from([3.0, 10.0, 100.0])),
                "whole": draw(st.booleans()),
            },
            "toy-mixed": {},
        }[policy]
    if policy == "dally":
        return draw(dally_settings())
    if policy in SHARING:
        return draw(sharing_settings(policy))
    if policy in PRICED:
        return draw(price_settings())
    chosen: dict[str, Any] = {}
    if draw(st.booleans()):
        chosen["placement"] = draw(st.sampled_from(RULES))
    if draw(st.integers(0, 2)) == 0:
        chosen["fit"] = "first"
    if draw(st.integers(0, 3)) == 0:
        chosen["max_level"] = draw(st.sampled_from(["server", "rack"]))
    if draw(st.integers(0, 2)) == 0:
        chosen["slots"] = "aligned"
    if draw(st.integers(0, 2)) == 0:
        chosen["rack_choice"] = "fewest_servers"
    if draw(st.integers(0, 2)) == 0:
        chosen["yarn_cross_rack"] = True
    if draw(st.booleans()):
        chosen["skew"] = draw(st.sampled_from(["sizes", "oracle"]))
        chosen["skew_eps"] = draw(st.sampled_from([0.05, 0.3]))
        chosen["skew_threshold"] = draw(st.sampled_from([0.3, 0.3, 0.0, 0.7, 1.0]))
    if policy in TOLD:
        chosen["estimate_error"] = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
    if policy == "easy":
        chosen["estimate_extend"] = draw(st.sampled_from([1.1, 1.1, 1.0, 4.0]))
    if policy == "themis":
        chosen |= draw(auction_settings())
        if chosen["auction"] == "milp" and draw(st.integers(0, 7)):
            chosen.pop("placement", None)  # another rule is refused
    if policy == "yarn-cs":
        chosen |= draw(yarn_settings())
    if policy in SLICES:
        chosen |= draw(slice_settings())
    if policy in ROUNDS:
        chosen |= draw(round_settings(policy, types))
    if policy in PREEMPTIVE:
        chosen["preempt_min_run_s"] = draw(st.sampled_from([0.0, 0.0, 2.0]))
    if policy in ("las", "gittins", "tiresias", "tiresias-gittins"):
        chosen["limits"] = draw(st.sampled_from([[3.0], [2.0, 8.0], [5.0, 20.0]]))
        chosen["promote_knob"] = draw(st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0]))
        chosen["las_time"] = draw(st.booleans())
    if policy in ("gittins", "tiresias-gittins"):
        chosen["delta"] = draw(st.sampled_from([1.0, 3.0, 10.0]))
        if draw(st.integers(0, 2)) == 0:
            services = st.lists(st.sampled_from([1.0, 2.0, 6.0, 6.5, 20.0]), min_size=1, max_size=5)
            chosen["distribution"] = draw(services)
    elif policy in ("las", "tiresias") and draw(st.integers(0, 2)) == 0:
        chosen["discretised"] = False
        chosen["las_quantum"] = draw(st.sampled_from([0.5, 2.0, 5.0]))
    return chosen


@st.composite
def round_settings(draw: st.DrawFn, policy: str, types: tuple[str, ...]) -> dict[str, Any]:
    """Parameters of the policies in rounds."""
    chosen: dict[str, Any] = {}
    # longer than most restarts: shorter rounds are refused
    chosen["round_s"] = draw(st.sampled_from([2.0, 3.5, 10.0]))
    chosen["min_solve_interval_s"] = draw(st.sampled_from([0.0, 0.0, 7.0]))
    if draw(st.integers(0, 2)) == 0 and types:
        chosen["type_order"] = ",".join(draw(st.permutations(types)))
    if not policy.startswith("gavel-fifo"):
        chosen["backfill_mid_round"] = draw(st.booleans())
        chosen["zero_priority_pass"] = draw(st.sampled_from(["after", "after", "inline"]))
        if policy not in ("gavel-isolated", "gavel-allox", "gavel-gandiva"):
            if draw(st.booleans()):
                chosen["tie_break"] = "none"
            chosen["partitions"] = draw(st.sampled_from([1, 1, 2, 3]))
    if policy.startswith(PACKING):
        chosen["packed"] = draw(st.booleans())
    if policy.startswith("gavel-water-filling") and draw(st.booleans()):
        chosen["hierarchical"] = True
        chosen["entity_by"] = draw(st.sampled_from(["user", "vc"]))
        chosen["entity_policy"] = draw(st.sampled_from(["fairness", "fifo"]))
        if draw(st.booleans()):
            weights = st.sampled_from([0.5, 1.0, 3.0])
            chosen["entity_weight"] = {name: draw(weights) for name in ("a", "b", "B", "default")}
    if policy == "gavel-fifo":
        picks = ["most_free", "first_fit", "fastest", "slowest", "random"]
        chosen["gpu_pick"] = draw(st.sampled_from(picks))
    if policy == "gavel-allox":
        chosen["alpha"] = draw(st.sampled_from([1.0, 0.3, 2.5, 1e-3]))
    if policy == "gavel-max-sum":
        chosen["normalise"] = draw(st.sampled_from(["none", "proportional"]))
    if policy == "gavel-cost":
        chosen["drop_all_infeasible"] = draw(st.booleans())
    return chosen


@st.composite
def accepted_settings(draw: st.DrawFn, policy: str, world: dict[str, Any]) -> dict[str, Any]:
    """Parameters that this world does not refuse: queues by a name need jobs that bear it."""
    chosen = draw(settings_of(policy))

    def nobody_has(label: str) -> bool:
        return not any(row.get(label) for row in world["jobs"])

    if chosen.get("queue_by", "none") != "none" and nobody_has(chosen["queue_by"]):
        chosen["queue_by"] = "none"
    if chosen.get("hierarchical") and nobody_has(chosen["entity_by"]):
        chosen["hierarchical"] = False
    if chosen.get("preempt_min_run_s"):
        # Longer than every drawn restart, or a rule that refuses gangs makes the run endless.
        chosen["preempt_min_run_s"] = 5.0
    if chosen.get("auction") == "milp":
        chosen.pop("placement", None)  # its bids are for tiers: another rule is refused
    return chosen


@st.composite
def yarn_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Queues by any name, with shares for every name of the drawn worlds or with equal ones."""
    picks = ["most_free", "first_fit", "fastest", "slowest", "random"]
    chosen: dict[str, Any] = {
        "queue_by": draw(st.sampled_from(["none", "user", "vc"])),
        "gpu_pick": draw(st.sampled_from(picks)),
    }
    if draw(st.booleans()):
        names = ("a", "b", "B", "default")
        shares = st.sampled_from([0.125, 0.2, 0.25])
        chosen["queue_shares"] = {name: draw(shares) for name in names}
    return chosen


@st.composite
def slice_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Short turns, with and without a cost, migration and packing."""
    return {
        "max_residents": draw(st.sampled_from([1, 2, 3, 4, 4, 9])),
        "quantum_s": draw(st.sampled_from([3.0, 2.5, 4.0])),
        "switch_s": draw(st.sampled_from([None, None, 0.0, 0.5, 5.0])),
        "moves_per_event": draw(st.sampled_from([0, 1, 1, 2, 5])),
        "pack": draw(st.booleans()),
        "pack_gain": draw(st.sampled_from([1.0, 1.0, 0.0, 1.4])),
        "trial_s": draw(st.sampled_from([1.0, 2.5, 6.0])),
    }


@st.composite
def price_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Rounds longer than every restart of these worlds; prices fit for an empty cluster."""
    utilities = ["effective_throughput", "normalised", "inverse_jct", "ftf", "makespan"]
    return {
        "utility": draw(st.sampled_from(utilities)),
        "order": draw(st.sampled_from(["arrival", "density", "density", "srtf"])),
        "tier": draw(st.sampled_from(["greedy", "greedy", "beam", "exact"])),
        "beam_width": draw(st.sampled_from([1, 2, 3, 16])),
        "backfill": draw(st.booleans()),
        "round_s": draw(st.sampled_from([5.0, 7.5, 12.0])),
        "cost_horizon": draw(st.sampled_from(["round", "round", "remaining"])),
        "umin_factor": draw(st.sampled_from([0.25, 0.25, 0.01, 0.5])),
        "horizon_s": draw(st.sampled_from([None, None, None, 1e4])),
        "spread_surcharge": draw(st.sampled_from([0.1, 0.1, 0.0, 1.0])),
        "mix_types": draw(st.sampled_from([True, True, False])),
        "pick": draw(st.sampled_from(["cheapest", "cheapest", "best_fit"])),
        "objective": draw(st.sampled_from(["max_payoff", "max_payoff", "min_cost"])),
        "replan": draw(st.sampled_from(["round", "round", "event"])),
        "rack_aware": draw(st.booleans()),
        "stay": draw(st.sampled_from([True, True, False])),
        "scan_limit": draw(st.sampled_from([None, None, 1, 2])),
    }


@st.composite
def dally_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Leases longer than every restart of the drawn worlds, and delays of the same order."""
    return {
        "lease_s": draw(st.sampled_from([5.0, 8.0, 20.0])),
        "mode": draw(st.sampled_from(["auto", "auto", "manual", "no_wait", "fully_consolidated"])),
        "rack_delay": draw(st.sampled_from([0.0, 0.2, 1.0])),
        "network_delay": draw(st.sampled_from([1.0, 1.5])),
        "history_leases": draw(st.sampled_from([1.5, 2.0, 6.0])),
        "rack_floor": draw(st.sampled_from([0.0, 0.25])),
        "network_floor": draw(st.sampled_from([0.5, 1.0])),
        "rack_cap_share": draw(st.sampled_from([0.8, 0.8, 0.0, 0.3, 2.0])),
        "sd_factor": draw(st.sampled_from([0.0, 2.0])),
        "fit": draw(st.sampled_from(["best", "first"])),
        "renewal": draw(st.sampled_from(["keep", "keep", "redecide"])),
        "upgrade_on_renewal": draw(st.booleans()),
        "align_leases": draw(st.booleans()),
        "overhead_per_gpu_s": draw(st.sampled_from([0.0, 0.125])),
        "score_includes_overhead": draw(st.booleans()),
    }
