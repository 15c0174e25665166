"""Iteration times of models, and what smaller batches per pass cost by them.

Without an entry of `[[iter_time]]`, each pass beyond the first costs `sharing.acc_cost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.cluster import Cluster
    from gangline.cluster_schema import IterTime
    from gangline.rates import JobKeys

__all__ = ["inflations"]

_NO_CLASS = 2**32 - 1
_VALUES_MAX = 2**24  # 128 MB


def inflations(cluster: Cluster, jobs: JobKeys) -> dict[str, Any] | None:
    """Return iteration times by class of jobs as the core wants them; None without entries.

    Parameters
    ----------
    cluster : Cluster
        With its `iter_time` table, checked.
    jobs : JobKeys
        Model label, batch size and gang size of each job.

    Returns
    -------
    dict or None
        `of_job`, shape (jobs,); `classes`: batch size, gang size and, by GPU type, the seven
        numbers of a fit or None; `largest`: GPUs of the largest server of each type.

    Raises
    ------
    ClusterError
        If the table would not fit the memory.
    """
    if not cluster.iter_time:
        return None
    import numpy as np

    types = [gpu.name for gpu in cluster.gpu_types]
    entries = {(row.model, row.gpu_type): row for row in cluster.iter_time}
    labels = [*jobs.labels, None]
    code = np.minimum(jobs.model.astype(np.int64), len(jobs.labels))
    keys = np.stack([code, jobs.batch_size.astype(np.int64), jobs.gpus.astype(np.int64)], axis=1)
    distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
    index = np.full(len(distinct), _NO_CLASS, dtype=np.uint32)
    classes: list[tuple[int, int, list[tuple[float, ...] | None]]] = []
    values = 0
    for at, (label, batch, gpus) in enumerate(distinct.tolist()):
        name = labels[label]
        rows = [entries.get((name, kind)) or entries.get((name, None)) for kind in types]
        if name is None or batch == 0 or not any(rows):
            continue
        index[at] = len(classes)
        classes.append((batch, gpus, [None if row is None else _fit(row) for row in rows]))
        values += 2 * batch * sum(row is not None for row in rows)
    if values > _VALUES_MAX:
        message = (
            f"iter_time: batch sizes of {len(classes)} classes of jobs make {values} iteration "
            f"times; expected at most {_VALUES_MAX}: leave models with large batches out"
        )
        raise ClusterError(message, key="iter_time", value=values)
    largest = [
        max((block.gpus for block in cluster.servers if block.gpu == kind), default=0)
        for kind in types
    ]
    return {"of_job": index[inverse.reshape(-1)], "classes": classes, "largest": largest}


def _fit(row: IterTime) -> tuple[float, ...]:
    """Return a_c, b_c, a_n, b_n, a_r, b_r, gamma: alpha-beta synchronises alike everywhere."""
    sync_s: tuple[float | None, ...]
    if row.kind == "alpha_beta":
        once = (row.a_m or 0.0) + (row.b_m or 0.0) * (row.bytes or 0.0)
        sync_s = (once, 0.0, once, 0.0, row.delta)
    else:
        sync_s = (row.a_n, row.b_n, row.a_r, row.b_r, row.gamma)
    return (row.a_c, row.b_c, *(value or 0.0 for value in sync_s))
