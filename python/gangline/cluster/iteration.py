"""Computes the costs of smaller batches and of distance from the iteration times of models.

For a model without an `[[iter_time]]` entry, each pass beyond the first costs `sharing.acc_cost`,
and the network determines the cost of distance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.cluster.rates import JobKeys
    from gangline.cluster.schema import IterTime

    Fit: TypeAlias = tuple[float, ...]
    Class: TypeAlias = tuple[int, int, list[Fit | list[float] | None]]
    Inflations: TypeAlias = tuple[npt.NDArray[np.uint32], list[Class], list[int]]

__all__ = ["inflations", "locality_fits"]

_NO_CLASS = 2**32 - 1
_VALUES_MAX = 2**24  # 128 MB


def inflations(cluster: Cluster, jobs: JobKeys) -> Inflations | None:
    """Return the iteration times of each class of jobs for the core; None if there are no entries.

    Parameters
    ----------
    cluster : Cluster
        The cluster, with a checked `iter_time` table.
    jobs : JobKeys
        Model label, batch size and gang size of each job.

    Returns
    -------
    (of_job, classes, largest) or None
        `of_job` is the class of each job. `classes` contains the batch size and gang size of each
        class. For each GPU type, it also contains the seven numbers of a fit, or the ratios of a
        table by number of passes, or None. `largest` is the size of the largest server of each
        type, in GPUs.

    Raises
    ------
    ClusterError
        If the table would not fit in memory.
    """
    if not cluster.iter_time:
        return None
    import numpy as np

    types = [gpu.name for gpu in cluster.gpu_types]
    entries = _entries(cluster)
    rates = _Rates(cluster)
    labels = [*jobs.labels, None]
    code = np.minimum(jobs.model.astype(np.int64), len(jobs.labels))
    keys = np.stack([code, jobs.batch_size.astype(np.int64), jobs.gpus.astype(np.int64)], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    index = np.full(len(distinct), _NO_CLASS, dtype=np.uint32)
    classes: list[Class] = []
    values = 0
    for at, (label, batch, gpus) in enumerate(distinct.tolist()):
        name = labels[label]
        rows = [entries.get((name, kind)) or entries.get((name, None)) for kind in types]
        if name is None or batch == 0 or not any(rows):
            continue
        index[at] = len(classes)
        values += 2 * batch * sum(row is not None for row in rows)
        if values > _VALUES_MAX:
            continue  # the check below rejects the table
        found: list[Fit | list[float] | None] = []
        for row, kind in zip(rows, types, strict=True):
            if row is not None and row.kind == "table":
                found.append(rates.ratios(name, kind, gpus, batch))
            else:
                found.append(None if row is None else _fit(row))
        classes.append((batch, gpus, found))
    if values > _VALUES_MAX:
        message = (
            f"iter_time: batch sizes of {len(distinct)} classes of jobs make {values} iteration "
            f"times; expected at most {_VALUES_MAX}: leave out models with large batches"
        )
        raise ClusterError(message, key="iter_time", value=values)
    largest = [
        max((block.gpus for block in cluster.servers if block.gpu == kind), default=0)
        for kind in types
    ]
    return index[inverse.reshape(-1)], classes, largest


def locality_fits(cluster: Cluster, labels: Sequence[str]) -> list[list[Fit | None]] | None:
    """Return the fits that determine the cost of distance for each model label and GPU type.

    Parameters
    ----------
    cluster : Cluster
        The cluster, with a checked `iter_time` table.
    labels : sequence of str
        Model labels of the trace.

    Returns
    -------
    list of lists or None
        For each model label and GPU type, the seven numbers of a fit, or None where there is no
        fit; None in place of the list if there are no fits.
    """
    types = [gpu.name for gpu in cluster.gpu_types]
    entries = _entries(cluster)

    def fit(label: str, kind: str) -> Fit | None:
        row = entries.get((label, kind)) or entries.get((label, None))
        return _fit(row) if row is not None and row.kind == "pollux" else None

    fits = [[fit(label, kind) for kind in types] for label in labels]
    return fits if any(row is not None for of_label in fits for row in of_label) else None


def _entries(cluster: Cluster) -> dict[tuple[str | None, str | None], IterTime]:
    """Return the entries, keyed by model and GPU type (None = every type)."""
    return {(row.model, row.gpu_type): row for row in cluster.iter_time or ()}


class _Rates:
    """The rates of consolidated gangs in the throughput table, by batch size."""

    def __init__(self, cluster: Cluster) -> None:
        rows = () if cluster.throughput is None else cluster.throughput.rows or ()
        self._known = {
            (row.model, row.gpu_type, row.gpus, row.batch_size): row.iters_per_s
            for row in rows
            if row.batch_size is not None and row.placement == "server" and row.iters_per_s > 0.0
        }

    def ratios(self, model: str, gpu_type: str, gpus: int, batch: int) -> list[float]:
        """Return the times of 1, 2, ... passes divided by that of one pass; NaN if not measured."""
        whole = self._known.get((model, gpu_type, gpus, batch), math.nan)
        found = []
        for passes in range(1, batch + 1):
            size = -(-batch // passes)
            rate = self._known.get((model, gpu_type, gpus, size), math.nan)
            ratio = (passes / rate) / (1.0 / whole)
            found.append(1.0 if ratio < 1.0 else ratio)
        return found


def _fit(row: IterTime) -> Fit:
    """Return a_c, b_c, a_n, b_n, a_r, b_r, gamma; alpha-beta costs do not depend on distance."""
    sync_s: tuple[float | None, ...]
    if row.kind == "alpha_beta":
        once = (row.a_m or 0.0) + (row.b_m or 0.0) * (row.bytes or 0.0)
        sync_s = (once, 0.0, once, 0.0, row.delta)
    else:
        sync_s = (row.a_n, row.b_n, row.a_r, row.b_r, row.gamma)
    return tuple(value or 0.0 for value in (row.a_c, row.b_c, *sync_s))
