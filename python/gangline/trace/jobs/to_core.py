"""Converts the internal table to arrays for the compiled core, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

import numpy as np

from gangline._support.safe import safe
from gangline.cluster.elastic import elastic_jobs
from gangline.cluster.interference import resolve
from gangline.cluster.rates import NO_CLASS, JobKeys, classify, rates_of_copies, refuse_unknown
from gangline.errors import ClusterError, TraceError
from gangline.trace.jobs.phases import phase_classes

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from gangline import _core
    from gangline.cluster.description import Cluster
    from gangline.cluster.elastic import ElasticJobs
    from gangline.cluster.interference import Pairs
    from gangline.cluster.rates import CopyRates, RateClasses
    from gangline.trace.jobs.schema import Column, Number, Real

GIB = 2**30
NO_LABEL = 0xFFFF_FFFF
_OWNERS: tuple[Column, ...] = ("user", "vc", "account", "partition", "qos")


class JobTable(Protocol):
    """The parts of a `gangline.Trace` that the functions below need."""

    def __len__(self) -> int:
        """Return the number of jobs."""

    @property
    def columns(self) -> list[Column]:
        """The names of the existing columns."""

    def column(self, name: Column) -> pa.Array:
        """Return one column as a single Arrow array."""

    @overload
    def numbers(self, name: Literal["gpus"]) -> npt.NDArray[np.int32]: ...
    @overload
    def numbers(self, name: Real) -> npt.NDArray[np.float64]: ...
    @overload
    def numbers(self, name: Number) -> npt.NDArray[np.int32] | npt.NDArray[np.float64]: ...


def to_core(trace: JobTable, cluster: Cluster) -> _core.Jobs:
    """Build the core's job table for a trace on a cluster."""
    from gangline import _core

    work, ref_rate, known = work_of(trace)
    model, labels = codes(trace, "model")
    gpus = trace.numbers("gpus").astype(np.uint32)
    batch = _optional(trace, "batch_size", 0.0)
    nice = _optional(trace, "nice", 0.0)
    keys = job_keys(trace)
    elastic = elastic_of(trace, cluster)
    if elastic is not None:
        work, ref_rate = _at_traced_size(trace, work, ref_rate, elastic)
    rate_class, rate_table, known = _rates(trace, cluster, keys, known)
    if elastic is not None and rate_class is not None:
        rate_class = np.where(elastic.rows, np.uint32(NO_CLASS), rate_class)
    copies = None if rate_class is None else copy_rates(cluster, keys)
    return _core.Jobs(
        arrival_s=trace.numbers("arrival_s"),
        gpus=gpus,
        work=work,
        ref_rate=ref_rate,
        allowed_types=_allowed(trace, cluster),
        memory_bytes=memory_bytes(trace, cluster),
        model=model,
        model_labels=labels,
        **_labels(trace),
        batch_size=None if batch is None else keys.batch_size,
        weight=_optional(trace, "weight", 1.0),
        deadline_s=_optional(trace, "deadline_s", np.inf),
        time_limit_s=_optional(trace, "time_limit_s", 0.0),
        priority=_optional(trace, "priority", 0.0),
        nice=None if nice is None else nice.astype(np.int32),
        rate_class=rate_class,
        rate_table=rate_table,
        copy_row=None if copies is None else copies.row,
        copy_table=None if copies is None else copies.table,
        duration_known=known,
        elastic=None if elastic is None else elastic.core,
        **_phases(trace, elastic),
    )


def _labels(trace: JobTable) -> dict[str, Any]:
    """Return the codes and the names of each label column, such as the users of the jobs."""
    found: dict[str, Any] = {}
    for name in _OWNERS:
        found[name], found[f"{name}_labels"] = codes(trace, name)
    return found


def _phases(trace: JobTable, elastic: ElasticJobs | None) -> dict[str, Any]:
    """Return the phases in which the rates of jobs change; empty if no rate changes."""
    found = phase_classes(trace.column("phases")) if "phases" in trace.columns else None
    if found is None:
        return {}
    of_job, classes = found
    both = (
        np.zeros(len(trace), np.bool_) if elastic is None else elastic.rows & (of_job != NO_LABEL)
    )
    if both.any():
        row = int(np.argmax(both))
        raise TraceError.at(
            f"job {safe(str(trace.column('job_id')[row]), 80)}",
            None,
            "phases",
            safe(str(trace.column("phases")[row]), 80),
            "none: the job is elastic, and its model has other phases",
        )
    return {"phase_class": of_job, "phases": classes}


