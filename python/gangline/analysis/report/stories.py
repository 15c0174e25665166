"""Tells the stories of the most delayed jobs, and of jobs that were stopped in favour of others."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline._support import formatting as words
from gangline.analysis.report.waiting import REASONS, floats
from gangline.runs.explain.face import explain_rows
from gangline.runs.explain.words import reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.analysis.report.waiting import Waits
    from gangline.runs.explain.face import Again
    from gangline.runs.explain.life import Segments
    from gangline.runs.result import Result

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["Story", "alone_s", "sentences", "stops", "tell", "with_causes", "worst"]

_TOLD = 10  # our own choice: the maximum number of jobs on a page
_NAMED = 2  # our own choice: the maximum number of jobs that are named as takers of GPUs
_SMALL = 0.01  # our own choice: losses below this share of the delay are not mentioned


@dataclass(frozen=True)
class Story:
    """A job that took much longer than its run time alone.

    Attributes
    ----------
    row : int
        Row in the jobs table.
    job : str
        Id of the job.
    gpus : int
        Number of GPUs of the gang.
    alone_s, jct_s : float
        Run time alone on the fastest GPUs, and time from arrival to finish.
    wait_s, overhead_s, comm_s, shared_s : float
        All time without GPUs, and the time lost to starts and restarts, to distance, and to
        co-runners.
    reasons_s : tuple of float
        The waiting time for each of `waiting.REASONS`; empty if the tables do not explain all of
        it.
    causes : tuple of (float, str)
        For each of the policy's reasons, the waiting time and the reason as a sentence, longest
        time first; empty if the reasons are unknown.
    preemptions, migrations : int
        Number of times that the policy stopped the job, and number of times that it moved the job.
    takers : tuple of (str, int)
        Jobs that took this job's GPUs most often, each with the number of times.
    taker_jobs : int
        Number of all jobs that took this job's GPUs.
    """

    row: int
    job: str
    gpus: int
    alone_s: float
    jct_s: float
    wait_s: float
    overhead_s: float
    comm_s: float
    shared_s: float
    reasons_s: tuple[float, ...]
    preemptions: int
    migrations: int
    takers: tuple[tuple[str, int], ...]
    taker_jobs: int
    causes: tuple[tuple[float, str], ...] = ()


def alone_s(jobs: pa.Table) -> Floats:
    """Return the run time of each job alone on the fastest GPUs; nan if it did not finish."""
    with np.errstate(invalid="ignore"):
        return floats(jobs, "jct_s") / floats(jobs, "slowdown")


def worst(
    result: Result,
    found: Waits | None,
    rows: Segments | None,
    pairs: tuple[Ints, Ints],
    is_counted: Bools,
) -> list[Story]:
    """Return the stories of the finished jobs with the longest delays, longest first.

    The delay is the time from arrival to finish minus the run time alone. The other parameters are
    those of `tell`; `is_counted` marks the jobs to choose from.
    """
    alone, took = alone_s(result.jobs), floats(result.jobs, "jct_s")
    delay = np.where(np.isfinite(took) & is_counted, took - alone, -np.inf)
    most = np.argsort(-delay, kind="stable")[:_TOLD]
    most = most[delay[most] > 1e-6 * took[most]]
    return tell(result, most.tolist(), found, rows, pairs)


def tell(
    result: Result,
    chosen: Sequence[int],
    found: Waits | None,
    rows: Segments | None,
    pairs: tuple[Ints, Ints],
) -> list[Story]:
    """Return the stories of the chosen jobs, all of which have finished.

    Parameters
    ----------
    result : Result
        Result of a run.
    chosen : sequence of int
        Rows of the jobs table.
    found : Waits, optional
        The reasons why the jobs of the run waited.
    rows : Segments, optional
        Segments of the run, if it has any.
    pairs : (int array, int array)
        Jobs that were stopped, and the jobs that took their GPUs, from `Segments.preempted`.
    """
    jobs = result.jobs
    alone = alone_s(jobs)
    shared = np.zeros(jobs.num_rows)
    by: dict[int, list[int]] = {}
    if rows is not None:
        stopped, taker = pairs
        for one in chosen:
            by[one] = taker[stopped == one].tolist()
        if "xi" in rows.table.column_names:
            lost = (rows.end - rows.start) * (1.0 - 1.0 / floats(rows.table, "xi"))
            # a gang on several servers has a row for each server
            shared = np.bincount(rows.job, lost * _first_rows(rows), jobs.num_rows)
    reasons = None
    if found is not None and rows is not None:
        reasons = np.stack(
            [np.bincount(found.job, part, jobs.num_rows) for part in found.reasons_s.T], axis=1
        )
    ids = jobs["job_id"]
    stories = []
    for row in chosen:
        names, counts = np.unique(np.array(by.get(row, []), np.int64), return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_NAMED]
        taken = {name: jobs[name][row].as_py() for name in _TAKEN}
        if None in taken.values():  # the table was changed by hand
            continue
        stories.append(
            Story(
                row=row,
                job=str(ids[row].as_py()),
                alone_s=float(alone[row]),
                shared_s=float(shared[row]),
                reasons_s=() if reasons is None else tuple(reasons[row].tolist()),
                taker_jobs=len(names),
                takers=tuple(
                    (str(ids[int(names[i])].as_py()), int(counts[i])) for i in order.tolist()
                ),
                **taken,
            )
        )
    return stories


_TAKEN = ("gpus", "jct_s", "wait_s", "overhead_s", "comm_s", "preemptions", "migrations")


def with_causes(stories: Sequence[Story], again: Again | None, log_hash: str) -> list[Story]:
    """Repeat the run once, and add the policy's reasons why the jobs waited.

    Parameters
    ----------
    stories : sequence of Story
        Stories of one run.
    again : Again, optional
        Repeats the run. If the run cannot be repeated or gives a different result, the stories stay
        unchanged.
    log_hash : str
        Hash of the run.
    """
    told = None
    if again is not None and any(story.wait_s for story in stories):
        told = explain_rows(again, log_hash, [story.row for story in stories])
    if told is None:
        return list(stories)
    return [
        dataclasses.replace(story, causes=tuple(reasons(why)))
        for story, why in zip(stories, told, strict=True)
    ]


def sentences(story: Story) -> str:
    """Return the story of a job.

    Examples
    --------
    >>> told = Story(
    ...     row=0, job="7", gpus=2, alone_s=60.0, jct_s=200.0, wait_s=120.0, overhead_s=20.0,
    ...     comm_s=0.0, shared_s=0.0, reasons_s=(100.0, 20.0, 0.0, 0.0), preemptions=2,
    ...     migrations=0, takers=(("9", 2),), taker_jobs=1,
    ... )
    >>> for sentence in sentences(told).split(". "):
    ...     print(sentence)
    It waited 2 min: 1 min 40 s while too few GPUs were free, 20 s while enough GPUs were free for \
