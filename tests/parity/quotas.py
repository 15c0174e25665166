"""Draws worlds with queues and quotas: jobs with labels and priorities, and the tables."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from parity.worlds import worlds

QUEUES = ("a", "b", "c", "d", "e")
COHORTS = ("all", "east", "west", "far")
WORDS: dict[str, tuple[str, ...]] = {
    "strategy": ("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"),
    "within": ("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaim": ("Never", "LowerPriority", "Any", "Any"),
    "borrow": ("Never", "LowerPriority"),
    "when_can_borrow": ("Borrow", "TryNextFlavor"),
    "when_can_preempt": ("TryNextFlavor", "Preempt"),
}
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
LABELS = ("vc", "vc", "user", "account", "partition", "qos")
DEPTH = 3


@st.composite
def dense_worlds(
    draw: st.DrawFn,
    durations: tuple[float, ...] = (1.0, 3.0, 7.5, 20.0),
    jobs_min: int = 6,
    servers_max: int = 2,
) -> dict[str, Any]:
    """Draw few GPUs and many jobs at the same few instants."""
    types = draw(st.integers(1, 2))
    size = draw(st.sampled_from([4, 8, 9]))
    jobs = [
        {
            "job_id": f"j{index}",
            "arrival_s": draw(st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 5.5, 9.0])),
            "gpus": draw(st.sampled_from([1, 1, 2, 3, 4])),
            "duration_s": draw(st.sampled_from(durations)),
        }
        for index in range(draw(st.integers(jobs_min, 24)))
    ]
    return {
        "cluster": {
            "name": "dense",
            "gpu_types": [
                {"name": f"t{t}", "memory_gb": 16, "speed": 1.0 + t} for t in range(types)
            ],
            "servers": [
                {
                    "count": draw(st.integers(1, servers_max)),
                    "gpu": f"t{t}",
                    "gpus": size,
                    "rack": 0,
                }
                for t in range(types)
            ],
        },
        "jobs": jobs,
        "run": {"restart_s": draw(st.sampled_from([0.0, 0.5]))},
    }


def gpus_by_type(world: dict[str, Any]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for block in world["cluster"]["servers"]:
        totals[block["gpu"]] = totals.get(block["gpu"], 0) + block["count"] * block["gpus"]
    return totals


@st.composite
def flavors(draw: st.DrawFn, totals: dict[str, int], share: int) -> list[dict[str, Any]]:
    """Draw quotas of a queue or a cohort, of about the number of GPUs divided by `share`."""
    rows = []
    names = draw(st.permutations(list(totals)))
    for name in names[: draw(st.integers(1, len(names)))]:
        row: dict[str, Any] = {"gpu": name}
        row["nominal"] = draw(st.integers(0, max(1, 2 * totals[name] // share)))
        for key in ("borrowing_limit", "lending_limit"):
            if draw(st.integers(0, 3)) == 0:
                row[key] = draw(st.integers(0, max(1, totals[name] // 2)))
        rows.append(row)
    return rows


@st.composite
def quota_worlds(draw: st.DrawFn, *, trees: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a world and parameters of `kueue`; `trees=False` draws one flat cohort."""
    world = draw(st.one_of(dense_worlds(), dense_worlds(), worlds(checkpoints=False)))
    totals = gpus_by_type(world)
    names = QUEUES[: draw(st.integers(1, len(QUEUES)))]
    cohorts = COHORTS[: draw(st.integers(1, len(COHORTS))) if trees else 1]
    weights = st.sampled_from([1, 1, 2, 0.5, 0, 1.25])
    tables = []
    for at, name in enumerate(cohorts):
        row: dict[str, Any] = {"name": name, "weight": draw(weights)}
        if at and draw(st.integers(0, 3)):
            row["parent"] = cohorts[draw(st.integers(0, at - 1))]
        if trees and draw(st.booleans()):
            row["flavors"] = draw(flavors(totals, len(names)))
        tables.append(row)
    queues = []
    for name in names:
        row = {"name": name, "flavors": draw(flavors(totals, len(names))), "weight": draw(weights)}
        if draw(st.integers(0, 5)):
            row["cohort"] = draw(st.sampled_from(cohorts))
        row |= {key: draw(st.sampled_from(words)) for key, words in WORDS.items()}
        if row["reclaim"] == "Never":
            row["borrow"] = "Never"
        if draw(st.booleans()):
            row["borrow_max_priority"] = draw(st.integers(-1, 1))
        queues.append(row)
    label = draw(st.sampled_from(LABELS))
    for row in world["jobs"]:
        row[label] = draw(st.sampled_from(names))
        row["priority"] = draw(st.sampled_from([0, 0, 0, 1, 2, -1]))
    world["run"] = world.get("run", {}) | {"on_infeasible": "drop"}
    params: dict[str, Any] = {"queue_by": label, "queues": queues, "cohorts": tables}
    params["fair_sharing"] = draw(st.booleans())
    params["strategies"] = draw(st.sampled_from([[FINAL], [INITIAL], [FINAL, INITIAL]]))
    params["requeue_s"] = draw(st.sampled_from([0.0, 0.25, 1.0, 1.0]))
    params["placement"] = draw(st.sampled_from(["consolidate", "consolidate", "yarn", "spread"]))
    return world, params


