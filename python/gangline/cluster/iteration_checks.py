"""Checks the rules of the `[[iter_time]]` blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gangline.files.decode import fail

if TYPE_CHECKING:
    from gangline.cluster.schema import ClusterKeys, ThroughputRow

__all__ = ["check_iter_time"]

_KEYS = {
    "alpha_beta": ("a_c", "b_c", "a_m", "b_m", "bytes", "delta"),
    "pollux": ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "gamma"),
    "table": (),
}


def check_iter_time(cluster: ClusterKeys, path: str | None) -> None:
    """Reject keys that belong to another kind, unknown GPU types, and duplicate entries.

    If an entry determines the locality of its model, the model must have no other source of
    locality.
    """
    types = [gpu.name for gpu in cluster.gpu_types]
    network = cluster.network
    placed = set() if network is None else {*(network.models or ()), *(network.levels or ())}
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
                fail(
                    path, f"{place}.{key}", f"nothing, as kind {row.kind!r} has no such key", value
                )
            if key in needed and value is None:
                fail(path, f"{place}.{key}", "a number", "nothing")
            if value is not None and not math.isfinite(value):
                fail(path, f"{place}.{key}", "a finite number", value)
        if row.kind == "pollux" and row.model in placed:
            expected = "a model not in [network], because the fit contains the cost of distance"
            fail(path, f"{place}.model", expected, row.model)
        if row.kind == "table":
            if not any(entry.model == row.model for entry in _measured(cluster)):
                fail(path, f"{place}.model", "a model with batch sizes in [throughput]", row.model)
            continue
        if not (row.a_c or 0.0) + (row.b_c or 0.0) > 0.0:
            fail(path, f"{place}.a_c", "a pass that takes time: a_c or b_c above 0", row.a_c)


def _measured(cluster: ClusterKeys) -> list[ThroughputRow]:
    """Return the rates of consolidated gangs that were measured at a known batch size."""
    rows = () if cluster.throughput is None else cluster.throughput.rows or ()
    return [row for row in rows if row.batch_size is not None and row.placement == "server"]
