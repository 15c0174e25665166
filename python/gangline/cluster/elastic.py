"""Finds the elastic jobs of a trace: those for which the cluster has a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from gangline.cluster.elastic_checks import FIT
from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from gangline import _core
    from gangline.cluster.rates import JobKeys
    from gangline.cluster.schema import ClusterKeys, ElasticModel

__all__ = ["ElasticClass", "ElasticJobs", "elastic_jobs"]

Measure = Literal["duration_s", "min_gpus", "max_gpus", "memory_gb"]
"""The optional trace columns that describe an elastic job."""

# The noise scale in initial batches if no noise was measured; our own choice.
_NOISE_BATCHES = 4.0
_BATCH_MAX = 2**31 - 1
_ROUNDING = 1e-9  # Our own choice; it allows for sizes that were rounded to whole bytes.


class ElasticClass(NamedTuple):
    """A class of elastic jobs, with the properties that all of its jobs share.

    Attributes
    ----------
    fit : tuple of float
        The parameters of the step time: a_c, b_c, a_n, b_n, a_r, b_r (seconds) and gamma.
    init_batch, max_batch, min_pass_batch, max_pass_batch : int
        Limits on the total batch size, and on the samples per GPU and pass.
    min_gpus, max_gpus : int
        Range of the gang size.
    gpus, batch_size : int
        Gang size and number of samples per GPU in the trace.
    fits_server : int
        Whether a gang with the size in the trace fits on one server.
    phases : tuple of (progress, grad_sqr, grad_var, ...)
        Gradient noise by phase. A phase begins at a given progress (a fraction of the work) and has
        one pair of values for each batch size in `noise_batches`.
    noise_batches : tuple of int
        Total batch sizes at which the noise was measured; empty if the noise is the same for all
        batch sizes.
    """

    fit: tuple[float, ...]
    init_batch: int
    max_batch: int
    min_pass_batch: int
    max_pass_batch: int
    min_gpus: int
    max_gpus: int
    gpus: int
    batch_size: int
    fits_server: int
    phases: tuple[tuple[float, ...], ...]
    noise_batches: tuple[int, ...]

    @property
    def limits(self) -> tuple[int, ...]:
        """The integers of the class, in the order that the core expects."""
        return self[1:-2]


class ElasticJobs(NamedTuple):
    """The elastic jobs of a trace.

    Attributes
    ----------
    core : object
        The tables of the jobs, for the compiled core.
    rows : bool array, shape (jobs,)
        Whether each job is elastic.
    rate : float64 array, shape (jobs,)
        Mean rate over the whole job, at the gang size and batch size in the trace, in iterations of
        the initial batch size per second; 1 for jobs that are not elastic.
    kind : int64 array, shape (jobs,)
        Class of each job; -1 for jobs without a class.
    classes : tuple of ElasticClass
        Classes of equal jobs.
    """

    core: _core.Elastic
    rows: npt.NDArray[np.bool_]
    rate: npt.NDArray[np.float64]
    kind: npt.NDArray[np.int64]
    classes: tuple[ElasticClass, ...]


def elastic_jobs(
    cluster: ClusterKeys,
    keys: JobKeys,
    numbers: Callable[[Measure], npt.NDArray[np.float64] | None],
    name: Callable[[int], str],
) -> ElasticJobs | None:
    """Return the jobs of a trace that are elastic on a cluster; None if there are none.

    A job is elastic if the cluster has a model for its label and the job's batch size and duration
    are known. `numbers` returns a column of the trace (NaN = unknown); `name` returns the id of a
    job.

    Raises
    ------
    TraceError
        If the trace gives a job an impossible batch size or range of GPUs.
    """
    import numpy as np

    from gangline import _core

    if cluster.elastic is None or not keys.labels:
        return None
    known = np.asarray([label in cluster.elastic.models for label in keys.labels], np.bool_)
    has_model = keys.model < len(keys.labels)
    rows = has_model & (keys.batch_size > 0)
    rows[rows] &= known[keys.model[rows]]
    duration = numbers("duration_s")
    if duration is None:
        return None
    rows &= ~np.isnan(duration)
    if not rows.any():
        return None
    zeros = np.zeros(len(rows))
    limits_given = [numbers("min_gpus"), numbers("max_gpus")]
    least, most = (zeros if found is None else np.nan_to_num(found) for found in limits_given)
    memory = numbers("memory_gb")
    room = _room(cluster, keys, zeros if memory is None else np.nan_to_num(memory))
    columns = (keys.model, keys.gpus, keys.batch_size, least, most, room)
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)[rows]
    distinct, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    largest = max(block.gpus for block in cluster.servers)
    classes: list[ElasticClass] = []
    for kind, at in zip(distinct.tolist(), np.flatnonzero(rows)[first].tolist(), strict=True):
        model = cluster.elastic.models[keys.labels[kind[0]]]
        classes.append(_class(model, kind, largest, name(at)))
    of_job = np.full(len(rows), -1, np.int64)
    of_job[rows] = inverse.reshape(-1)
    core = _core.Elastic(
        of_job.astype(np.uint32),  # -1 is the core's u32::MAX: no class
        np.asarray([each.fit for each in classes], np.float64),
        np.asarray([each.limits for each in classes], np.uint32),
        [each.phases for each in classes],
        [each.noise_batches for each in classes],
    )
    rate = np.ones(len(rows))
    rate[rows] = core.mean_rates()[of_job[rows]]
    return ElasticJobs(core, rows, rate, of_job, tuple(classes))


def _room(
    cluster: ClusterKeys, keys: JobKeys, memory_gb: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the largest number of samples per GPU and pass that every GPU's memory can hold."""
    import numpy as np

    fixed = 0.5 if cluster.sharing is None else cluster.sharing.memory_fixed_fraction
    sizes = np.asarray(sorted(cluster.memories_gb()))
    place = np.minimum(np.searchsorted(sizes, memory_gb), len(sizes) - 1)
    room = np.full(len(memory_gb), float(_BATCH_MAX))
    counts = (memory_gb > 0.0) & (fixed < 1.0)
    spare = sizes[place[counts]] / memory_gb[counts] - fixed
    samples = np.floor(keys.batch_size[counts] * (spare / (1.0 - fixed)) * (1.0 - _ROUNDING))
    # the batch in the trace always counts as fitting; otherwise, the job could never run
    room[counts] = np.clip(samples, keys.batch_size[counts], _BATCH_MAX)
    return room


