"""Goldens A, B and C of the baselines on the public 60-job trace.

A: finish times of the public Tiresias simulator, 60 of 60 jobs in each run. B: averages that two
independent exact models agreed on before the engine existed. C: FIFO and skipping under the yarn
rule. `tests/parity` compares the slow simulator with the engine.
"""

from __future__ import annotations

import csv
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from parity.harness import nanos, run_engine

if TYPE_CHECKING:
    from pathlib import Path

    import gangline as gl
import worlds

pytestmark = pytest.mark.shared

PUBLIC = {
    "fifo": ("fifo", {}),
    "fjf": ("fifo-skip", {}),
    "shortest": ("srtf", {}),
    "shortest-gpu": ("srsf", {}),
    "dlas-gpu": ("las", {"limits": [3250, 7200]}),
}


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


def read_sixty_jobs(shared: Path) -> list[dict[str, Any]]:
    """Return the jobs of the public trace; benches/peers runs them too."""
    with tarfile.open(shared / "traces" / "tiresias-traces" / "tiresias_csv.tar.xz") as archive:
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


@pytest.fixture(scope="module")
def sixty_jobs(shared: Path) -> list[dict[str, Any]]:
    return read_sixty_jobs(shared)


def simulate(
    jobs: list[dict[str, Any]],
    policy: str,
    params: dict[str, Any],
    servers: int,
    gpus: int,
    restart_s: float = 0.0,
) -> gl.Result:
    world = {
        "cluster": worlds.lab(f"{servers}x{gpus} gpu @0", name="golden"),
        "jobs": jobs,
        "run": {"restart_s": restart_s},
    }
    return run_engine(world, policy, params)


def averages(result: gl.Result) -> tuple[float, float]:
    """Return the mean completion time and the makespan of the rows (the first arrival is at 0)."""
    rows = result.jobs.to_pylist()
    jct = sum(nanos(row["jct_s"]) or 0 for row in rows) / 60e9
    return round(jct, 4), max(row["finish_s"] for row in rows)


@pytest.mark.parametrize("gpus", [16, 8])
@pytest.mark.parametrize("public", PUBLIC)
def test_golden_a_every_finish_time_of_the_public_simulator(
    public: str, gpus: int, shared: Path, sixty_jobs: list[dict[str, Any]]
) -> None:
    path = shared / "peers" / "tiresias" / f"n{gpus // 4}g4-60-count-{public}.csv"
    with path.open(encoding="utf-8") as file:
        wanted = {row["job_id"]: float(row["end_time"]) for row in csv.DictReader(file)}
    policy, params = PUBLIC[public]
    result = simulate(sixty_jobs, policy, {"placement": "count", **params}, 1, gpus)
    assert {row["job_id"]: row["finish_s"] for row in result.jobs.to_pylist()} == wanted
    assert len(wanted) == 60


@pytest.mark.parametrize(("policy", "params", "restart_s", "on_16", "on_8"), GOLDEN_B)
def test_golden_b_averages_and_counters(
    policy: str,
    params: dict[str, Any],
    restart_s: float,
    on_16: Numbers,
    on_8: Numbers,
    sixty_jobs: list[dict[str, Any]],
) -> None:
    for gpus, wanted in ((16, on_16), (8, on_8)):
        result = simulate(sixty_jobs, policy, {"placement": "count", **params}, 1, gpus, restart_s)
        counters = {"demotions": 0, "promotions": 0, **result.spec["counters"]}
        assert (
            *averages(result),
            result.summary["preemptions"],
            counters["demotions"],
            counters["promotions"],
        ) == wanted


@pytest.mark.parametrize(("policy", "servers", "fit", "wanted"), GOLDEN_C)
def test_golden_c_yarn_placement(
    policy: str,
    servers: int,
    fit: str,
    wanted: tuple[float, float],
    sixty_jobs: list[dict[str, Any]],
) -> None:
    result = simulate(sixty_jobs, policy, {"placement": "yarn", "fit": fit}, servers, 4)
    assert averages(result) == wanted