@st.composite
def queue_trees(draw: st.DrawFn, gpus: int) -> list[dict[str, Any]]:
    """Draw queues of `kai` in trees of up to three levels, listed in any order."""
    count = draw(st.integers(3, 8))
    depths: list[int] = []
    rows = []
    for at in range(count):
        row: dict[str, Any] = {"name": f"q{at}"}
        above = [i for i, depth in enumerate(depths) if depth < DEPTH]
        parent = draw(st.sampled_from([None, None, *above])) if at > 1 else None
        depths.append(1 if parent is None else depths[parent] + 1)
        if parent is not None:
            row["parent"] = f"q{parent}"
        row["quota"] = draw(st.sampled_from([0, 1, 1, 2, 3, gpus // 2, -1]))
        row["weight"] = draw(st.integers(0, 3))
        row["priority"] = draw(st.sampled_from([100, 100, 100, 0, 200]))
        if draw(st.integers(0, 4)) == 0:
            row["limit"] = draw(st.integers(min(3, gpus), gpus))
        for key in ("preempt_min_run_s", "reclaim_min_run_s"):
            if draw(st.integers(0, 4)) == 0:
                row[key] = draw(st.sampled_from([0.0, 0.5, 2.0, 6.0]))
        rows.append(row)
    return draw(st.permutations(rows))


@st.composite
def fair_share_worlds(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a world and parameters of `kai`; one or two queues have the first, long jobs."""
    full = dense_worlds((3.0, 20.0, 40.0), jobs_min=12, servers_max=1)
    world = draw(st.one_of(full, full, full, full, full, worlds(checkpoints=False)))
    rows = draw(queue_trees(sum(gpus_by_type(world).values())))
    leaves = sorted({row["name"] for row in rows} - {row.get("parent") for row in rows})
    label = draw(st.sampled_from(LABELS))
    for row in world["jobs"]:
        is_early = row["arrival_s"] == 0
        row[label] = draw(st.sampled_from(leaves[:2] if is_early else leaves))
        row["priority"] = draw(st.sampled_from([50, 50, 75] if is_early else [50, 75, 99, 100]))
    world["run"] = world.get("run", {}) | {"on_infeasible": "drop"}
    params: dict[str, Any] = {"queue_by": label, "queues": rows}
    drawn: dict[str, list[Any]] = {
        "fixed_priority": [100, 100, 75, 1000],
        "saturation_multiplier": [1.0, 1.0, 1.5],
        "in_quota_reclaim": [False, True],
        "k_value": [0.0, 0.0, 0.5, 1.0, 10.0],
        "half_life_s": [0.0, 1.0, 10.0],
        "window_s": [2.0, 3.7, 604_800.0],
        "usage_period_s": [1.0, 2.5, 4.0],
        "reclaim_resolve": ["lca", "queue"],
        "cycle_s": [0.25, 1.0, 1.0, 2.5],
        "placement": ["consolidate", "consolidate", "yarn", "spread"],
    }
    params |= {key: draw(st.sampled_from(values)) for key, values in drawn.items()}
    return world, params
