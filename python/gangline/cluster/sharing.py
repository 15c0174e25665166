"""Implements the pair rule of SJF-BSBF, which decides whether two jobs should share their GPUs.

`pair` computes how sharing changes the mean completion time of two jobs, and whether they gain. The
policy `sjf-bsbf` uses this function for its decisions.

Examples
--------
>>> from gangline import sharing
>>> sharing.pair(40.0, 100.0, xi_new=2.0, xi_resident=2.0)
Pair(t_con=110.0, t_seq=120.0, threshold=2.0, share=True)
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gangline import _core
from gangline.errors import PolicyError

__all__ = ["Pair", "pair"]


class Pair(NamedTuple):
    """The result of the pair rule for two jobs.

    Attributes
    ----------
    t_con : float
        Mean completion time of the two jobs in seconds from now, if the new job starts at once.
    t_seq : float
        The same mean, if the new job waits until the resident job has ended.
    threshold : float
        The number c such that sharing pays if and only if resident_s > c x new_s. It depends only
        on the slowdown factors and the inflation. With a value of 0 or less, sharing always pays.
    share : bool
        Whether sharing pays. If both means are equal, the new job waits.

    Examples
    --------
    >>> import gangline as gl
    >>> found = gl.sharing.pair(100.0, 100.0, xi_new=1.2, xi_resident=1.2)
    >>> found.share, found.t_con < found.t_seq
    (True, True)
    """

    t_con: float
    t_seq: float
    threshold: float
    share: bool


def pair(
    new_s: float,
    resident_s: float,
    *,
    xi_new: float,
    xi_resident: float,
    inflation: float = 1.0,
) -> Pair:
    """Decide whether a job should share the GPUs of a running job or wait for its end.

    Suppose that gangs and slowdown factors are constant, and that starting a job costs nothing.
    Then the two jobs have the smallest mean completion time if the new job starts either at once or
    when the resident job ends. Starting at any instant between these two is never better.

    Parameters
    ----------
    new_s : float
        Run time of the new job when it runs alone at its full batch size (A), in seconds, finite
        and above 0.
    resident_s : float
        Remaining run time of the resident job when it runs alone (B), in seconds, finite and above
        0.
    xi_new, xi_resident : float
        Slowdown factors while both jobs run: iteration time with the other job divided by iteration
        time alone, finite and above 0. As in a run, a factor below 1 is measurement noise and
        counts as 1.
    inflation : float, default 1.0
        Iteration time of the new job at its sub-batch size divided by its iteration time at full
        batch size (g), finite and at least 1. It applies until the new job ends; if the job waits
        instead, it runs at its full batch size.

    Returns
    -------
    Pair
        Both mean completion times in seconds, the threshold, and whether to share. All values are
        scalars.

    Raises
    ------
    PolicyError
        If a value is outside the ranges above; `field` names the argument.

    Notes
    -----
    Source: the two-job theorem of SJF-BSBF (arXiv 2407.13088), derived again and extended to an
    inflation above 1. The rule assumes that both jobs are on the same GPUs and have no other
    co-runner. The decision compares resident_s with threshold x new_s, which is equivalent to t_con
    < t_seq. If the two sides differ by at most 1e-12 x (new_s + resident_s), they count as equal,
    and the jobs do not share. Cost: O(1).

    Examples
    --------
    >>> pair(100.0, 100.0, xi_new=1.2, xi_resident=1.2).share
    True
    >>> pair(100.0, 100.0, xi_new=1.6, xi_resident=1.6)
    Pair(t_con=160.0, t_seq=150.0, threshold=1.2000000000000002, share=False)

    A short new job gains by sharing with a long resident job, even if both slow down a lot:

    >>> pair(10.0, 1000.0, xi_new=3.0, xi_resident=3.0).share
    True
    """
    return Pair(
        *_core.sharing_pair(
            _number("new_s", new_s, 0.0),
            _number("resident_s", resident_s, 0.0),
            max(_number("xi_new", xi_new, 0.0), 1.0),
            max(_number("xi_resident", xi_resident, 0.0), 1.0),
            _number("inflation", inflation, math.nextafter(1.0, 0.0)),
        )
    )


def _number(field: str, value: float, above: float) -> float:
    """Return a value as a float, after checking that it is finite and within its bound."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > above):
        least = "above 0" if above == 0.0 else "of at least 1"
        message = f"{field}: expected a finite number {least}, got {value!r}"
        raise PolicyError(message, field=field, value=value)
    return number
