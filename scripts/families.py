"""Draws how each family of policies treats a few jobs: real runs, with a chart for each policy.

    .venv/bin/python scripts/families.py

Needs a build. `docs/policies/families` shows the pictures; a test draws them again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT / "scripts") not in sys.path:
    sys.path.insert(0, str(ROOT / "scripts"))
import drawings  # noqa: E402

PICTURES = ROOT / "docs" / "_static" / "families"
Job = tuple[str, float, int, float]
"""Name, arrival, GPUs, and duration or iterations."""


class Shown(NamedTuple):
    """A policy in a picture."""

    policy: str
    params: Mapping[str, Any] = MappingProxyType({})
    label: str = ""


class Family(NamedTuple):
    """A picture of jobs on a cluster under some policies."""

    name: str
    title: str
    cluster: dict[str, Any]
    jobs: tuple[Job, ...]
    shown: tuple[Shown, ...]
    end_s: float
    unit: str = "seconds"
    more: Mapping[str, list[Any]] = MappingProxyType({})
    """Further columns of the jobs."""
    lanes: tuple[str, ...] = ()
    """Labels of the GPUs, if not their numbers."""
    work: str = "duration_s"
    """Column of the last value of a job."""


def servers(*counts: int, **more: Any) -> dict[str, Any]:
    """Return a cluster of V100 servers with that many GPUs each, in one rack."""
    return {
        "gpu_types": [{"name": "V100", "memory_gb": 16}],
        "servers": [{"count": 1, "gpu": "V100", "gpus": gpus, "rack": 0} for gpus in counts],
        **more,
    }


def two_types(gpus: int) -> dict[str, Any]:
    """Return a server of a fast and one of a slow type, and the rates of two models on both."""
    rates = {"conv": (10.0, 2.0), "rnn": (10.0, 8.0), "old": (2.0, 8.0)}
    kinds = ("V100", "K80")
    return {
        "gpu_types": [{"name": "V100", "memory_gb": 16}, {"name": "K80", "memory_gb": 16}],
        "servers": [{"count": 1, "gpu": name, "gpus": gpus, "rack": 0} for name in ("V100", "K80")],
        "throughput": {
            "missing": "nearest",
            "rows": [
                {"gpu_type": gpu, "model": model, "gpus": 1, "iters_per_s": rate}
                for model, pair in rates.items()
                for gpu, rate in zip(kinds, pair, strict=True)
            ],
        },
    }


QUEUE: tuple[Job, ...] = (("A", 0, 1, 4), ("B", 0, 2, 3), ("C", 1, 1, 5), ("D", 1, 1, 2))
FAMILIES = (
    Family(
        "queues",
        "Four jobs on two GPUs in three orders of the queue",
        servers(2),
        QUEUE,
        (Shown("fifo"), Shown("fifo-skip"), Shown("sjf")),
        14.0,
    ),
    Family(
        "reservations",
        "Four jobs on two GPUs with a reservation, and with a queue per user",
        servers(2),
        QUEUE,
        (Shown("fifo"), Shown("easy"), Shown("yarn-cs", {"queue_by": "user"}, "yarn-cs, by user")),
        14.0,
        more={"user": ["ana", "ana", "ben", "ben"]},
    ),
    Family(
        "preemptive",
        "Three jobs on one GPU, in order of arrival and with preemption",
        servers(1),
        (("A", 0, 1, 10), ("B", 2, 1, 4), ("C", 3, 1, 1)),
        (Shown("fifo"), Shown("srtf"), Shown("las", {"limits": [3]}, "las, limit 3")),
        16.0,
    ),
    Family(
        "gavel",
        "Two jobs on a fast and a slow GPU under two objectives",
        two_types(1),
        (("A", 0, 1, 18_000), ("B", 0, 1, 18_000)),
        (Shown("gavel-las"), Shown("gavel-max-sum")),
        3000.0,
        unit="minutes",
        more={"model": ["conv", "rnn"]},
        lanes=("V100", "K80"),
        work="iterations",
    ),
    Family(
        "hadar",
        "A gang that may span two GPU types, and one that may not",
        two_types(2),
        (("A", 0, 1, 36_000), ("B", 0, 1, 24_000), ("C", 300, 2, 18_000)),
        (
            Shown("hadar"),
            Shown("hadar", {"mix_types": False}, "hadar, mix_types = false"),
        ),
        7200.0,
        unit="minutes",
        more={"model": ["conv", "old", "rnn"]},
        lanes=("V100", "V100", "K80", "K80"),
        work="iterations",
    ),
    Family(
        "hadare",
        "Two jobs on a fast and a slow GPU, with and without copies",
        two_types(1),
        (("A", 0, 1, 36_000), ("B", 0, 1, 4_800)),
        (Shown("hadare-nofork"), Shown("hadare")),
        4200.0,
        unit="minutes",
        more={"model": ["rnn", "rnn"]},
        lanes=("V100", "K80"),
        work="iterations",
    ),
    Family(
        "delay",
        "A gang that takes any two GPUs, and one that waits for two on the same server",
        servers(2, 2, network={"kind": "levels", "levels": {"*": [1.0, 0.5, 0.25]}}),
        (("A", 0, 1, 10), ("B", 0, 1, 0.5), ("C", 0, 1, 3), ("D", 0, 1, 0.5), ("E", 1, 2, 4)),
        (Shown("dally-no-wait", {"lease_s": 36_000}), Shown("dally", {"lease_s": 36_000})),
        11.0,
        unit="hours",
    ),
    Family(
        "sharing",
        "Two jobs on one GPU: one after the other, sharing it, and in time slices",
        servers(1, sharing={"xi": 1.8}),
        (("A", 0, 1, 300), ("B", 0, 1, 420)),
        (Shown("sjf"), Shown("sjf-ffs"), Shown("sjf-bsbf"), Shown("gandiva")),
        900.0,
    ),
    Family(
        "fairness",
        "Two gangs, in order of arrival and by auctions of leases",
        servers(2),
        (("A", 0, 2, 5400), ("B", 600, 2, 2400)),
        (Shown("fifo"), Shown("themis")),
        8400.0,
        unit="minutes",
    ),
    Family(
        "elastic",
        "Three jobs that keep their gangs, and three that may change them",
        {
            "gpu_types": [{"name": "T4", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "T4", "gpus": 4}],
            "elastic": {"preset": "pollux-fits"},
        },
        (("A", 0, 1, 3600), ("B", 600, 2, 2400), ("C", 900, 1, 1200)),
        (Shown("fifo"), Shown("pollux")),
        3700.0,
        unit="minutes",
        more={"model": ["cifar10"] * 3, "batch_size": [128, 64, 128]},
    ),
)
UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def run(family: Family, shown: Shown) -> gl.Result:
    """Return the run of a policy."""
    scale = 3600.0 if family.unit == "hours" else 1.0
    names = ("job_id", "arrival_s", "gpus", family.work)
    rows = [(name, at * scale, gpus, long * scale) for name, at, gpus, long in family.jobs]
    table = {key: list(value) for key, value in zip(names, zip(*rows, strict=True), strict=True)}
    jobs = gl.Trace.from_arrow(pa.table(table | dict(family.more)))
    return gl.simulate(family.cluster, jobs, shown.policy, params=dict(shown.params), segments=True)


def draw(family: Family) -> None:
    """Write the picture of a family."""
    scale = 3600.0 if family.unit == "hours" else 1.0
    end = family.end_s * scale
    sizes = [server["gpus"] for server in family.cluster["servers"]]
    first = [sum(sizes[:at]) for at in range(len(sizes))]
    labels = list(family.lanes or (f"GPU {at}" for at in range(sum(sizes))))
    parts, y = [], 8.0
    for shown in family.shown:
        result = run(family, shown)
        rows = [
            row | {"gpu_mask": row["gpu_mask"] << first[row["server"]]}
            for row in result.segments.to_pylist()
        ]
        parts.append(
            drawings.text(12, y + 12, shown.label or shown.policy, "start", font_weight="bold")
        )
        mean = result.summary["jct_mean_s"] / UNITS[family.unit]
        words = f"mean JCT {mean:.1f}".removesuffix(".0")
        parts.append(drawings.text(drawings.WIDTH - 12, y + 12, words, "end", font_size="11"))
        parts.append(drawings.lanes(rows, labels, y + 20, end))
        y += 30 + 30 * len(labels)
    wide = drawings.WIDTH - 74
    step = next(
        step for step in (1, 2, 5, 10, 20, 50, 100, 200) if end / UNITS[family.unit] / step <= 8
    )
    marks = range(0, int(end / UNITS[family.unit]) + 1, step)
    for at in marks:
        x = 62 + at * UNITS[family.unit] * wide / end
        parts.append(drawings.text(x, y + 6, str(at), font_size="11"))
    parts.append(drawings.text(62 + wide / 2, y + 22, family.unit, font_size="11"))
    drawings.write(family.name, family.title, y + 30, *parts, folder=PICTURES)


def main() -> None:
    """Draw all pictures."""
    for family in FAMILIES:
        draw(family)
        print(f"{family.name}.svg")


if __name__ == "__main__":
    main()