it, but not for the job that had come first
    It was stopped twice; job 9 took its GPUs
    Restarts took 20 s.
    """
    delay = story.jct_s - story.alone_s
    least = _SMALL * delay
    told = []
    if story.wait_s > least:
        told += _waiting(story)
    done = []
    if story.preemptions:
        done.append(f"stopped {_times(story.preemptions)}")
    if story.migrations:
        done.append(f"moved {_times(story.migrations)}")
    if done:
        said = f"It was {' and '.join(done)}"
        if story.takers and story.preemptions:
            names = [f"job {job}" for job, _ in story.takers]
            is_few = story.taker_jobs <= _NAMED
            said += (
                f"; {words.listed(names) if is_few else f'{story.taker_jobs:,} jobs'} took its GPUs"
            )
            most = story.takers[0][1]
            said += f", {names[0]} {_times(most)}" if not is_few and most > 1 else ""
        told.append(said)
    losses = [
        (story.overhead_s, "restarts took"),
        (story.comm_s, "the distance between its GPUs cost"),
        (story.shared_s, "co-runners cost"),
    ]
    rest = delay - story.wait_s - sum(lost for lost, _ in losses)
    losses.append((rest, "slower or fewer GPUs or smaller batches cost"))
    said = ", ".join(f"{what} {words.duration(lost)}" for lost, what in losses if lost > least)
    if said:
        told.append(said[0].upper() + said[1:])
    return ". ".join(told) + "." if told else ""


def _waiting(story: Story) -> list[str]:
    """Say how long a job waited and why, if possible in the words of `explain`."""
    said = f"It waited {words.duration(story.wait_s)}"
    least = _SMALL * story.wait_s
    causes = [(words.duration(length), why) for length, why in story.causes if length > least]
    if len(causes) == 1:
        return [f"{said}: {causes[0][1]}"]
    if causes:
        return [said, *(f"{length} of it: {why}" for length, why in causes)]
    parts = [
        f"{words.duration(length)} while {reason.sentence}"
        for reason, length in zip(REASONS, story.reasons_s, strict=False)
        if length > least
    ]
    if len(parts) == 1:
        return [f"{said}, because {parts[0].partition(' while ')[2]}"]
    return [f"{said}: {', '.join(parts)}" if parts else said]


def stops(jobs: pa.Table, stopped: Ints, taker: Ints) -> dict[str, float]:
    """Return how often the policy stopped jobs, and the kinds of jobs that took their GPUs.

    Returns
    -------
    dict
        taken: number of pairs of a stopped job and a job that took its GPUs at that instant. The
        dict also has the shares of these pairs in which the second job is shorter, arrived later,
        or has fewer GPUs; they are nan if there are no pairs.
    """
    found: dict[str, float] = {"taken": float(len(stopped))}
    for name, column in (
        ("shorter", -alone_s(jobs)),
        ("later", floats(jobs, "arrival_s")),
        ("smaller", -floats(jobs, "gpus")),
    ):
        a, b = column[taker], column[stopped]
        known = np.isfinite(a) & np.isfinite(b)
        found[f"taken_by_{name}"] = float((a > b)[known].mean()) if known.any() else float("nan")
    return found


def _first_rows(rows: Segments) -> npt.NDArray[np.bool_]:
    """Mark the first row of each gang; its other rows describe its other servers."""
    order = np.lexsort((rows.start, rows.job))
    job, start = rows.job[order], rows.start[order]
    first = np.empty(len(order), np.bool_)
    is_new = (job[1:] != job[:-1]) | (start[1:] != start[:-1])
    first[order] = np.append(True, is_new)[: len(order)]
    return first


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
