"""Goldens A, B and C of the baselines, by the slow simulator on the public 60-job trace.

A: finish times of the public Tiresias simulator, 60 of 60 jobs in each run. B: averages that two
independent exact models agreed on beforehand. C: FIFO and skipping under the yarn rule.
"""

from __future__ import annotations

import csv
import io
import os
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import reference

REPOSITORY = Path(__file__).parents[2]


@cache
def shared() -> Path | None:
    """Return the folder of public traces, wherever it is."""
    given = os.environ.get("GANGLINE_SHARED")
    places = [Path(given)] if given else []
    places += [REPOSITORY.parent / "shared", REPOSITORY / "shared"]
    return next((p for p in places if (p / "traces" / "tiresias-traces").is_dir()), None)


pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(shared() is None, reason="the folder of public traces is absent"),
]


@cache
def sixty_jobs() -> list[dict[str, Any]]:
    folder = shared()
    assert folder is not None
    with tarfile.open(folder / "traces" / "tiresias-traces" / "tiresias_csv.tar.xz") as archive:
        name = next(n for n in archive.getnames() if n.endswith("60_job.csv"))
        member = archive.extractfile(name)
        assert member is not None
        rows = list(csv.DictReader(io.TextIOWrapper(member, encoding="utf-8")))
    assert len(rows) == 60
    return [
        {
            "job_id": row["job_id"],
            "arrival_s": float(row["submit_time"]),
            "gpus": int(row["num_gpu"]),
            "duration_s": float(row["duration"]),
            "model": row["model_name"],
        }
        for row in rows
    ]


def simulate(
    policy: str, params: dict[str, Any], servers: int, gpus: int, restart_s: float = 0.0
) -> reference.Outcome:
    world = {
        "cluster": {
            "gpu_types": [{"name": "gpu", "memory_gb": 16}],
            "servers": [{"count": servers, "gpu": "gpu", "gpus": gpus, "rack": 0}],
        },
        "jobs": sixty_jobs(),
        "run": {"restart_s": restart_s},
    }
    return reference.run(world, policy, params)


def averages(outcome: reference.Outcome) -> tuple[float, float]:
    """Return mean completion time and makespan (the first arrival is at 0)."""
    jct = sum(row["jct_ns"] for row in outcome.jobs) / 60e9
    return round(jct, 4), max(row["finish_ns"] for row in outcome.jobs) / 1e9


PUBLIC = {
    "fifo": ("fifo", {}),
    "fjf": ("fifo-skip", {}),
    "shortest": ("srtf", {}),
    "shortest-gpu": ("srsf", {}),
    "dlas-gpu": ("las", {"limits": [3250, 7200]}),
}


@pytest.mark.parametrize("gpus", [16, 8])
@pytest.mark.parametrize("public", PUBLIC)
def test_golden_a_every_finish_time_of_the_public_simulator(public: str, gpus: int) -> None:
    folder = shared()
    assert folder is not None
    path = folder / "peers" / "tiresias" / f"n{gpus // 4}g4-60-count-{public}.csv"
    with path.open(encoding="utf-8") as file:
        wanted = {row["job_id"]: float(row["end_time"]) for row in csv.DictReader(file)}
    policy, params = PUBLIC[public]
    outcome = simulate(policy, {"placement": "count", **params}, 1, gpus)
    assert {row["job_id"]: row["finish_ns"] / 1e9 for row in outcome.jobs} == wanted
    assert len(wanted) == 60


Numbers = tuple[float, float, int, int, int]  # mean jct, makespan, preemptions, down, up
NONE = (0, 0, 0)
GOLDEN_B: list[tuple[str, dict[str, Any], float, Numbers, Numbers]] = [
    ("easy", {}, 0, (194.1333, 3335, *NONE), (854.7667, 4914, *NONE)),
    ("sjf", {}, 0, (192.15, 3271, *NONE), (693.9833, 4806, *NONE)),
    ("ssf", {}, 0, (192.15, 3271, *NONE), (693.9833, 4806, *NONE)),
    ("sjf-strict", {}, 0, (195.1, 3437, *NONE), (1043.4667, 5847, *NONE)),
    (
        "las",
        {"limits": [200, 1000]},
        0,
        (211.15, 3271, 33, 43, 0),
        (770.5667, 4806, 46, 43, 0),
    ),
    ("las", {"limits": [500]}, 0, (211.1333, 3271, 18, 16, 0), (825.275, 4830, 19, 16, 0)),
    (
        "las",
        {"limits": [200, 1000], "promote_knob": 1},
        0,
        (207.4333, 3271, 53, 52, 12),
        (647.4667, 4912, 131, 94, 77),
    ),
    (
        "las",
        {"limits": [200, 1000], "promote_knob": 2},
        0,
        (208.4333, 3271, 42, 46, 5),
        (602.95, 4919, 131, 90, 67),
    ),
    (
        "gittins",
        {"limits": [200, 1000], "delta": 100},
        0,
        (219.2083, 3271, 39, 43, 0),
        (799.4917, 4859, 88, 43, 0),
    ),
    ("srtf", {}, 10, (192.7833, 3271, 4, 0, 0), (521.75, 4931, 6, 0, 0)),
    (
        "las",
        {"limits": [200, 1000]},
        10,
        (236.7667, 3271, 39, 43, 0),
        (826.7333, 4986, 48, 43, 0),
    ),
]


GOLDEN_C = [  # queue, servers of 4 GPUs, fit of placement yarn; mean JCT and makespan, s
    ("fifo", 4, "first", (219.1833, 3341)),
    ("fifo", 4, "best", (217.5167, 3341)),
    ("fifo-skip", 4, "first", (219.1833, 3271)),
    ("fifo-skip", 4, "best", (211.45, 3271)),
    ("fifo", 2, "first", (1556.4833, 5747)),
    ("fifo", 2, "best", (1556.4833, 5747)),
    ("fifo-skip", 2, "first", (782.55, 4839)),
    ("fifo-skip", 2, "best", (725.0833, 4806)),
]


@pytest.mark.parametrize(("policy", "params", "restart_s", "on_16", "on_8"), GOLDEN_B)
def test_golden_b_averages_and_counters(
    policy: str, params: dict[str, Any], restart_s: float, on_16: Numbers, on_8: Numbers
) -> None:
    for gpus, wanted in ((16, on_16), (8, on_8)):
        outcome = simulate(policy, {"placement": "count", **params}, 1, gpus, restart_s)
        counters = (outcome.preemptions, outcome.demotions, outcome.promotions)
        assert (*averages(outcome), *counters) == wanted


@pytest.mark.parametrize(("policy", "servers", "fit", "wanted"), GOLDEN_C)
def test_golden_c_yarn_placement(
    policy: str, servers: int, fit: str, wanted: tuple[float, float]
) -> None:
    outcome = simulate(policy, {"placement": "yarn", "fit": fit}, servers, 4)
    assert averages(outcome) == wanted
