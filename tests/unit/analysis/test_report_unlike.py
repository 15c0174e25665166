"""Tests pages of different runs: elastic jobs, copies, GPU types of one speed."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import gangline as gl
from gangline.analysis.report import unlike

CAN_ONLY = {"on_infeasible": "drop", "segments": True}


def said(runs: list[Any]) -> list[str]:
    lines = unlike.said([gl.report.digest(run) for run in runs])
    return [re.sub("<[^>]*>", "", line) for line in lines]


def test_elastic_jobs_are_counted() -> None:
    cluster, trace, _ = next(world for world in gl.testing.small_worlds() if world[0].elastic)
    runs = [gl.simulate(cluster, trace, name, **CAN_ONLY) for name in ("fifo", "pollux")]
    jobs = {row["job_id"]: row["gpus"] for row in runs[1].jobs.to_pylist()}
    held: dict[tuple[str, float], int] = defaultdict(int)
    for row in runs[1].segments.to_pylist():
        held[row["job_id"], row["start_s"]] += row["gpu_mask"].bit_count()
    resized = {job for (job, _), gpus in held.items() if gpus != jobs[job]}
    sizes = [gpus for (job, _), gpus in held.items() if job in resized]
    assert resized
    line, *others = said(runs)
    assert line == (
        f"Jobs are elastic: under pollux {len(resized)} of {len(jobs)} jobs had a different "
        f"number of GPUs than in the trace ({min(sizes)} to {max(sizes)} at once). Under fifo "
        "every job kept the gang of the trace. So a lead may be due to elastic jobs rather than to "
        "a better order; compare times to finish, not busy GPUs."
    )
    assert others == ["", ""]
    assert said(runs[:1]) == [""] * 3
    assert said(runs[1:])[0].endswith("at once).")  # alone it leads over none


def test_copies_and_types_of_one_speed_are_told() -> None:
    trace = gl.synth.gavel(jobs=30, seed=1)
    runs = [gl.simulate("hadar-60", trace, name, **CAN_ONLY) for name in ("fifo", "hadare")]
    parts = defaultdict(set)
    for row in runs[1].segments.to_pylist():
        parts[row["job_id"]].add(row["part"])
    copied = sum(len(own) > 1 for own in parts.values())
    elastic, copies, speeds = said(runs)
    assert elastic == ""
    assert re.match(rf"Under hadare {copied} jobs ran as up to \d+ copies at once", copies)
    assert speeds.startswith("All GPU types run jobs equally fast here")
    # with rates by type there is nothing to say
    rated = gl.simulate("hadar-60", gl.synth.hadar(jobs=10, seed=1), "fifo", **CAN_ONLY)
    assert said([rated]) == [""] * 3
