"""Finds the reason for each part of a wait, from the policy and from the free GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.runs.explain.life import ranges
from gangline.runs.explain.reasons import NOT_ASKED, OF_TABLES, ROUND, STATES, TOO_FEW
from gangline.runs.explain.watched import REASON

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.runs.explain.free import ForGang
    from gangline.runs.explain.reasons import Reason

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Records = npt.NDArray[np.void]

__all__ = ["TIERS", "Down", "Stretch", "stretch_of", "stretches"]

TIERS = ("server", "rack", "network")

_TOO_FEW = STATES.index(TOO_FEW)

_STRETCH = np.dtype(
    [
        *((name, REASON[name]) for name in REASON.names or ()),
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("state", "i8"),  # the index in STATES
        ("gpus_free_min", "i8"),
        ("gpus_free_max", "i8"),
        ("gpus_together_max", "i8"),
        ("gpus_down_max", "i8"),
    ]
)


class Stretch(NamedTuple):
    """A part of a wait during which the reason does not change.

    Attributes
    ----------
    start_s, end_s : float
        Start and end of the stretch.
    state : str
        "too few", "apart" or "together": the name of one of `reasons.STATES`.
    cause : str, optional
        The policy's reason in one word. None if the policy gave no reason beyond the tables, or if
        the run could not be repeated.
    decided_s : float
        Instant of the decision.
    job_id : str, optional
        The other job, if the cause names a job.
    gpus : int, optional
        Number of GPUs that the cause names: those that the other job held at the decision, or asked
        for if it waited; those of the waiting job's queue; or those that a limit allows.
    tier : str, optional
        The widest tier that the job accepted.
    until_s : float
        The instant that the cause names as its end; infinite if it names none.
    copies : int, optional
        Number of copies of the other job.
    percent : int, optional
        Utility of the job as a percentage of the price.
    words : str, optional
        Reason given by a policy written in Python, with the placeholders `{job}` and `{until}`.
    gpus_free_min, gpus_free_max : int
        Minimum and maximum number of free GPUs of the usable type that has the most free GPUs.
    gpus_together_max : int
        Maximum number of free GPUs on the fewest servers that can hold the gang.
    gpus_down_max : int
        Maximum number of GPUs of usable types on servers that were down.
    """

    start_s: float
    end_s: float
    state: str
    cause: str | None
    decided_s: float
    job_id: str | None
    gpus: int | None
    tier: str | None
    until_s: float
    copies: int | None
    percent: int | None
    words: str | None
    gpus_free_min: int
    gpus_free_max: int
    gpus_together_max: int
    gpus_down_max: int

    @property
    def length_s(self) -> float:
        """The duration of the stretch in seconds."""
        return self.end_s - self.start_s


def stretch_of(reasons: Mapping[str, Reason], job_id: str | None, *record: Any) -> Stretch:
    """Return the stretch for a record of type `_STRETCH`; `reasons` maps names to reasons."""
    decided_s, cause, _, gpus, number, until_s, words, start_s, end_s, state, *free = record
    counted = reasons[cause].number
    return Stretch(
        start_s,
        end_s,
        STATES[state].name,
        cause or None,
        decided_s,
        job_id,
        gpus if gpus >= 0 else None,
        TIERS[number] if counted == "tier" else None,
        until_s,
        number if counted == "copies" else None,
        number if counted == "percent" and number >= 0 else None,
        words or None,
        *free,
    )


class Down:
    """The GPUs on servers that were down, over time.

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
        """Return the maximum number of GPUs that were down at the same time in each span."""
        return _over(np.maximum, self._gpus, *_within(self._times, start_s, end_s))


