"""Explains the counters in a trace's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DROPPED: Mapping[str, str] = {
    "bad_row": "cannot be read (`on_bad_row`)",
    "job_step": "is a step of a job, which uses the job's GPUs",
    "repeated_header": "repeats the header",
    "repeated_record": "repeats a record of the same job and start",
    "cpu_job": "asks for no GPU",
    "never_ran": "was never scheduled",
    "still_waiting": "was still waiting when the trace ended",
    "still_running": "was still running when the trace ended",
    "no_attempt": "has no attempt with a start and an end",
    "no_times": "has no start or no end",
    "unknown_duration": "has the run time -1",
    "never_ended": "was requeued, and its last attempt is not in the log",
    "array_parent": "stands for a whole job array, whose tasks are jobs",
    "other_record": "is a record of another event",
    "compound_request": "asks for GPUs in parts or alternatives, so the number it got is unknown",
    "unknown_gpus": "does not say how many GPUs it used",
    "unknown_processors": "has an unknown number of processors",
    "partial_execution": "repeats a part of another line (status 2 to 4)",
    "zero_duration": "has a duration of 0 or less (`min_duration_s` raises it)",
    "zero_iterations": "has no iterations",
    "other_kind": "is not a job, a group of pods or a pod",
    "owner_counted": "owns an object that stands for the same job",
    "other_status": "ended with another status (`status`)",
    "over_max_gpus": "asks for more GPUs than `max_gpus`",
    "outside_window": "arrived outside `window`",
    "over_limit": "arrived after the first `limit` jobs",
}
"""The reasons why jobs were left out."""

UNFINISHED: Mapping[str, str] = {"still_waiting": "waiting", "still_running": "running"}
"""The reasons why jobs without a known run time were left out, and the states of these jobs."""

COUNTED: Mapping[str, str] = {
    "attempt_ends_before_start": "attempts that end before they start are not used",
    "batch_rounded_up": "total batch sizes that are not a multiple of the number of GPUs",
    "batch_mode_unknown": "jobs with a batch-size mode but unknown rates; their batch size is kept",
    "batch_modes": "jobs whose batch size changes while they run (`modes`)",
    "best_effort": "jobs without a deadline",
    "clamped": "durations that were capped at the format's limit",
    "communication_ignored": "jobs whose data transfers are ignored",
    "dependencies_ignored": "jobs whose dependencies on other jobs are ignored",
    "durations_cut": "drawn durations that were capped at the maximum",
    "elapsed_differs": "run times other than end minus start (suspension, or no `--zone`)",
    "eligible_later": "jobs that could run only after they arrived (`arrival=eligible`)",
    "duplicate_id": "job ids that got a suffix",
    "duration_differs": "stated durations that differ from end minus start, which is used instead",
    "fraction_of_gang_ignored": "gangs that ask for fractions of GPUs and get whole ones",
    "gpu_time_differs": "stated GPU times that differ from duration x GPUs; they are not used",
    "gpus_cut": "gangs capped at the maximum size, after a hundred larger draws",
    "gpus_redrawn": "gangs that were drawn again because they were too large (`max_gpus`)",
    "gpus_rounded_up": "tasks that ask for fractions of GPUs and get whole ones",
    "het_components": "components of heterogeneous jobs, merged into the first component",
    "ignored_columns": "columns that are not known",
    "ignored_fields": "fields beyond those of the format",
    "lifted_duration": "durations raised to `min_duration_s`",
    "mended_record": "records whose free text has separators or line breaks; they were repaired",
    "mixed_gpu_types": "jobs whose tasks ask for different GPU types, and which may use any type",
    "models_absent": "jobs with a gang size that the table of models lacks; they get no model",
    "models_given": "jobs that got a drawn model (`models`)",
    "pending_array": "waiting job arrays, where one record stands for all tasks",
    "processors_as_gpus": "processors that count as GPUs (`procs_per_gpu` says how many make one)",
    "repeated_hour": "local times in the hour that occurs twice at the end of summer time",
    "requeued": "earlier attempts of jobs that were requeued (`run_time`)",
    "slices_as_gpus": "jobs whose slices of GPUs count as GPUs",
    "start_from_end": "start times that are times of eligibility; end minus run time is used",
    "stated_duration_unused": "stated durations that differ from the simulator's (`run_time`)",
    "unknown_status": "status words that are not known; they become `unknown`",
    "walltime_shorter": "walltimes a minute or more below end minus start (suspension?)",
    "slo_without_duration": "objectives of jobs without a known run time; no deadline is set",
}
"""Explanations of the other counters."""


def explain(name: str, metadata: Mapping[str, str] | None = None) -> str:
    """Return the meaning of a counter, or its name if the counter is unknown.

    Parameters
    ----------
    name : str
        The name of the counter.
    metadata : mapping, optional
        The metadata of the trace; it contains the names of counted items if these are useful.

    Examples
    --------
    >>> explain("ignored_columns", {"ignored_columns": "status, comment"})
    'columns that are not known: status, comment'
    """
    said = DROPPED.get(name) or COUNTED.get(name) or name.replace("_", " ")
    named = (metadata or {}).get(name)
    return f"{said}: {named}" if named else said
