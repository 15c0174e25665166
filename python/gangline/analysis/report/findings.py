"""Computes the numbers on a page: results pooled over seeds, fairness, and the use of GPU time."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline._support import formatting as words
from gangline.analysis.report.command import trace_seeds
from gangline.analysis.report.digest import LENGTHS, Group, curve
from gangline.runs import comparison
from gangline.runs.explain.reasons import HEAD_OF_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangline.analysis.report.digest import Digest


__all__ = ["REASONS", "fairness_columns", "gpu_time", "means", "pooled", "reasons", "rows"]

# The causes for which GPU time held is lost, and the keys of these losses in the summary.
_LOSSES = (
    ("overhead", "overhead_fraction"),
    ("distance", "comm_fraction"),
    ("co-runner", "share_fraction"),
)

_BLOCKED = (
    "head-of-line blocking: share of the total time that jobs waited for their first start while "
    "the earliest arrival still in the queue asked for more GPUs than were idle and "
    "the waiting jobs themselves did not"
)
# The causes of a mean time to finish; explanations are shown below the table.
REASONS = tuple(words.Measure(*one) for one in (
    ("wait_mean_s", "All waiting, mean", "all time without GPUs", words.duration, -1),
    ("run_mean_s", "Mean running", "all time with GPUs", words.duration, -1),
    ("behind_head", HEAD_OF_LINE.title, _BLOCKED, words.share, -1),
    ("idle_while_waiting", "Idle while jobs wait",
     "share of all GPU time that was idle while at least one job waited", words.share, -1),
    ("stops_per_job", "Stops and moves per job", "", words.times, 0),
    ("overhead_fraction", "Lost to restarts",
     "share of the GPU time held that went into starts and restarts", words.share, -1),
))  # fmt: skip
_ADDED = ("worse_off", "jain", "behind_head", "idle_while_waiting")


def fairness_columns(whom: str) -> tuple[words.Measure, ...]:
    """Return the columns of the fairness table; Jain's index compares `whom` (users or jobs)."""
    return (
        words.Measure("ftf_mean", "Mean rho", "1: the same as on an equal share", words.times, -1),
        words.Measure("ftf_p99", "99 % are below", "", words.times, -1),
        words.Measure("ftf_max", "Worst job", "", words.times, -1),
        words.Measure("worse_off", "Jobs worse off", "Share of jobs above 1", words.share, -1),
        words.Measure(
            "jain", f"Jain's fairness index of {whom}", "1: the same rho for all", words.times, 1
        ),
    )


