"""What a job waited for, stretch by stretch: what its policy said, and what was free meanwhile."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gangline.explain.free import SHORT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.explain.free import ForGang
    from gangline.explain.life import Wait

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

__all__ = ["NOT_ASKED", "ROUND", "STATES", "Said", "Stretch", "stretches"]

STATES = ("too few", "apart", "together")
"""Fewer GPUs of each usable type were free than the gang needs; enough, but on more servers than it
needs; enough on so few servers."""

NOT_ASKED = "not asked"
"""The policy has made no decision since the job began to wait."""
ROUND = "round"
"""GPUs have come free since the last decision, and the policy decides at round boundaries."""


class Said(NamedTuple):
    """What the policy said of a job from an instant on.

    Attributes
    ----------
    time_s : float
        Instant of the decision.
    cause : str, optional
        None where the policy does not say more than the tables do.
    job_id : str, optional
        Another job, where the cause is about one.
    gpus : int, optional
        What that job held then, or asks for if it waited; or what the job's queue held.
    tier : str, optional
        The widest placement that it accepted.
    until_s : float
        Until when, where the cause names an instant; else infinite.
    copies : int, optional
        How many copies that job had.
    percent : int, optional
        Utility of the job in percent of the price.
    words : str, optional
        Reason of a policy written in Python, with `{job}` and `{until}` for these two.
    """

    time_s: float
    cause: str | None
    job_id: str | None = None
    gpus: int | None = None
    tier: str | None = None
    until_s: float = math.inf
    copies: int | None = None
    percent: int | None = None
    words: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes a reason another one: what the queue holds, or the price, does not."""
        return (self.cause, self.job_id, self.tier, self.until_s, self.words)


class Stretch(NamedTuple):
    """A part of a wait with one reason.

    Attributes
    ----------
    start_s, end_s : float
        From when to when.
    said : Said, optional
        The policy's reason; None where the run could not be repeated.
    state : str
        "too few", "apart" or "together": see `STATES`.
    least, most : int
        Free GPUs of the usable type with most of them.
    together : int
        Most that were free on as few servers as could hold the gang.
    down : int
        Most GPUs of usable types that were on servers that were away.
    """

    start_s: float
    end_s: float
    said: Said | None
    state: str
    least: int
    most: int
    together: int
    down: int = 0

    @property
    def length_s(self) -> float:
        """Length."""
        return self.end_s - self.start_s

    @property
    def cause(self) -> str | None:
        """The policy's reason in a word."""
        return None if self.said is None else self.said.cause


class Down:
    """GPUs on servers that were away, over time.

    Parameters
    ----------
    outages : list of (gpus, down_s, up_s)
    """

    def __init__(self, outages: list[tuple[int, float, float]]) -> None:
        edges = [(down_s, gpus) for gpus, down_s, _ in outages]
        edges += [(up_s, -gpus) for gpus, _, up_s in outages]
        self._times = np.asarray([-math.inf, *(time_s for time_s, _ in sorted(edges))])
        self._gpus = np.cumsum([0, *(gpus for _, gpus in sorted(edges))])

    def most(self, start_s: Floats, end_s: Floats) -> Ints:
        """Return how many were away at once, at most, in some spans."""
        return _over(np.maximum, self._gpus, *_within(self._times, start_s, end_s))


_TAKEN = (None, "no place", "outranked", "outbid", "search", "copies")
"""Causes that end when enough GPUs come free."""


