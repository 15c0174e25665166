"""Builds the rows of the advice: each scheduler on each number of servers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support.statistics import ANY, range_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from gangline._support.builtin_values import Json
    from gangline._support.statistics import Estimate
    from gangline.runs.by_group import Groups
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.result import Result
    from gangline.studies.advise.parts import Parts

    Floats = npt.NDArray[np.float64]

__all__ = ["Affected", "Option", "Outcome", "Reference", "option", "outcome"]

# Our own choice: users hardly notice if their mean wait changes by less than a minute or 5 %.
_LEAST_S, _LEAST_SHARE = 60.0, 0.05


@dataclass(frozen=True)
class Affected:
    """A user, and the mean waits of the user's jobs under an option and under the base.

    Attributes
    ----------
    name : str
        Name of the user.
    jobs : int
        Number of the user's jobs that finished in both runs.
    base_s, wait_s : float
        Mean waits of these jobs in seconds: under the base on the current servers, and under this
        option.
    """

    name: str
    jobs: int
    base_s: float
    wait_s: float

    @property
    def change_s(self) -> float:
        """Change in the mean wait in seconds; negative if the user gains."""
        return self.wait_s - self.base_s

    @property
    def is_seen(self) -> bool:
        """Return whether the change is more than a minute and more than 5 %."""
        most = max(self.base_s, self.wait_s)
        return abs(self.change_s) > max(_LEAST_S, _LEAST_SHARE * most)

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Option:
    """One scheduler on a given number of servers.

    Attributes
    ----------
    policy : str
        Label of the scheduler.
    servers, gpus : int
        Number of servers, and number of GPUs, of the cluster.
    cost_per_month : float or None
        Cost per month; None without prices.
    load : float or None
        Offered load.
    is_over : bool
        Whether the jobs offer more work than the GPUs can do.
    jobs, cannot_run : int
        Number of jobs that finished, and number of jobs that can never run.
    wait : Estimate
        Mean wait (all time without GPUs), with its confidence interval across the parts of the log.
    wait_p50_s, wait_p99_s, jct_mean_s : float
        Median and 99th percentile of the waits, and the mean JCT.
    preemptions : int
        Number of times that running jobs were stopped.
    difference : Estimate
        Mean wait minus the mean wait under the base on the current servers, over the jobs that
        finished in both runs.
    reasons : dict of str to int
        Reasons why jobs can never run, each with the number of such jobs.
    ran_in_log : bool
        Whether all jobs that can never run have a recorded start in the log.
    users : tuple of Affected
        All users, ordered by how much the total wait of their jobs changes from the base; those who
        gain most come first. Empty if the log names no users.
    """

    policy: str
    servers: int
    gpus: int
    cost_per_month: float | None
    load: float | None
    is_over: bool
    jobs: int
    cannot_run: int
    wait: Estimate
    wait_p50_s: float
    wait_p99_s: float
    jct_mean_s: float
    preemptions: int
    difference: Estimate
    reasons: dict[str, int]
    ran_in_log: bool
    users: tuple[Affected, ...]

    @property
    def gain(self) -> list[Affected]:
        """Users who wait less; those who gain most come first."""
        return [one for one in self.users if one.is_seen and one.change_s < 0.0]

    @property
    def lose(self) -> list[Affected]:
        """Users who wait longer; those who lose most come first."""
        return [one for one in reversed(self.users) if one.is_seen and one.change_s > 0.0]

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            **asdict(self),
            "users": [one.to_dict() for one in self.users],
            "gain": len(self.gain),
            "lose": len(self.lose),
        }


class Outcome(NamedTuple):
    """The numbers kept from a run, and the wait of each job (NaN if it did not finish)."""

    policy: str
    servers: int
    wait_s: Floats
    summary: dict[str, float]
    load: OfferedLoad | None
    reasons: dict[str, int]


class Reference(NamedTuple):
    """The run with which all other runs are compared."""

    base: Outcome
    parts: Parts
    groups: Groups
    has_start: npt.NDArray[np.bool_]


def outcome(result: Result, servers: int) -> Outcome:
    """Return the numbers of a run that the rows need."""
    wait = result.jobs["wait_s"].to_numpy().astype("float64")
    keys = ("wait_mean_s", "jct_mean_s", "preemptions", "finished", "dropped")
    every = dict[str, Any](result.summary)
    summary = {key: float(every[key]) for key in keys}
    reasons = dict(result.spec.get("dropped", {}))
    return Outcome(result.policy, servers, wait, summary, result.offered_load, reasons)


def option(of: Outcome, against: Reference, gpus: int, cost_per_month: float | None) -> Option:
    """Return the row that belongs to a run."""
    import numpy as np

    base, parts, _, has_start = against
    wait, summary = of.wait_s, of.summary
    known = wait[~np.isnan(wait)]
    p50, p99 = np.quantile(known, [0.5, 0.99]).tolist() if len(known) else (np.nan, np.nan)
    users = sorted(_users(of, against), key=lambda one: (one.change_s * one.jobs, one.name))
    return Option(
        policy=of.policy,
        servers=of.servers,
        gpus=gpus,
        cost_per_month=cost_per_month,
        load=None if of.load is None else of.load.load,
        is_over=of.load is not None and of.load.is_over,
        jobs=int(summary["finished"]),
        cannot_run=int(summary["dropped"]),
        wait=parts.mean(wait, range_of("wait_mean_s")),
        wait_p50_s=p50,
        wait_p99_s=p99,
        jct_mean_s=summary["jct_mean_s"],
        preemptions=int(summary["preemptions"]),
        difference=parts.mean(wait - base.wait_s, ANY),
        reasons=of.reasons,
        ran_in_log=bool(has_start[np.isnan(wait)].all()),
        users=tuple(users),
    )


def _users(of: Outcome, against: Reference) -> Iterator[Affected]:
    import numpy as np

    base, _, groups, _ = against
    among = ~np.isnan(of.wait_s) & ~np.isnan(base.wait_s)
    for name, places in groups.split(among):
        means = (float(one[places].mean()) for one in (base.wait_s, of.wait_s))
        yield Affected(name, len(places), *means)