def stretches(
    begin_s: Floats,
    end_s: Floats,
    free: ForGang,
    said: Records | None,
    reasons: Mapping[str, Reason],
    round_s: float,
    down: Down,
) -> Records:
    """Divide waits into stretches wherever the reason or the state of the free GPUs changes.

    Parameters
    ----------
    begin_s, end_s : float array
        The waits, in order.
    free : ForGang
        Free GPUs for the gang, from the beginning of the first wait or from an earlier instant on.
    said : array of REASON, optional
        The reasons of the policy, sorted by time; None if they are unknown.
    reasons : mapping of str to Reason
        The reasons that the policy may have given, by name.
    round_s : float
        Length of a round in seconds; NaN for a policy without rounds.
    down : Down
        Intervals in which servers were unavailable.
    """
    told = _told(begin_s, end_s, said)
    decided_s = told["decided_s"]
    changes = free.time_s[1:][free.state[1:] != free.state[:-1]]
    at = np.searchsorted(begin_s, changes, "right") - 1
    start = np.union1d(decided_s, changes[(at >= 0) & (changes < end_s[at])])
    wait, reason = (np.searchsorted(edge, start, "right") - 1 for edge in (begin_s, decided_s))
    rows = np.empty(len(start), _STRETCH)
    rows[list(REASON.names or ())] = told[reason]
    rows["start_s"] = start
    rows["end_s"] = np.minimum(np.append(start[1:], math.inf), end_s[wait])
    rows["state"] = free.state[_first(free.time_s, start)]
    if said is not None and math.isfinite(round_s):
        _mark_rounds(rows, free, reasons)
    span = _within(free.time_s, start, rows["end_s"])
    rows["gpus_free_min"] = _over(np.minimum, free.gpus, *span)
    rows["gpus_free_max"] = _over(np.maximum, free.gpus, *span)
    rows["gpus_together_max"] = _over(np.maximum, free.together, *span)
    rows["gpus_down_max"] = down.most(start, rows["end_s"])
    return rows


def _told(begin_s: Floats, end_s: Floats, said: Records | None) -> Records:
    """Return the causes during these waits, including the time before the policy's first reason."""
    if said is None:
        return _plain(begin_s, "", np.full(len(begin_s), math.inf))
    low, high = (np.searchsorted(said["decided_s"], edge, "left") for edge in (begin_s, end_s))
    first_s = np.where(low < high, np.append(said["decided_s"], math.inf)[low], end_s)
    late = first_s > begin_s
    not_asked = _plain(begin_s[late], NOT_ASKED.name, first_s[late])
    both = np.concatenate([not_asked, said[ranges(low, high)]])
    return both[np.argsort(both["decided_s"], kind="stable")]


def _plain(time_s: Floats, cause: str, until_s: Floats) -> Records:
    """Return records of a cause that names no job."""
    rows = np.full(len(time_s), np.array((0.0, cause, -1, -1, -1, 0.0, ""), REASON))
    rows["decided_s"], rows["until_s"] = time_s, until_s
    return rows


def _mark_rounds(rows: Records, free: ForGang, reasons: Mapping[str, Reason]) -> None:
    """Mark stretches in which the job only waits for the next round.

    Since the decision, enough GPUs have come free, or have come free closer together.
    """
    ending = [reason for reason in reasons.values() if reason.ends_when_free]
    of_places = [one.name for one in ending if one.names("free") and one.name not in OF_TABLES]
    then = free.state[_first(free.time_s, rows["decided_s"])]
    is_new = (then == _TOO_FEW) | (np.isin(rows["cause"], of_places) & (then != rows["state"]))
    at = np.flatnonzero(
        is_new & np.isin(rows["cause"], [one.name for one in ending]) & (rows["state"] != _TOO_FEW)
    )
    names = list(REASON.names or ())
    rows[names][at] = _plain(rows["decided_s"][at], ROUND.name, np.full(len(at), math.inf))


def _first(time_s: Floats, start_s: Floats) -> Ints:
    """Return the index of the last instant at or before each start."""
    return np.asarray(np.maximum(np.searchsorted(time_s, start_s, "right") - 1, 0), np.int64)


def _within(time_s: Floats, start_s: Floats, end_s: Floats) -> tuple[Ints, Ints]:
    """For each span, return the range of instants whose values apply to it: first and end index."""
    return _first(time_s, start_s), np.searchsorted(time_s, end_s, "left")


def _over(most: np.ufunc, values: Ints, first: Ints, last: Ints) -> Ints:
    """Return the minimum or maximum of the values in each span."""
    edges = np.column_stack([first, last]).ravel()
    return np.asarray(most.reduceat(np.append(values, values[-1:]), edges)[::2], np.int64)