def _class(model: ElasticModel, kind: list[int], largest: int, job: str) -> ElasticClass:
    """Return the properties that all jobs of a class share."""
    _, gpus, batch, least, most, room = kind
    if gpus * batch < model.init_batch:
        raise TraceError.at(
            f"job {job}",
            None,
            "batch_size",
            batch,
            f"a total of at least {model.init_batch} samples",
        )
    default = max(1, min(model.max_gpus, model.max_batch // model.min_pass_batch))
    if least and most and least > most:
        raise TraceError.at(f"job {job}", None, "min_gpus", least, f"at most max_gpus = {most}")
    # the gang size in the trace is always possible
    low, high = min(least or 1, gpus), max(most or default, gpus)
    most_samples = min(model.max_pass_batch, room)
    scale = model.noise_scale
    samples = _NOISE_BATCHES * model.init_batch if scale is None else scale
    return ElasticClass(
        fit=tuple(getattr(model, name) for name in FIT),
        init_batch=model.init_batch,
        max_batch=model.max_batch,
        min_pass_batch=min(model.min_pass_batch, most_samples),
        max_pass_batch=most_samples,
        min_gpus=low,
        max_gpus=high,
        gpus=gpus,
        batch_size=batch,
        fits_server=int(gpus <= largest),
        phases=tuple(model.noise or ((0.0, 1.0, samples / model.init_batch),)),
        noise_batches=model.noise_batches or (),
    )