def pooled(runs: Sequence[Digest]) -> list[Digest]:
    """Return one run per policy, with the distributions and groups of jobs pooled over its seeds.

    Everything else comes from the run of the first seed. A job of a trace counts once, no matter
    with how many seeds it ran.
    """
    by_label: dict[str, list[Digest]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    return [mine[0] if len(mine) == 1 else _pooled(mine) for mine in by_label.values()]


def _pooled(mine: Sequence[Digest]) -> Digest:
    once = len({run.spec["trace"]["sha256"] for run in mine}) / len(mine)
    values = {name: np.concatenate([one.curves[name] for one in mine]) for name in mine[0].curves}
    return dataclasses.replace(
        mine[0],
        curves={name: curve(of_all) for name, of_all in values.items()},
        gangs=_groups([run.gangs for run in mine], once, _size),
        lengths=_groups([run.lengths for run in mine], once, LENGTHS.index),
        users=_groups([run.users for run in mine], once, str),
    )


def _groups(
    seeds: Sequence[Sequence[Group]], once: float, place: Callable[[str], Any]
) -> list[Group]:
    """Merge the groups of all seeds; `once` scales the sums, so that a job counts only once."""
    found: dict[Any, list[Group]] = {}
    for group in (group for groups in seeds for group in groups):
        found.setdefault(place(group.name), []).append(group)
    return [
        Group(
            _joined([group.name for group in alike]),
            math.ceil(once * sum(group.jobs for group in alike)),
            once * sum(group.gpu_seconds for group in alike),
            sum(group.jct_mean_s * group.jobs for group in alike)
            / sum(group.jobs for group in alike),
        )
        for _, alike in sorted(found.items())
    ]


def _size(name: str) -> int:
    """Return the exponent of the smallest power of two that covers the gang sizes of a group."""
    return (int(name.rsplit(maxsplit=1)[-1]) - 1).bit_length()


def _joined(names: Sequence[str]) -> str:
    """Return the common name of matching groups; for gangs, it spans the sizes in all draws."""
    if len(set(names)) == 1:
        return names[0]
    sizes = [int(size) for name in names for size in name.split(" to ")]
    return f"{min(sizes)} to {max(sizes)}"


def rows(runs: Sequence[Digest]) -> list[dict[str, Any]]:
    """Return one row per run: policy, seeds, the summary, and additional figures from the digest.

    The trace seed is a key only if the runs use several draws of the trace.
    """
    is_drawn = bool(trace_seeds(runs))
    return [
        {
            "policy": run.label,
            "seed": run.seed,
            **({"trace_seed": run.trace_seed} if is_drawn else {}),
            **run.summary,
            **{key: getattr(run, key) for key in _ADDED},
            # if no job waited, none was blocked, and a mean over seeds includes this 0
            **({"behind_head": 0.0} if run.summary.get("queue_mean_s") == 0.0 else {}),
            **run.reasons,
        }
        for run in runs
    ]


def means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per policy: means over the seeds, except that shares are pooled over them.

    A mean of `behind_head` over seeds would give a run in which jobs hardly waited the same weight
    as any other, and would contradict the mean wait shown next to it. The same is true of a mean of
    the shares of jobs that took GPUs.
    """
    found: list[dict[str, Any]] = [{**mean} for mean in comparison.means(rows)]
    for mean in found:
        mine = [row for row in rows if row["policy"] == mean["policy"]]
        waited = [_known(row, "queue_mean_s") * _known(row, "jobs") for row in mine]
        if "behind_head" in mean:
            mean |= _shared(mine, "behind_head", waited)
        for key in ("taken_by_shorter", "taken_by_later", "taken_by_smaller"):
            mean |= _shared(mine, key, [_known(row, "taken") for row in mine])
    return found


def _shared(
    rows: Sequence[Mapping[str, Any]], key: str, whole: Sequence[float]
) -> dict[str, float]:
    """Return the share of the sum of `whole`, given the share in each row; empty if unknown."""
    parts = [(row.get(key, math.nan), one) for row, one in zip(rows, whole, strict=True)]
    known = [(part, one) for part, one in parts if one and math.isfinite(part)]
    total = sum(one for _, one in known)
    return {key: sum(part * one for part, one in known) / total} if total else {}


def reasons(means: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of `means`, and add the keys of `REASONS` that follow from other keys."""
    rows = []
    for row in means:
        jobs = _known(row, "jobs") - _known(row, "dropped")
        done = _known(row, "preemptions") + _known(row, "migrations")
        added = {"stops_per_job": done / jobs} if jobs else {}
        if row.get("jct_mean_s") is not None and row.get("wait_mean_s") is not None:
            added["run_mean_s"] = row["jct_mean_s"] - row["wait_mean_s"]
        rows.append({**row, **added})
    return rows


def gpu_time(row: Mapping[str, Any]) -> dict[str, float]:
    """Split all GPU time until the last finish into shares that add up to one.

    The losses are fractions of the time held, which counts a shared GPU once for each job on it.
    Therefore, they are scaled to the loss of the time in use, which counts such a GPU once.
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


def _known(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    is_number = isinstance(value, (int, float)) and value == value
    return max(float(value), 0.0) if is_number else 0.0  # type: ignore[arg-type]
