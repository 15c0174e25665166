"""Computes how long each group of jobs waited, for example the jobs of each user."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from gangline.runs.result import Result
    from gangline.trace.jobs.schema import Column
    from gangline.trace.jobs.table import Trace

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["GROUPS", "Groups", "Waited", "waited"]

GROUPS: tuple[Column, ...] = ("user", "vc", "account", "partition", "qos", "model")
"""Trace columns by which jobs can be grouped."""


@dataclass(frozen=True)
class Waited:
    """The waits of a group of jobs in a run; a job's wait is its total time without GPUs.

    Attributes
    ----------
    name : str
        Name of the group; "" means all jobs.
    jobs : int
        Number of finished jobs in the group.
    gpu_hours : float
        GPU-hours of the group: GPUs multiplied by the time for which they were held, summed over
        its jobs.
    wait_mean_s, wait_p50_s, wait_p99_s : float
        Mean, median and 99th percentile of the waits of these jobs.
    jct_mean_s : float
        Mean JCT of these jobs.
    """

    name: str
    jobs: int
    gpu_hours: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p99_s: float
    jct_mean_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Groups:
    """The jobs of a trace, grouped by the values of one column.

    Attributes
    ----------
    column : str
        Name of the column by which jobs are grouped; "" if there are no groups.
    names : list of str
        The names of the groups.
    codes : int64 array
        For each job, the index of its group in `names`; -1 if the job is in no group.
    """

    column: str
    names: list[str]
    codes: Ints

    @classmethod
    def of(cls, trace: Trace, column: str | None) -> Groups:
        """Return the jobs grouped by a column; without a column, there are no groups.

        Raises
        ------
        OptionError
            If the column is not in `GROUPS`, or if the trace lacks it.
        """
        import numpy as np

        if column is None:
            return cls("", [], np.full(len(trace), -1, dtype=np.int64))
        here = [name for name in GROUPS if name in trace.columns]
        if column not in here:
            known = f"this trace has {', '.join(here)}" if here else "this trace has none"
            message = f"by: expected a column that names groups of jobs, got `{column}`; {known}"
            raise OptionError(message, field="by", value=column)
        labels = trace.column(column)
        codes = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(column, [str(name) for name in labels.dictionary.to_pylist()], codes)

    def split(self, among: npt.NDArray[np.bool_]) -> Iterator[tuple[str, Ints]]:
        """Yield the name of each group, and the indices of its jobs that are marked in `among`."""
        import numpy as np

        places = np.flatnonzero(among & (self.codes >= 0))
        if not len(places):
            return
        places = places[np.argsort(self.codes[places], kind="stable")]
        codes, first = np.unique(self.codes[places], return_index=True)
        for code, inside in zip(codes.tolist(), np.split(places, first[1:]), strict=True):
            yield self.names[code], inside


def waited(result: Result, groups: Groups) -> list[Waited]:
    """Return the waits of a run's jobs: all jobs first, then each group, by decreasing GPU time.

    Only finished jobs in the arrival window of the run are included.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> jobs = {"arrival_s": [0, 0, 0], "gpus": [1, 1, 1], "duration_s": [60, 60, 60]}
    >>> trace = gl.Trace.from_arrow(pa.table({**jobs, "user": ["ana", "ben", "ana"]}))
    >>> result = gl.simulate("1x1xA100", trace, "fifo")
    >>> [(one.name, one.wait_mean_s) for one in waited(result, Groups.of(trace, "user"))]
    [('', 60.0), ('ana', 60.0), ('ben', 60.0)]
    """
    import numpy as np

    from gangline.runs.arrival_window import counted, of_spec

    jobs = result.jobs
    wait, jct, gpu_s, arrival = (
        jobs[name].to_numpy() for name in ("wait_s", "jct_s", "gpu_seconds", "arrival_s")
    )
    among = counted(arrival, of_spec(result.spec)) & ~np.isnan(jct)

    def one(name: str, places: Ints) -> Waited:
        mine = wait[places]
        p50, p99 = np.quantile(mine, [0.5, 0.99]).tolist() if len(mine) else (np.nan, np.nan)
        mean, took = (float(of.mean()) if len(of) else np.nan for of in (mine, jct[places]))
        return Waited(name, len(places), float(gpu_s[places].sum()) / 3600.0, mean, p50, p99, took)

    found = [one(name, places) for name, places in groups.split(among)]
    found.sort(key=lambda group: (-group.gpu_hours, group.name))
    return [one("", np.flatnonzero(among)), *found]