def job_keys(trace: JobTable) -> JobKeys:
    """Return the properties of jobs on which the rates of the jobs depend."""
    model, labels = codes(trace, "model")
    batch = _optional(trace, "batch_size", 0.0)
    return JobKeys(
        model=np.full(len(trace), NO_LABEL, np.uint32) if model is None else model,
        batch_size=np.zeros(len(trace), np.uint32) if batch is None else batch.astype(np.uint32),
        gpus=trace.numbers("gpus").astype(np.uint32),
        labels=labels,
    )


def pairs_of(trace: JobTable, cluster: Cluster) -> Pairs | None:
    """Return the slowdown factors of a trace's jobs; None if the cluster defines none."""
    types = [gpu.name for gpu in cluster.gpu_types]
    return resolve(cluster.sharing, types, job_keys(trace), _allowed(trace, cluster))


def estimated_rates(trace: JobTable, cluster: Cluster) -> int:
    """Count the jobs whose rates were estimated from those of a different gang size."""
    if cluster.throughput is None or cluster.throughput.missing != "nearest":
        return 0
    classes = rate_classes(trace, cluster, job_keys(trace))
    return 0 if classes is None else int(classes.estimated.sum())


def rate_classes(trace: JobTable, cluster: Cluster, keys: JobKeys) -> RateClasses | None:
    """Return the jobs' classes in the cluster's throughput table; None without a table."""
    if cluster.throughput is None or not cluster.throughput.rows or not keys.labels:
        return None
    types = [gpu.name for gpu in cluster.gpu_types]
    return classify(cluster.throughput, types, keys, _has_iterations(trace))


def copy_rates(cluster: Cluster, keys: JobKeys) -> CopyRates | None:
    """Return the rates of gangs up to the largest server's size; None without a table."""
    throughput = cluster.throughput
    if throughput is None or not throughput.rows:
        return None
    types = [gpu.name for gpu in cluster.gpu_types]
    largest = max(group.gpus for group in cluster.servers)
    return rates_of_copies(throughput, types, keys, largest)


def _rates(
    trace: JobTable, cluster: Cluster, keys: JobKeys, known: npt.NDArray[np.bool_] | None
) -> tuple[
    npt.NDArray[np.uint32] | None, npt.NDArray[np.float64] | None, npt.NDArray[np.bool_] | None
]:
    """Return the rate classes, their table, and the known durations; reject unknown rates.

    Without a table, jobs without a model run one iteration per second.
    """
    classes = rate_classes(trace, cluster, keys)
    has_table = cluster.throughput is not None and bool(cluster.throughput.rows)
    if known is not None:
        rated = np.zeros(len(trace), np.bool_)
        if classes is not None:
            rated = classes.of_job != NO_CLASS
        known = known | rated
        unknown = ~known if has_table else ~known & (keys.model != NO_LABEL)
        if unknown.any():
            types = [gpu.name for gpu in cluster.gpu_types]
            identifiers = trace.column("job_id").to_pylist()
            refuse_unknown(unknown, keys, identifiers, types, cluster.throughput)
    if classes is None or not len(classes.table):
        return None, None, known
    return classes.of_job, classes.table, known


def codes(trace: JobTable, name: Column) -> tuple[npt.NDArray[np.uint32] | None, list[str]]:
    """Return the label codes (2**32 - 1 = no label) and the labels.

    If the trace lacks the column, the result is `(None, [])`.
    """
    if name not in trace.columns:
        return None, []
    column = trace.column(name)
    labels = column.dictionary.to_pylist()
    indices = column.indices
    if indices.null_count:
        values = indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return values.astype(np.int64).astype(np.uint32), labels  # -1 wraps to 2**32 - 1
    return indices.to_numpy(zero_copy_only=False).astype(np.uint32), labels


