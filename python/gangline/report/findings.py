"""Numbers of a page: one row per policy, the columns on fairness, where GPU time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline import _formatting as words
from gangline import comparison
from gangline.report.command import trace_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.report.digest import Digest


__all__ = ["REASONS", "fairness_columns", "gpu_time", "means", "reasons", "rows"]

# Parts of the GPU time held that were lost, and their keys in the summary.
_LOSSES = (
    ("overhead", "overhead_fraction"),
    ("distance", "comm_fraction"),
    ("co-runner", "share_fraction"),
)

_BLOCKED = (
    "head-of-line blocking: share of the waiting time for a first start in which the job that had "
    "come first asked for more GPUs than were idle, and the waiting job for no more"
)
# Why a mean time to finish is what it is; explanations are shown below the table.
REASONS = tuple(words.Measure(*one) for one in (
    ("wait_mean_s", "Mean waiting", "all time without GPUs", words.duration, -1),
    ("run_mean_s", "Mean running", "all time with GPUs", words.duration, -1),
    ("behind_head", "Behind a blocked head", _BLOCKED, words.share, -1),
    ("idle_while_waiting", "Idle while jobs wait",
     "share of all GPU time that was idle while at least one job waited", words.share, -1),
    ("stops_per_job", "Stops and moves per job", "", words.times, 0),
    ("overhead_fraction", "Lost to restarts",
     "share of the GPU time held that went into starts and restarts", words.share, -1),
))  # fmt: skip
_ADDED = ("worse_off", "jain", "behind_head", "idle_while_waiting")


def fairness_columns(whom: str) -> tuple[words.Measure, ...]:
    """Return the columns of the fairness table; `whom` evenness is taken between."""
    return (
        words.Measure("ftf_mean", "Mean", "1: as on an equal share", words.times, -1),
        words.Measure("ftf_p99", "99 % are below", "", words.times, -1),
        words.Measure("ftf_max", "Worst job", "", words.times, -1),
        words.Measure("worse_off", "Jobs worse off", "Share of jobs above 1", words.share, -1),
        words.Measure(
            "jain", f"Evenness between {whom}", "Jain's index: 1 is even", words.times, 1
        ),
    )


def rows(runs: Sequence[Digest]) -> list[dict[str, Any]]:
    """Return one row per run: policy, seeds, its summary and what the digest adds.

    The seed of the trace is a key only if the runs are of several draws of it.
    """
    is_drawn = bool(trace_seeds(runs))
    return [
        {
            "policy": run.label,
            "seed": run.seed,
            **({"trace_seed": run.trace_seed} if is_drawn else {}),
            **run.summary,
            **{key: getattr(run, key) for key in _ADDED},
            # where no job waited none was behind a blocked head: a mean over seeds counts it
            **({"behind_head": 0.0} if run.summary.get("queue_mean_s") == 0.0 else {}),
            **run.reasons,
        }
        for run in runs
    ]


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per policy: averages over the seeds, shares of waiting by how much there was.

    A mean of `behind_head` over seeds would count a run in which jobs hardly waited like any other,
    and contradict the mean waiting beside it.
    """
    found = comparison.means(rows)
    for mean in found:
        if "behind_head" not in mean:
            continue
        mine = [row for row in rows if row["policy"] == mean["policy"]]
        waited = [_known(row, "queue_mean_s") * _known(row, "jobs") for row in mine]
        if total := sum(waited):
            behind = (row["behind_head"] * s for row, s in zip(mine, waited, strict=True))
            mean["behind_head"] = sum(behind) / total
    return found


def reasons(means: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the keys of `REASONS`."""
    rows = []
    for row in means:
        jobs = _known(row, "jobs") - _known(row, "dropped")
        done = _known(row, "preemptions") + _known(row, "migrations")
        added = {"stops_per_job": done / jobs} if jobs else {}
        if row.get("jct_mean_s") is not None and row.get("wait_mean_s") is not None:
            added["run_mean_s"] = row["jct_mean_s"] - row["wait_mean_s"]
        rows.append({**row, **added})
    return rows


def gpu_time(row: dict[str, Any]) -> dict[str, float]:
    """Split all GPU time until the last finish into parts that sum to one.

    The losses are fractions of the time held, which counts a shared GPU once for each job on it.
    So they are scaled to what was lost of the time in use, which counts it once.
    """
    busy = min(_known(row, "gpu_utilization"), 1.0)
    useful = min(_known(row, "useful_utilization"), busy)
    lost = {name: busy * _known(row, key) for name, key in _LOSSES}
    total = sum(lost.values())
    scale = (busy - useful) / total if total > 0.0 else 0.0
    fragment = min(_known(row, "fragmentation"), 1.0 - busy)
    return {
        "useful": useful if total > 0.0 else busy,
        **{name: value * scale for name, value in lost.items()},
        "fragment": fragment,
        "idle": 1.0 - busy - fragment,
    }


def _known(row: dict[str, Any], key: str) -> float:
    value = row.get(key)
    is_number = isinstance(value, (int, float)) and value == value
    return max(float(value), 0.0) if is_number else 0.0  # type: ignore[arg-type]
