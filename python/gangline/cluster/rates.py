"""Groups jobs into classes with equal rates in a cluster's throughput table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline.cluster.schema import Throughput
    from gangline.cluster.tables.throughput import ThroughputTable

__all__ = ["NO_CLASS", "CopyRates", "JobKeys", "RateClasses", "classify", "rates_of_copies"]

NO_CLASS = 0xFFFF_FFFF
_SHOWN = 5


class JobKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of each job on which its rate depends.

    Attributes
    ----------
    model, batch_size, gpus : uint32 arrays, shape (jobs,)
        Index of the model label (`len(labels)` or more = no label), samples per GPU (0 = unknown),
        and gang size.
    labels : sequence of str
        The model labels.
    """

    model: npt.NDArray[np.uint32]
    batch_size: npt.NDArray[np.uint32]
    gpus: npt.NDArray[np.uint32]
    labels: Sequence[str]


class RateClasses(msgspec.Struct):
    """Jobs grouped by equal rates.

    Attributes
    ----------
    of_job : uint32 array, shape (jobs,)
        Class of each job; 2**32 - 1 if the throughput table has no row for it.
    table : float64 array, shape (classes, types)
        Rate of the whole gang in iterations per second; 0 = cannot run on that type.
    estimated : bool array, shape (jobs,)
        Whether at least one rate of the job was estimated from a different gang size (`missing =
        "nearest"`).
    """

    of_job: npt.NDArray[np.uint32]
    table: npt.NDArray[np.float64]
    estimated: npt.NDArray[np.bool_]


class CopyRates(msgspec.Struct):
    """Rates of gangs of every size, for policies that run copies of a job on other numbers of GPUs.

    Attributes
    ----------
    row : uint32 array, shape (jobs,)
        Index of each job's row in `table`; 2**32 - 1 for a job without a model label.
    table : float64 array, shape (rows, sizes, types)
        Rate of a gang of 1, 2, ... GPUs in iterations per second; 0 = cannot run on that type.
    """

    row: npt.NDArray[np.uint32]
    table: npt.NDArray[np.float64]


def rates_of_copies(
    throughput: Throughput, types: Sequence[str], jobs: JobKeys, largest: int
) -> CopyRates:
    """Return the rates of every distinct (model, batch size) at each gang size up to `largest`."""
    import numpy as np

    from gangline.cluster.tables.throughput import ThroughputTable

    known = ThroughputTable.from_rows(throughput.rows or ())
    key = np.zeros(len(jobs.model), dtype=[("m", "u4"), ("b", "u4")])
    key["m"], key["b"] = jobs.model, jobs.batch_size
    distinct, inverse = np.unique(key, return_inverse=True)
    row = np.full(len(distinct), NO_CLASS, dtype=np.uint32)
    found: list[list[list[float]]] = []
    for i, (code, batch) in enumerate(distinct.tolist()):
        if code >= len(jobs.labels):
            continue
        row[i] = len(found)
        label = jobs.labels[code]
        sizes = [
            _look_up(known, types, (label, gang, batch), throughput)
            for gang in range(1, largest + 1)
        ]
        found.append([[rate or 0.0 for rate in rates] for rates, _ in sizes])
    table = np.asarray(found, dtype=np.float64).reshape(len(found), largest, len(types))
    return CopyRates(row=row[inverse], table=table)


def _look_up(
    known: ThroughputTable,
    types: Sequence[str],
    what: tuple[str, int, int],
    throughput: Throughput,
) -> tuple[list[float | None], bool]:
    """Return the rates by GPU type, and whether they are estimated.

    `what` contains the model, the gang size and the batch size.
    """
    rates = [known.exact(kind, *what) for kind in types]
    if throughput.missing != "nearest" or any(rate is not None for rate in rates):
        return rates, False
    return [known.exact(kind, *what, nearest=True) for kind in types], True


def classify(
    throughput: Throughput,
    types: Sequence[str],
    jobs: JobKeys,
    eligible: npt.NDArray[np.bool_],
) -> RateClasses:
    """Group jobs by their rates, and look up every distinct (model, batch size, gang size) once.

    A row with the job's batch size takes precedence over a row without a batch size. If the table
    has rows of a combination for some types only, the combination cannot run on the other types.
    Only `eligible` jobs get a class.
    """
    import numpy as np

    from gangline.cluster.tables.throughput import ThroughputTable

    known = ThroughputTable.from_rows(throughput.rows or ())
    key = np.zeros(len(jobs.model), dtype=[("m", "u4"), ("b", "u4"), ("g", "u4")])
    key["m"], key["b"], key["g"] = jobs.model, jobs.batch_size, jobs.gpus
    distinct, inverse = np.unique(key, return_inverse=True)
    of_distinct = np.full(len(distinct), NO_CLASS, dtype=np.uint32)
    estimated = np.zeros(len(distinct), dtype=np.bool_)
    found: list[list[float]] = []
    for i, (code, batch, gang) in enumerate(distinct.tolist()):
        if code >= len(jobs.labels):
            continue
        what = (jobs.labels[code], gang, batch)
        rates, estimated[i] = _look_up(known, types, what, throughput)
        if any(rate is not None for rate in rates):
            of_distinct[i] = len(found)
            found.append([rate or 0.0 for rate in rates])
    of_job = np.where(eligible, of_distinct[inverse], np.uint32(NO_CLASS))
    table = np.asarray(found, dtype=np.float64).reshape(len(found), len(types))
    guessed = estimated[inverse] & (of_job != NO_CLASS)
    return RateClasses(of_job=of_job, table=table, estimated=guessed)


def refuse_unknown(
    unknown: npt.NDArray[np.bool_],
    jobs: JobKeys,
    identifiers: Sequence[str],
    types: Sequence[str],
    throughput: Throughput | None,
) -> None:
    """Raise a ClusterError that names the first jobs without a known rate.

    These jobs have iterations but no duration, and no row of the table matches them.
    """
    import numpy as np

    rows = np.flatnonzero(unknown)
    if not len(rows):
        return
    parts = []
    for row in rows[:_SHOWN].tolist():
        code = int(jobs.model[row])
        label = jobs.labels[code] if code < len(jobs.labels) else "(no model)"
        parts.append(f"job {identifiers[row]}: {label} on {int(jobs.gpus[row])} GPUs")
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    if throughput is None or not throughput.rows:
        advice = "give the cluster a [throughput] table"
    elif throughput.missing == "nearest":
        advice = "the table has no rows for their models; add some"
    else:
        advice = 'add rows, or set `missing = "nearest"`'
    raise ClusterError(
        f"throughput: no rate on {', '.join(types)} for {'; '.join(parts)}{more}: these jobs have "
        f"iterations but no duration; {advice}",
        key="throughput",
        value=parts[0],
        expected="a rate for every job without a duration",
    )
