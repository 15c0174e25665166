"""Iteration times of models, and what smaller batches per pass cost by them.

Without an entry of `[[iter_time]]`, each pass beyond the first costs `sharing.acc_cost`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gangline._decode import fail
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.cluster import Cluster
    from gangline.cluster_schema import ClusterKeys, IterTime
    from gangline.rates import JobKeys

__all__ = ["check_iter_time", "inflations"]

_NO_CLASS = 2**32 - 1
_VALUES_MAX = 2**24  # 128 MB
_KEYS = {
    "alpha_beta": ("a_c", "b_c", "a_m", "b_m", "bytes", "delta"),
    "pollux": ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma"),
}


def check_iter_time(cluster: ClusterKeys, path: str | None) -> None:
    """Refuse entries with keys of another kind, of unknown types, or twice for one model."""
    types = [gpu.name for gpu in cluster.gpu_types]
    seen: set[tuple[str, str | None]] = set()
    for i, row in enumerate(cluster.iter_time or ()):
        place = f"iter_time[{i}]"
        if row.gpu_type is not None and row.gpu_type not in types:
            fail(path, f"{place}.gpu_type", f"one of {', '.join(types)}", row.gpu_type)
        if (row.model, row.gpu_type) in seen:
            where = "" if row.gpu_type is None else f" on {row.gpu_type}"
            fail(path, f"{place}.model", f"one entry per model{where}", row.model)
        seen.add((row.model, row.gpu_type))
        needed = _KEYS[row.kind]
        for key in sorted({*_KEYS["alpha_beta"], *_KEYS["pollux"]}):
            value = getattr(row, key)
            if key not in needed and value is not None:
                fail(path, f"{place}.{key}", f"no such key of kind {row.kind!r}", value)
            if key in needed and value is None:
                fail(path, f"{place}.{key}", "a number", "nothing")
            if value is not None and not math.isfinite(value):
                fail(path, f"{place}.{key}", "a finite number", value)
        if not (row.a_c or 0.0) + (row.b_c or 0.0) > 0.0:
            fail(path, f"{place}.a_c", "a pass that takes time: a_c or b_c above 0", row.a_c)


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
