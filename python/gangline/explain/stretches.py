"""What a job waited for, stretch by stretch: what its policy said, and what was free meanwhile."""

from __future__ import annotations

import math
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from gangline.explain.free import ForGang
    from gangline.explain.life import Wait

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

    def most(self, start_s: float, end_s: float) -> int:
        """Return how many were away at once, at most."""
        first = int(np.searchsorted(self._times, start_s, "right")) - 1
        return int(self._gpus[first : np.searchsorted(self._times, end_s, "left")].max())


_time = attrgetter("time_s")


def stretches(
    wait: Wait,
    free: ForGang,
    said: list[Said] | None,
    round_s: float = math.nan,
    down: Down | None = None,
) -> list[Stretch]:
    """Cut a wait where the reason changes.

    Parameters
    ----------
    wait : Wait
        The time.
    free : ForGang
        What was free for the gang, from the beginning of the wait or earlier.
    said : list of Said, optional
        What the policy said, sorted by time; None where that is not known.
    round_s : float
        Length of a round; NaN for a policy without.
    down : Down, optional
        What was away; nothing without.
    """
    reasons: list[tuple[float, Said | None]] = [(wait.start_s, None)]
    if said is not None:
        low, high = (bisect_left(said, at, key=_time) for at in (wait.start_s, wait.end_s))
        inside = said[low:high]
        reasons = [(one.time_s, one) for one in inside]
        if not inside or inside[0].time_s > wait.start_s:
            until_s = inside[0].time_s if inside else wait.end_s
            reasons.insert(0, (wait.start_s, Said(wait.start_s, NOT_ASKED, until_s=until_s)))
    is_in_rounds = math.isfinite(round_s)
    ends = [time_s for time_s, _ in reasons[1:]] + [wait.end_s]
    found: list[Stretch] = []
    for (start_s, reason), end_s in zip(reasons, ends, strict=True):
        first = max(int(np.searchsorted(free.time_s, start_s, "right")) - 1, 0)
        last = int(np.searchsorted(free.time_s, end_s, "left"))
        state, gpus = free.state[first:last], free.gpus[first:last]
        begins = np.append(0, np.flatnonzero(state[1:] != state[:-1]) + 1)
        at = [start_s, *free.time_s[first + begins[1:]].tolist(), end_s]
        rows = zip(
            at[:-1],
            at[1:],
            [STATES[one] for one in state[begins]],
            np.minimum.reduceat(gpus, begins).tolist(),
            np.maximum.reduceat(gpus, begins).tolist(),
            np.maximum.reduceat(free.together[first:last], begins).tolist(),
            strict=True,
        )
        for begin, end, name, least, most, together in rows:
            here, away = reason, 0 if down is None else down.most(begin, end)
            if is_in_rounds and reason is not None and name != "too few":
                here = _in_round(reason, free, name)
            _add(found, Stretch(begin, end, here, name, least, most, together, away))
    return found


_TAKEN = (None, "no place", "outranked", "outbid", "search", "copies")
"""Causes that end when enough GPUs come free."""


def _in_round(reason: Said, free: ForGang, state: str) -> Said:
    """Return the reason while enough GPUs are free, of a policy that decides in rounds."""
    at = int(np.searchsorted(free.time_s, reason.time_s, "right")) - 1
    then = STATES[free.state[at]]
    # enough of them have come free since, or they have come closer
    is_new = then == "too few" or (reason.cause == "no place" and then != state)
    return Said(reason.time_s, ROUND) if is_new and reason.cause in _TAKEN else reason


def _add(found: list[Stretch], new: Stretch) -> None:
    last = found[-1] if found else None
    if last is None or last.state != new.state or not _is_same(last.said, new.said):
        found.append(new)
        return
    found[-1] = last._replace(
        end_s=new.end_s,
        least=min(last.least, new.least),
        most=max(last.most, new.most),
        together=max(last.together, new.together),
        down=max(last.down, new.down),
    )


def _is_same(one: Said | None, other: Said | None) -> bool:
    return one is other or (one is not None and other is not None and one.key == other.key)