def stretches(
    waits: list[Wait],
    free: ForGang,
    said: list[Said] | None,
    round_s: float = math.nan,
    down: Down | None = None,
) -> list[list[Stretch]]:
    """Cut each wait where the reason changes.

    Parameters
    ----------
    waits : list of Wait
        The times, in order.
    free : ForGang
        What was free for the gang, from the beginning of the first wait or earlier.
    said : list of Said, optional
        What the policy said, sorted by time; None where that is not known.
    round_s : float
        Length of a round; NaN for a policy without.
    down : Down, optional
        What was away; nothing without.
    """
    begins, ends = (np.asarray(edge) for edge in zip(*waits, strict=True))
    reasons = _reasons(waits, begins, ends, said)
    starts = np.asarray([one.time_s for one in reasons if one is not None]) if said else begins
    changes = free.time_s[1:][free.state[1:] != free.state[:-1]]
    at = np.searchsorted(begins, changes, "right") - 1
    start = np.union1d(starts, changes[(at >= 0) & (changes < ends[at])])
    wait, reason = (np.searchsorted(edge, start, "right") - 1 for edge in (begins, starts))
    first, _ = _within(free.time_s, start, start)
    state = free.state[first]
    code, in_round = _codes(reasons)[reason], np.zeros(len(start), np.bool_)
    if said is not None and math.isfinite(round_s):
        then = free.state[_within(free.time_s, starts, starts)[0]][reason]
        causes = [one and one.cause for one in reasons]
        is_taken = np.asarray([cause in _TAKEN for cause in causes])
        is_place = np.asarray([cause == "no place" for cause in causes])
        # enough of them have come free since the decision, or they have come closer
        is_new = (then == SHORT) | (is_place[reason] & (then != state))
        in_round = is_new & is_taken[reason] & (state != SHORT)
        code[in_round] = -1
    same = (np.diff(wait) == 0) & (np.diff(state) == 0) & (np.diff(code) == 0)
    head = np.append(0, np.flatnonzero(~same) + 1)
    wait, start = wait[head], start[head]
    end = np.minimum(np.append(start[1:], math.inf), ends[wait])
    span = _within(free.time_s, start, end)
    away = np.zeros(len(head), np.int64) if down is None else down.most(start, end)
    found = [
        Stretch(
            *edges,
            Said(one.time_s, ROUND) if is_round and one is not None else one,
            STATES[kind],
            *gpus,
        )
        for one, is_round, edges, kind, gpus in zip(
            [reasons[at] for at in reason[head].tolist()],
            in_round[head].tolist(),
            zip(start.tolist(), end.tolist(), strict=True),
            state[head].tolist(),
            zip(
                _over(np.minimum, free.gpus, *span).tolist(),
                _over(np.maximum, free.gpus, *span).tolist(),
                _over(np.maximum, free.together, *span).tolist(),
                away.tolist(),
                strict=True,
            ),
            strict=True,
        )
    ]
    cuts = np.searchsorted(wait, np.arange(len(waits) + 1)).tolist()
    return [found[low:high] for low, high in pairwise(cuts)]


def _reasons(
    waits: list[Wait], begins: Floats, ends: Floats, said: list[Said] | None
) -> Sequence[Said | None]:
    """Return what the policy said in some waits, and that it was not asked before."""
    if said is None:
        return [None] * len(waits)
    times = np.asarray([one.time_s for one in said])
    cuts = (np.searchsorted(times, edge, "left").tolist() for edge in (begins, ends))
    found: list[Said] = []
    for wait, low, high in zip(waits, *cuts, strict=True):
        until_s = said[low].time_s if low < high else wait.end_s
        if until_s > wait.start_s:
            found.append(Said(wait.start_s, NOT_ASKED, until_s=until_s))
        found += said[low:high]
    return found


def _codes(reasons: Sequence[Said | None]) -> Ints:
    """Return a number of each reason; the same for those that count as one."""
    number: dict[object, int] = {}
    keys = (None if one is None else one.key for one in reasons)
    return np.asarray([number.setdefault(key, len(number)) for key in keys], np.int64)


def _within(time_s: Floats, start_s: Floats, end_s: Floats) -> tuple[Ints, Ints]:
    """Return the first instant that counts in each span, and the first after it."""
    first = np.searchsorted(time_s, start_s, "right") - 1
    return np.maximum(first, 0), np.searchsorted(time_s, end_s, "left")


def _over(most: np.ufunc, values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the least or greatest of the values of each span."""
    edges = np.column_stack([first, last]).ravel()
    return np.asarray(most.reduceat(np.append(values, values[-1:]), edges)[::2], np.int64)
