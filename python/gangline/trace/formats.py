"""Lists the known formats, how each one is recognised, and the modules that read and write it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec

from gangline._support.formatting import did_you_mean
from gangline.errors import TraceError

if TYPE_CHECKING:
    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of traces.

    Attributes
    ----------
    name : str
        Name for `--format`.
    recognised : str
        Description of the form of a file in this format.
    notes : str
        Description of how the columns are read, and of possible pitfalls.
    kind : str
        Kind of file: text with a header line, or a file that is recognised by its first bytes.
    columns : frozenset
        Column names, in lower case, that the header line of a file must have.
    has_local_times : bool
        Whether the option `zone` applies to times in this format.
    options : tuple of str
        Options that only this format understands.
    reader, writer : str
        Names of the format's modules in `gangline.trace.readers` (with a function `read(source,
        options) -> Raw`) and in `gangline.trace.writers`; empty if the format cannot be read or
        cannot be written, respectively.
    """

    name: str
    recognised: str
    notes: str
    kind: Literal["csv", "json", "log", "sacct", "swf", "tsv"] = "csv"
    columns: frozenset[str] = frozenset()
    has_local_times: bool = False
    options: tuple[str, ...] = ()
    reader: str = ""
    writer: str = ""


def _columns(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TIRESIAS = "job_id num_gpu submit_time iterations model_name duration interval"
_HELIOS = (
    "job_id user gpu_num cpu_num node_num state submit_time start_time end_time duration queue"
)

TABLE = "table"
"""Name of the format for any table whose columns are mapped."""

FORMATS = (
    Format(
        name="native",
        recognised="Parquet, Arrow or CSV with arrival_s, gpus, duration_s or iterations",
        notes="the columns of the internal table; lists in CSV are joined by |",
        columns=_columns("arrival_s gpus"),
        reader="native",
        writer="native",
    ),
    Format(
        name="philly-csv",
        recognised="CSV timestamp, duration, num_gpus, gpu_time, cluster",
        notes="local times, unsorted, no ids; equal rows are separate jobs; cluster becomes vc",
        columns=_columns("timestamp duration num_gpus gpu_time cluster"),
        has_local_times=True,
        reader="philly_csv",
        writer="philly_csv",
    ),
    Format(
        name="philly-json",
        recognised="JSON array of objects with attempts and submitted_time",
        notes="GPUs: the largest attempt; duration: the sum of the attempts, or their span",
        kind="json",
        options=("run_time",),
        has_local_times=True,
        reader="philly_json",
        writer="philly_json",
    ),
    Format(
        name="helios",
        recognised=f"CSV {', '.join(_HELIOS.split()[:2])}, vc, gpu_num, cpu_num, node_num, ...",
        notes="local times of UTC+8; rows without GPUs are CPU jobs",
        columns=_columns(f"{_HELIOS} vc"),
        has_local_times=True,
        reader="helios",
        writer="helios",
    ),
    Format(
        name="acme",
        recognised="CSV like helios, without vc, with type and gpu_time",
        notes="times with offsets; duration is end minus start; running jobs are dropped",
        columns=_columns(f"{_HELIOS} type gpu_time"),
        reader="acme",
    ),
    Format(
        name="four-column",
        recognised="CSV job_id, arrival_s, service_sec, gpu_count",
        notes="public conversions of Helios Venus and PAI; run times are capped at 172,800 s",
        columns=_columns("job_id arrival_s service_sec gpu_count"),
        reader="four_column",
    ),
    Format(
        name="windows",
        recognised="CSV u_id, user, gpu_num, cpu_num, node_num, interval, run_time, ...",
        notes="arrivals are the running sum of interval; wall_time 0 means unknown",
        columns=_columns(
            "u_id user gpu_num cpu_num node_num interval run_time wall_time new_status"
        ),
        reader="windows",
    ),
    Format(
        name="pai",
        recognised="folder with pai_task_table.csv, that table, or CSV with a .header file",
        notes="one job per task, or per job; GPUs are instances x whole GPUs of an instance",
        columns=_columns(
            "job_name task_name inst_num status start_time end_time plan_gpu gpu_type"
        ),
        options=("unit",),
        reader="pai",
    ),
    Format(
        name="openb",
        recognised="CSV name, num_gpu, gpu_milli, gpu_spec, ..., scheduled_time",
        notes="shares of a GPU become gpu_fraction; pods that never ran are dropped",
        columns=_columns(
            "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time "
            "deletion_time scheduled_time"
        ),
        reader="openb",
        writer="openb",
    ),
    Format(
        name="swf",
        recognised="lines of 18 or more numbers, or comments that begin with ;",
        notes="processors divided by procs_per_gpu, rounded up; partial executions are dropped",
        kind="swf",
        options=("procs_per_gpu",),
        reader="swf",
        writer="swf",
    ),
    Format(
        name="batsim",
        recognised="JSON object with jobs and profiles",
        notes="delays, sequences of them, and computations if flops is given",
        kind="json",
        options=("flops",),
        reader="batsim",
        writer="batsim",
    ),
    Format(
        name="gavel",
        recognised="tab-separated, no header line, 7, 10 or 12 columns",
        notes="iterations; with 12 columns, durations and modes; or durations by throughput=TABLE",
        kind="tsv",
        options=("throughput", "reference", "modes"),
        reader="gavel",
        writer="gavel",
    ),
    Format(
        name="tiresias",
        recognised=f"CSV {', '.join(_TIRESIAS.split())}",
        notes="seconds; interval only repeats the arrivals",
        columns=_columns(_TIRESIAS),
        reader="tiresias",
        writer="tiresias",
    ),
    Format(
        name="muri",
        recognised="CSV like tiresias, with iteration_time and resource_time_0, ...",
        notes="milliseconds; only the header distinguishes it from tiresias",
        columns=_columns(f"{_TIRESIAS} iteration_time resource_time_0"),
        reader="muri",
        writer="muri",
    ),
    Format(
        name="chronus",
        recognised="CSV like tiresias, with user, expect_time_list and job_type",
        notes="deadline: the first expected time after the arrival; best-effort jobs have none",
        columns=_columns(f"{_TIRESIAS} user expect_time_list job_type"),
        reader="chronus",
    ),
    Format(
        name="pollux",
        recognised="CSV name, time, application, num_replicas, batch_size",
        notes="total batches; needs durations, or profiles from which they follow",
        columns=_columns("name time application num_replicas batch_size"),
        options=("durations", "placements", "profiles"),
        reader="pollux",
        writer="pollux",
    ),
    Format(
        name="elasticflow",
        recognised="CSV job_id, submission_time, duration, num_gpu",
        notes="seconds; the public traces of ElasticFlow",
        columns=_columns("job_id submission_time duration num_gpu"),
        reader="elasticflow",
    ),
    Format(
        name="slurm",
        recognised="fields of sacct --parsable2: JobID, Submit, AllocTRES, ...; or sacct --json",
        notes="one job per JobID, with its attempts and components; steps are left out",
        kind="sacct",
        has_local_times=True,
        options=("fields", "separator", "vc", "types", "run_time", "arrival"),
        reader="slurm",
    ),
    Format(
        name="kubernetes",
        recognised="JSON of kubectl get -o json: Workloads, Jobs, PodGroups, Pods",
        notes="one job per Workload, Job or group of pods; an object and its owner count once",
        kind="json",
        reader="kubernetes",
    ),
    Format(
        name="pbs",
        recognised="lines MM/DD/YYYY HH:MM:SS;TYPE;JOB;KEY=VALUE ... of PBS or Torque",
        notes="one job per job or array task, with its attempts; GPUs of exec_vnode",
        kind="log",
        options=("vc", "run_time", "arrival"),
        reader="pbs",
    ),
    Format(
        name="lsf",
        recognised='lines "JOB_FINISH" "VERSION" TIME ... of LSF\'s lsb.acct',
        notes="one job per job or array element; GPUs of the effective requirement x hosts",
        kind="log",
        options=("vc", "run_time", "arrival"),
        reader="lsf",
    ),
    Format(
        name="ray",
        recognised="JSON array of Ray's GET /api/jobs/: objects with entrypoint and start_time",
        notes="GPUs of the entry point or of the metadata; waits are part of the run times",
        kind="json",
        options=("metadata_gpus",),
        reader="ray",
    ),
    Format(
        name="opendc",
        recognised="Parquet or CSV id, submission_time, duration, cpu_count, ..., gpu_count",
        notes="the tasks of a workload; milliseconds; tasks without GPUs are CPU jobs",
        columns=_columns("id submission_time duration cpu_count cpu_capacity mem_capacity"),
        reader="opendc",
    ),
    Format(
        name="dally",
        recognised="JSON array of objects with max_parallelism, total_iterations, ...",
        notes="jobs of Dally's simulator; run time: iterations x time of one iteration / GPUs",
        kind="json",
        options=("run_time",),
        reader="dally",
    ),
    Format(
        name=TABLE,
        recognised="any delimited text, Parquet or Arrow, with --columns NATIVE=THEIRS,...",
        notes="columns, products and differences of columns, units, dates and durations as text",
        has_local_times=True,
        options=("columns", "separator", "comment", "decimal", "header", "status_words"),
        reader="table",
    ),
)


class Reader(Protocol):
    """The functions that a reader's module offers.

    If the format has options, the module defines them as `Special`.
    """

    def read(self, source: Source, options: Options) -> Raw:
        """Read the columns of an input."""


def reader_of(name: str) -> Reader:
    """Return the module that reads a format."""
    found = find(name)
    if not found.reader:
        known = ", ".join(item.name for item in FORMATS if item.reader)
        raise TraceError(f"format `{name}` cannot be read; these can: {known}", value=name)
    return cast("Reader", importlib.import_module(f"gangline.trace.readers.{found.reader}"))


def special_of(reader: Reader) -> type[msgspec.Struct] | None:
    """Return the type of the options that only the reader of this format understands."""
    special: Any = getattr(reader, "Special", None)
    return cast("type[msgspec.Struct] | None", special)


def find(name: str) -> Format:
    """Return a format by its name.

    Raises
    ------
    TraceError
        If there is no such format; the message lists the known formats.
    """
    for item in FORMATS:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in FORMATS)
    hint = did_you_mean(name, known.split(", "), "gangline trace formats")
    message = f"unknown trace format `{name}`{hint}"
    raise TraceError(message, value=name, expected=known)