def work_of(
    trace: JobTable,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None, npt.NDArray[np.bool_] | None]:
    """Return work, reference rate (None = always 1), and known durations (None = all known)."""
    has = {name: name in trace.columns for name in ("duration_s", "iterations")}
    if not has["iterations"]:
        return trace.numbers("duration_s"), None, None
    iterations = trace.numbers("iterations")
    if not has["duration_s"]:
        return iterations, None, np.zeros(len(trace), dtype=np.bool_)
    duration = trace.numbers("duration_s")
    both = ~np.isnan(iterations) & ~np.isnan(duration)
    work = np.where(np.isnan(iterations), duration, iterations)
    rate = np.divide(iterations, duration, out=np.ones(len(trace)), where=both)
    known = ~np.isnan(duration)
    return work, rate, None if known.all() else known


def elastic_of(trace: JobTable, cluster: Cluster) -> ElasticJobs | None:
    """Return the jobs that are elastic on a cluster; None if there are none."""

    def numbers(name: Number) -> npt.NDArray[np.float64] | None:
        return trace.numbers(name).astype(np.float64) if name in trace.columns else None

    def name(row: int) -> str:
        return str(trace.column("job_id")[row])

    return elastic_jobs(cluster, job_keys(trace), numbers, name)


def _at_traced_size(
    trace: JobTable,
    work: npt.NDArray[np.float64],
    ref_rate: npt.NDArray[np.float64] | None,
    elastic: ElasticJobs,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return work and reference rate, with elastic jobs at the gang size in the trace."""
    rate = np.ones(len(trace)) if ref_rate is None else ref_rate
    own = trace.numbers("duration_s") * elastic.rate
    return np.where(elastic.rows, own, work), np.where(elastic.rows, elastic.rate, rate)


def _has_iterations(trace: JobTable) -> npt.NDArray[np.bool_]:
    if "iterations" not in trace.columns:
        return np.zeros(len(trace), dtype=np.bool_)
    return np.asarray(~np.isnan(trace.numbers("iterations")))


def _optional(trace: JobTable, name: Number, default: float) -> npt.NDArray[np.float64] | None:
    if name not in trace.columns:
        return None
    values = trace.numbers(name).astype(np.float64)
    return np.where(np.isnan(values), default, values)


def memory_bytes(trace: JobTable, cluster: Cluster) -> npt.NDArray[np.uint64] | None:
    """Return the memory per GPU in bytes, rounded to the nearest byte (halves up); 0 = unknown."""
    values = _optional(trace, "memory_gb", 0.0)
    if values is None:
        return None
    for i, gpu in enumerate(cluster.gpu_types):
        if gpu.memory_gb is None and (values > 0.0).any():
            row = int(np.argmax(values > 0.0))
            name, key = trace.column("job_id")[row].as_py(), f"gpu_types[{i}].memory_gb"
            message = (
                f"cluster {safe(cluster.name, 80)}: {key}: job `{safe(name, 80)}` asks for "
                f"{values[row]:g} GiB per GPU, but the memory of {safe(gpu.name, 80)} is unknown; "
                "give it in a cluster file"
            )
            raise ClusterError(message, key=key, value=None)
    return np.floor(values * GIB + 0.5).astype(np.uint64)


def _allowed(trace: JobTable, cluster: Cluster) -> npt.NDArray[np.uint64] | None:
    """Return a bit mask per job: bit t allows type t; 0 if the cluster lacks all listed types."""
    if "gpu_types" not in trace.columns:
        return None
    column = trace.column("gpu_types")
    names = [gpu.name for gpu in cluster.gpu_types]
    lists: Any = column.flatten().dictionary_encode()
    bits = np.asarray(
        [1 << names.index(name) if name in names else 0 for name in lists.dictionary.to_pylist()]
        or [0],
        dtype=np.uint64,
    )
    flat = bits[lists.indices.to_numpy(zero_copy_only=False)]
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    masks = np.zeros(len(trace), dtype=np.uint64)
    np.bitwise_or.at(masks, np.repeat(np.arange(len(trace)), lengths), flat)
    if column.null_count:
        free = ~np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        masks[free] = np.uint64((1 << len(names)) - 1)
    return masks
