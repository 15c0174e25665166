"""Defines the facts about the life of a job as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gangline.runs.explain.reasons import Reason
    from gangline.runs.explain.rows import Rows
    from gangline.runs.explain.stretches import Stretch

__all__ = ["Facts", "Passing", "RunPart", "WaitPart"]


class Passing(NamedTuple):
    """A job that arrived later and got GPUs while the explained job waited.

    Attributes
    ----------
    job_id : str
    time_s : float
        The time at which the job got GPUs.
    gpus : int
        Number of GPUs that the job got.
    outranks : bool
        Whether the number of free GPUs would have sufficed at that instant if no job that arrived
        later had held any. GPUs that a later job shares with an earlier job do not count as free.
    """

    job_id: str
    time_s: float
    gpus: int
    outranks: bool


class WaitPart(NamedTuple):
    """An interval without GPUs.

    Attributes
    ----------
    start_s, end_s : float
    stretches : sequence of Stretch
        The parts of the interval; a new part begins when the reason changes.
    passed_by : sequence of Passing
        Jobs that arrived later and got GPUs first.
    holders, later_holders : int
        The number of jobs that held GPUs when the wait began, and how many of them arrived later.
    enough_s : float
        The first instant of the wait at which the number of free GPUs would have sufficed if no job
        that arrived later had held any; NaN if there was none.
    """

    start_s: float
    end_s: float
    stretches: Rows[Stretch]
    passed_by: Rows[Passing]
    holders: int
    later_holders: int
    enough_s: float


@dataclass(frozen=True)
class RunPart:
    """An interval in which a job holds the same GPUs.

    Attributes
    ----------
    start_s, end_s : float
    gpus : int
    servers : list of int
    tier : str
        "server", "rack" or "network".
    co_runners : list of str
        Jobs that shared at least one of the GPUs.
    end : str
        The end reason, as in the segments table.
    taken_by : dict of str to int
        Jobs that got at least one of these GPUs when this job lost them, with the number that each
        got.
    copies : int
        Number of copies of the job that were training.
    """

    start_s: float
    end_s: float
    gpus: int
    servers: list[int]
    tier: str
    co_runners: list[str]
    end: str
    taken_by: dict[str, int]
    copies: int = 1


@dataclass(frozen=True)
class Facts:
    """The facts in an explanation; `Explanation` describes each attribute."""

    job_id: str
    policy: str
    gpus: int
    gpus_min: int
    status: str
    arrival_s: float
    finish_s: float
    waits: list[WaitPart] = field(default_factory=list)
    runs: list[RunPart] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    placement: str = ""
    rule: str = ""
    round_s: float = math.nan
    is_shared: bool = False
    note: str = ""
    never: str = ""
    arrival_date: str = ""
    reasons: dict[str, Reason] = field(default_factory=dict, repr=False)

    @property
    def wait_s(self) -> float:
        """The total time in seconds without GPUs."""
        return math.fsum(wait.end_s - wait.start_s for wait in self.waits)

    @property
    def run_s(self) -> float:
        """The total time in seconds with GPUs."""
        return math.fsum(run.end_s - run.start_s for run in self.runs)
