"""Makes logs of invented clusters: simulated under a policy, with the noise of a real log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import gangline as gl

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace

LAB = "8x8xA100"


def log_of(
    trace: str | Trace,
    policy: str,
    *,
    seed: int,
    lab: str = LAB,
    run_noise: float = 0.1,
    delay_s: float = 30.0,
) -> pa.Table:
    """Return the log of a cluster under a policy.

    Run times differ from what the scheduler was told by a log-normal factor, and each start comes
    later than it was decided by an exponential delay.
    """
    jobs = gl.read_trace(trace) if isinstance(trace, str) else trace
    ran = gl.simulate(lab, jobs, policy, timeline="off").jobs
    arrival, queue, wait, run = (
        ran[name].to_numpy() for name in ("arrival_s", "queue_s", "wait_s", "run_s")
    )
    rng = np.random.default_rng(seed)
    took = run * np.exp(rng.normal(0.0, run_noise, len(jobs)))
    late = rng.exponential(delay_s, len(jobs))
    columns = {
        "job_id": jobs.column("job_id"),
        "arrival_s": arrival,
        "gpus": ran["gpus"],
        "duration_s": took,
        "observed_start_s": arrival + queue + late,
        "observed_finish_s": arrival + wait + late + took,
    }
    if "user" in jobs.columns:
        columns["user"] = jobs.column("user")
    return pa.table(columns)
