"""The meanings of the counters in a trace's notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DROPPED: Mapping[str, str] = {
    "bad_row": "cannot be read (`on_bad_row`)",
    "job_step": "is a step of a job, whose GPUs are those of the job",
    "repeated_header": "repeats the header",
    "repeated_record": "repeats a record of the same job and start",
    "cpu_job": "asks for no GPU",
    "never_ran": "was never scheduled",
    "still_running": "still ran when the trace ended",
    "no_attempt": "no attempt with a start and an end",
    "no_times": "start or end is missing",
    "unknown_duration": "run time is -1",
    "never_ended": "was requeued, and its last attempt is not in the log",
    "array_parent": "stands for a whole job array, whose tasks are jobs",
    "other_record": "is a record of another event",
    "compound_request": "asks for GPUs in parts or alternatives, which do not tell how many it got",
    "unknown_gpus": "does not say how many GPUs it used",
    "unknown_processors": "processors are unknown",
    "partial_execution": "repeats a part of another line (status 2 to 4)",
    "zero_duration": "duration is 0 or negative (`min_duration_s` lifts them)",
    "zero_iterations": "has no iterations",
    "other_kind": "is no job, no group of pods and no pod",
    "owner_counted": "owns an object that stands for the same job",
    "other_status": "ended otherwise (`status`)",
    "over_max_gpus": "asks for more GPUs than `max_gpus`",
    "outside_window": "arrived outside `window`",
    "over_limit": "arrived after the first `limit` jobs",
}
"""Why jobs were left out."""

COUNTED: Mapping[str, str] = {
    "attempt_ends_before_start": "attempts that end before they start are not used",
    "batch_rounded_up": "total batches that do not divide by the GPUs",
    "batch_mode_unknown": "jobs of a batch-size mode but without known rates; nothing changes",
    "batch_modes": "jobs whose batch size changes while they run (`modes`)",
    "best_effort": "jobs without a deadline of their own",
    "clamped": "durations that were cut at the clamp",
    "communication_ignored": "jobs whose transfers take no time here",
    "dependencies_ignored": "jobs that wait for other jobs there; here they only arrive",
    "durations_cut": "drawn durations that were cut at the longest allowed",
    "elapsed_differs": "run times that are not end minus start: suspended, or the clock changed",
    "eligible_later": "jobs that could run only after they arrived (`arrival=eligible`)",
    "duplicate_id": "job ids that got a suffix",
    "duration_differs": "stated duration is not end minus start, which is used",
    "fraction_of_gang_ignored": "gangs that ask for parts of GPUs get whole ones",
    "gpu_time_differs": "stated GPU time is not duration x GPUs; it is not used",
    "gpus_cut": "gangs cut to the largest allowed, after a hundred draws above it",
    "gpus_redrawn": "gangs that were drawn again, being larger than allowed (`max_gpus`)",
    "gpus_rounded_up": "tasks that ask for parts of GPUs get whole ones",
    "het_components": "components of heterogeneous jobs that were joined to their first",
    "ignored_columns": "columns that are not known",
    "ignored_fields": "fields beyond those of the format",
    "lifted_duration": "durations lifted to `min_duration_s`",
    "mended_record": "records with separators or line breaks in a free text, which were mended",
    "mixed_gpu_types": "jobs whose tasks ask for different GPU types may use any",
    "models_absent": "jobs of a gang size that the table of models does not know; they keep none",
    "models_given": "jobs that got a drawn model (`models`)",
    "pending_array": "waiting job arrays, of which one record stands for all tasks",
    "processors_as_gpus": "processors count as GPUs (`procs_per_gpu` says how many are one)",
    "repeated_hour": "local times in the hour that occurs twice at the end of summer time",
    "requeued": "earlier attempts of jobs that were requeued (`run_time`)",
    "slices_as_gpus": "jobs whose slices of GPUs count as GPUs",
    "start_from_end": "starts that say when a job was eligible; taken as end minus run time",
    "stated_duration_unused": "jobs that state another duration than the simulator's (`run_time`)",
    "unknown_status": "status words that are not known; they become `unknown`",
    "walltime_shorter": "jobs whose walltime is a minute or more below end minus start: suspended?",
    "slo_without_duration": "objectives without a known time alone; no deadline",
}
"""Other counters."""


def explain(name: str, metadata: Mapping[str, str] | None = None) -> str:
    """Return the meaning of a counter; its name if it is unknown.

    Parameters
    ----------
    name : str
        The name of the counter.
    metadata : mapping, optional
        The metadata of the trace, which contain the names of counted items if names are useful.

    Examples
    --------
    >>> explain("ignored_columns", {"ignored_columns": "status, comment"})
    'columns that are not known: status, comment'
    """
    said = DROPPED.get(name) or COUNTED.get(name) or name.replace("_", " ")
    named = (metadata or {}).get(name)
    return f"{said}: {named}" if named else said
