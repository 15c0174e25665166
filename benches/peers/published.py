"""Compares results of the public Gavel and Tiresias simulators with runs of the same jobs.

Both are programs of a repository, not packages, so their own results are read from a folder with
`peers/gavel`, `peers/tiresias` and `traces`, as tests marked `shared` use.
"""

from __future__ import annotations

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GAVEL = (("fifo_perf", "gavel-compat-fifo-perf"), ("max_min_fairness_perf", "gavel-compat-las"))
EXACT_S = 2e-6  # the public files have six digits


def golden(name: str) -> Any:
    """Return the module of the test that repeats a public run."""
    for folder in (ROOT, ROOT / "tests"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"golden.{name}")


def gavel(shared: Path) -> list[dict[str, Any]]:
    """Return the completion times of each job of the public 50-job traces under two policies."""
    test = golden("test_gavel_compat")
    found = []
    for kind, words in (("cont", "over time"), ("static", "at once")):
        for theirs, ours in GAVEL:
            path = shared / f"peers/gavel/perjob_{kind}_multi_n50_s0_{theirs}.csv"
            public = [float(row["jct_s"]) for row in test.rows(path)]
            jct = test.completion_times(test.run(shared, kind, ours)).tolist()
            same = sum(abs(a - b) <= EXACT_S for a, b in zip(public, jct, strict=True))
            means = [sum(public) / len(public), sum(jct) / len(jct)]
            near = abs(means[1] / means[0] - 1.0) <= 0.02
            row = {
                "peer": "Gavel c4fa400",
                "theirs": theirs,
                "ours": ours,
                "world": f"50 jobs arriving {words}, 36 GPUs of three types",
                "measure": "mean JCT",
                "values": means,
                "same": f"{same} of {len(public)} completion times",
                "times_cpu": None,
                "as_expected": same == len(public) if theirs == "fifo_perf" else near,
            }
            found.append(row)
    return found


def tiresias(shared: Path) -> list[dict[str, Any]]:
    """Return the finish times of each job of the public 60-job trace under five policies."""
    test = golden("test_baselines")
    jobs = test.read_sixty_jobs(shared)
    found = []
    for theirs, (ours, params) in test.PUBLIC.items():
        for gpus in (16, 8):
            path = shared / "peers" / "tiresias" / f"n{gpus // 4}g4-60-count-{theirs}.csv"
            with path.open(encoding="utf-8") as file:
                public = {row["job_id"]: row for row in csv.DictReader(file)}
            run = test.simulate(jobs, ours, {"placement": "count", **params}, 1, gpus)
            rows = run.jobs.to_pylist()
            same = sum(row["finish_s"] == float(public[row["job_id"]]["end_time"]) for row in rows)
            theirs_jct = sum(float(row["JCT"]) for row in public.values()) / len(public)
            row = {
                "peer": "Tiresias 959f9b0",
                "theirs": theirs,
                "ours": ours,
                "world": f"60 jobs, {gpus} GPUs",
                "measure": "mean JCT",
                "values": [theirs_jct, run.summary["jct_mean_s"]],
                "same": f"{same} of {len(rows)} finish times",
                "times_cpu": None,
                "as_expected": same == len(rows),
            }
            found.append(row)
    return found
