"""Rate tables: native throughput files, and classes of jobs with equal rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gangline._decode import fail
from gangline.cluster_schema import ThroughputRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

__all__ = ["RateClasses", "read_rows"]

NO_CLASS = 0xFFFF_FFFF


def read_rows(path: Path) -> tuple[ThroughputRow, ...]:
    """Read a native throughput table, Parquet or CSV.

    Columns: gpu_type, model, gpus, iters_per_s, and optionally batch_size, placement.
    """
    import pyarrow as pa

    try:
        if path.suffix == ".csv":
            import pyarrow.csv as pa_csv

            table = pa_csv.read_csv(path)
        else:
            import pyarrow.parquet as pq

            table = pq.read_table(path)
    except FileNotFoundError:
        fail(None, "throughput.table", "a file that exists", str(path))
    except pa.ArrowInvalid as error:
        fail(str(path), "throughput.table", "a native table (Parquet or CSV)", str(error))
    rows = []
    for i, row in enumerate(table.to_pylist()):
        given = {key: value for key, value in row.items() if value not in (None, "")}
        try:
            rows.append(msgspec.convert(given, ThroughputRow, strict=False))
        except msgspec.ValidationError as error:
            fail(str(path), f"row {i + 1}", "a throughput row", str(error))
    return tuple(rows)


class RateClasses(msgspec.Struct):
    """Jobs grouped by equal rates.

    Attributes
    ----------
    of_job : uint32 array, shape (jobs,)
        Class of each job; 2**32 - 1 where the table has no row for it.
    table : float64 array, shape (classes, types)
        Iterations per second of the whole gang; 0 = cannot run there.
    """

    of_job: npt.NDArray[np.uint32]
    table: npt.NDArray[np.float64]


def classify(
    rows: Sequence[ThroughputRow],
    types: Sequence[str],
    labels: Sequence[str],
    model: npt.NDArray[np.uint32],
    batch_size: npt.NDArray[np.uint32],
    gpus: npt.NDArray[np.uint32],
    eligible: npt.NDArray[np.bool_],
) -> RateClasses:
    """Look every distinct (model, batch size, gang size) up once.

    A row with the job's batch size comes before the row without one. `batch_size` 0 = unknown.
    """
    import numpy as np

    index = {
        (row.gpu_type, row.model, row.batch_size or 0, row.gpus): row.iters_per_s
        for row in rows
        if row.placement == "server"
    }
    key = np.zeros(len(model), dtype=[("m", "u4"), ("b", "u4"), ("g", "u4")])
    key["m"], key["b"], key["g"] = model, batch_size, gpus
    distinct, inverse = np.unique(key, return_inverse=True)
    of_distinct = np.full(len(distinct), NO_CLASS, dtype=np.uint32)
    found: list[list[float]] = []
    for i, (code, batch, gang) in enumerate(distinct.tolist()):
        if code >= len(labels):
            continue
        rates = [
            index.get((kind, labels[code], batch, gang), index.get((kind, labels[code], 0, gang)))
            for kind in types
        ]
        if any(rate is not None for rate in rates):
            of_distinct[i] = len(found)
            found.append([rate or 0.0 for rate in rates])
    of_job = np.where(eligible, of_distinct[inverse], np.uint32(NO_CLASS))
    table = np.asarray(found, dtype=np.float64).reshape(len(found), len(types))
    return RateClasses(of_job=of_job, table=table)
