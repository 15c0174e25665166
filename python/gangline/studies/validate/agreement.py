"""Measures how well simulated times agree with observed ones from any source.

Errors are relative: simulated / observed - 1. Errors cancel out in a mean, so the errors of single
jobs, the rank correlation, and the bias of each group are computed as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.studies.validate.ranks import Pair, error_of, spearman

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from gangline._support.builtin_values import Json
    from gangline.studies.validate.waits import Waits

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = [
    "MEASURES",
    "Agreement",
    "Departure",
    "Group",
    "Pair",
    "agreement",
    "departure",
    "pairs_alike",
    "spearman",
]

MEASURES: Mapping[str, str] = {
    "jct_mean_s": "mean JCT",
    "jct_p50_s": "median JCT",
    "jct_p99_s": "p99 JCT",
    "makespan_s": "makespan",
    "gpu_seconds": "GPU time held",
}
"""The metrics over all jobs, with their names."""

_QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Group:
    """The bias in a group of jobs.

    Attributes
    ----------
    name : str
        Name of the group.
    jobs : int
        Number of jobs in the group.
    observed_s, simulated_s : float
        Observed and simulated mean JCT in seconds.
    error : float or None
        Relative error of the mean JCT.
    median_error : float or None
        Median of the signed relative errors over the jobs in the group.
    """

    name: str
    jobs: int
    observed_s: float
    simulated_s: float
    error: float | None
    median_error: float | None


@dataclass(frozen=True)
class Departure:
    """The first job whose simulated start differs from its observed start.

    Attributes
    ----------
    job_id : str
        Id of the job.
    arrival_s, observed_start_s, simulated_start_s : float
        Instants in seconds on the clock of the trace.
    gpus : int
        Size of the gang.
    differing, known : int
        Number of jobs whose two starts differ by more than the tolerance, and number of jobs whose
        start was observed.
    median_s : float
        Median difference between the two starts, over all jobs whose start was observed.
    """

    job_id: str
    arrival_s: float
    gpus: int
    observed_start_s: float
    simulated_start_s: float
    differing: int
    known: int
    median_s: float


@dataclass(frozen=True)
class Agreement:
    """The agreement between simulated and observed times of jobs.

    Attributes
    ----------
    measures : dict of str to Pair
        Metrics, keyed as in `MEASURES`; `gpu_seconds` exists only if run times were observed.
    errors : dict of str to float
        Relative errors of single jobs: `abs_p50`, `abs_p90` and `abs_p99` are quantiles of their
        absolute values, and `p10` to `p99` are quantiles of the signed errors. Empty if every job
        took no time.
    rank_correlation : float or None
        Spearman's rank correlation of the JCTs; None if all JCTs are equal.
    groups : dict of str to list of Group
        Bias of each group, for the groupings `size`, `length` and `model`, as far as these are
        known.
    departure : Departure or None
        The first start that differs; None if no start differs by more than the tolerance, or if no
        start was observed.
    starts_known : int
        Number of jobs whose start was observed.
    waits : Waits or None
        Agreement of the waits; None if no wait was observed.
    """

    measures: dict[str, Pair]
    errors: dict[str, float]
    rank_correlation: float | None
    groups: dict[str, list[Group]]
    departure: Departure | None
    starts_known: int
    waits: Waits | None = None

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "measures": {
                name: {**asdict(pair), "error": pair.error} for name, pair in self.measures.items()
            },
            "errors": dict(self.errors),
            "rank_correlation": self.rank_correlation,
            "groups": {name: [asdict(one) for one in of] for name, of in self.groups.items()},
            "departure": None if self.departure is None else asdict(self.departure),
            "starts_known": self.starts_known,
            "waits": None if self.waits is None else self.waits.to_dict(),
        }


def agreement(
    arrival_s: Floats,
    observed_s: Floats,
    simulated_s: Floats,
    *,
    gpu_seconds: tuple[Floats, Floats] | None = None,
    groups: Mapping[str, tuple[Ints, Sequence[str]]] | None = None,
    first: Departure | None = None,
    starts_known: int = 0,
    waits: Waits | None = None,
) -> Agreement:
    """Compare observed and simulated JCTs.

    Parameters
    ----------
    arrival_s, observed_s, simulated_s : float64 arrays
        Times of the jobs in seconds, one row per job; none may be unknown.
    gpu_seconds : pair of float64 arrays, optional
        GPU-seconds held by each job, observed and simulated; NaN if unknown.
    groups : mapping of str to (int64 array, names), optional
        For each kind of group, the index of each job's group, and the names of the groups.
    first : Departure, optional
        The first start that differs, if any.
    starts_known : int
        Number of jobs whose start was observed.
    waits : Waits, optional
        Agreement of the waits.

    Examples
    --------
    >>> import numpy as np
    >>> found = agreement(np.zeros(2), np.array([10.0, 20.0]), np.array([11.0, 22.0]))
    >>> round(found.measures["jct_mean_s"].error, 3), round(found.errors["abs_p50"], 3)
    (0.1, 0.1)
    """
    both = (observed_s, simulated_s)
    measures = {
        "jct_mean_s": Pair(*(float(one.mean()) for one in both)),
        "jct_p50_s": Pair(*(float(np.quantile(one, 0.5)) for one in both)),
        "jct_p99_s": Pair(*(float(np.quantile(one, 0.99)) for one in both)),
        "makespan_s": Pair(*(float((arrival_s + one).max() - arrival_s.min()) for one in both)),
    }
    if gpu_seconds is not None:
        known = ~np.isnan(gpu_seconds[0])
        if known.any():
            measures["gpu_seconds"] = Pair(*(float(one[known].sum()) for one in gpu_seconds))
    relative = _errors(observed_s, simulated_s)
    return Agreement(
        measures,
        _quantiles(relative[~np.isnan(relative)]),
        spearman(observed_s, simulated_s),
        {
            kind: _groups(*of, observed_s, simulated_s, relative)
            for kind, of in (groups or {}).items()
        },
        first,
        starts_known,
        waits,
    )


def departure(
    identifiers: Sequence[str],
    arrival_s: Floats,
    gpus: Floats,
    observed_start_s: Floats,
    simulated_start_s: Floats,
    tolerance_s: float,
) -> Departure | None:
    """Return the earliest job whose two starts differ by more than the tolerance.

    Jobs are ordered by the earlier of their observed and their simulated start. Ties are broken by
    the order in the trace. An unknown observed start is NaN.
    """
    known = ~np.isnan(observed_start_s)
    apart = np.abs(simulated_start_s - observed_start_s)
    differs = known & (apart > tolerance_s)
    if not differs.any():
        return None
    earlier = np.where(differs, np.fmin(observed_start_s, simulated_start_s), np.inf)
    at = int(np.argmin(earlier))
    return Departure(
        job_id=str(identifiers[at]),
        arrival_s=float(arrival_s[at]),
        gpus=int(gpus[at]),
        observed_start_s=float(observed_start_s[at]),
        simulated_start_s=float(simulated_start_s[at]),
        differing=int(differs.sum()),
        known=int(known.sum()),
        median_s=float(np.median(apart[known])),
    )


def pairs_alike(observed: Sequence[float], simulated: Sequence[float]) -> tuple[int, int]:
    """Return the number of pairs with the same order in both lists, and the number of all pairs.

    Examples
    --------
    >>> pairs_alike([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    (2, 3)
    """
    alike = pairs = 0
    for i in range(len(observed)):
        for j in range(i):
            pairs += 1
            signs = [np.sign(of[i] - of[j]) for of in (observed, simulated)]
            alike += int(signs[0] == signs[1])
    return alike, pairs


def _errors(observed: Floats, simulated: Floats) -> Floats:
    """Return relative errors; NaN where the observed time is 0 or unknown."""
    base = np.where(observed > 0.0, observed, np.nan)
    return simulated / base - 1.0


def _quantiles(relative: Floats) -> dict[str, float]:
    if not len(relative):
        return {}
    size = np.abs(relative)
    return {
        **{f"abs_{name}": float(np.quantile(size, _QUANTILES[name])) for name in
           ("p50", "p90", "p99")},
        **{name: float(np.quantile(relative, share)) for name, share in _QUANTILES.items()},
    }  # fmt: skip


def _groups(
    codes: Ints, names: Sequence[str], observed: Floats, simulated: Floats, relative: Floats
) -> list[Group]:
    found = []
    for code, name in enumerate(names):
        inside = codes == code
        if not inside.any():
            continue
        means = float(observed[inside].mean()), float(simulated[inside].mean())
        mine = relative[inside]
        mine = mine[~np.isnan(mine)]
        median = float(np.median(mine)) if len(mine) else None
        found.append(Group(name, int(inside.sum()), *means, error_of(means[1], means[0]), median))
    return found
