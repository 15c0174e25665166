"""Contains the numbers behind the advice: its rows, the best row, and its tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gangline._support import formatting
from gangline._support.formatting import brief, short_names, times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangline._support.builtin_values import Json
    from gangline._support.statistics import Estimate
    from gangline.cluster.description import Cluster
    from gangline.runs.offered_load import OfferedLoad
    from gangline.studies.advise.calibration import Calibration
    from gangline.studies.advise.contenders import Contender
    from gangline.studies.advise.options import Option
    from gangline.studies.advise.parts import Parts
    from gangline.trace.jobs.table import Trace

__all__ = ["Claim", "Facts", "signed"]

_USERS_SHOWN = 15
_TIE, _TIE_S = 0.01, 60.0  # our own choice: means within 1 % or a minute count as equal
_WORDS = {"account": "account", "vc": "queue"}


@dataclass(frozen=True)
class Claim:
    """One or more sentences, and the command that shows their numbers.

    Attributes
    ----------
    kind : str
        Subject: load, calibration, scheduler, plain, users, fewer, more, larger or needs.
    text : str
        The sentences.
    command : str
        A `gangline` command, to be run in the parent of the folder where the advice is saved.
    """

    kind: str
    text: str
    command: str


@dataclass(frozen=True)
class Facts:
    """The numbers that `Advice` puts into words.

    Attributes
    ----------
    cluster : Cluster
        The current servers.
    trace : Trace
        The log.
    contenders : tuple of Contender
        The policies that could be run, and what each of them needs.
    calibration : Calibration
        The degree to which each policy resembles the log.
    base : str
        The policy that all rows are compared with, on the current servers.
    options : tuple of Option
        One row for each policy and number of servers.
    parts : Parts
        The parts of the log, from which the intervals are computed.
    user_column : str
        The column of the log that names users; "" if there is none.
    prices : dict of str to float
        Price of a GPU-hour, keyed by GPU type.
    load : OfferedLoad or None
        Load that the jobs offer on the current servers.
    failed : dict of str to str
        Policies that could not be run, each with the reason.
    run_options : dict
        Options of the runs.
    clusters : dict of int to Cluster
        Clusters, keyed by number of servers.
    """

    cluster: Cluster
    trace: Trace
    contenders: tuple[Contender, ...]
    calibration: Calibration
    base: str
    options: tuple[Option, ...]
    parts: Parts
    user_column: str
    prices: dict[str, float]
    load: OfferedLoad | None
    failed: dict[str, str]
    run_options: dict[str, Json]
    clusters: Mapping[int, Cluster]

    def __getitem__(self, key: tuple[str, int]) -> Option:
        """Return the row for a policy label and a number of servers."""
        for one in self.options:
            if (one.policy, one.servers) == key:
                return one
        raise KeyError(key)

    def __iter__(self) -> Iterator[Option]:
        """Yield the rows of the advice."""
        return iter(self.options)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.options)

    @property
    def servers(self) -> int:
        """The current number of servers."""
        return self.cluster.servers_total

    @property
    def here(self) -> Option:
        """The row for the base on the current servers."""
        return self[self.base, self.servers]

    @cached_property
    def best(self) -> Option:
        """The row with the shortest mean wait on the current servers; see `least` for ties."""
        return self.least({one.label for one in self.contenders})

    @cached_property
    def names(self) -> dict[str, str]:
        """Short names of policies with long labels."""
        return short_names([one.label for one in self.contenders])

    def name(self, label: str) -> str:
        """Return the name of a policy in sentences and tables."""
        return self.names.get(label, label)

    def covers_others(self, one: Option) -> bool:
        """Return whether the means of a row cover different jobs than the means of the base."""
        return (one.jobs, one.cannot_run) != (self.here.jobs, self.here.cannot_run)

    def least(self, labels: set[str]) -> Option:
        """Return the row with the shortest mean wait on the current servers, for these policies.

        Policies that leave out more jobs than the base does are ignored. Means are compared over
        the jobs that finish under both policies. If the base is among the policies and its mean
        wait is longer by at most a minute or 1 %, its row is returned.
        """
        rows = [one for one in self.options if one.servers == self.servers]
        rows = [one for one in rows if one.policy in labels]
        rows = [one for one in rows if one.cannot_run <= self.here.cannot_run] or rows
        top = min(rows, key=self._change_s)
        base = self.here
        tie = max(_TIE * base.wait.mean, _TIE_S)
        is_tie = base.policy in labels and -self._change_s(top) <= tie
        return base if is_tie else top

    def _change_s(self, one: Option) -> float:
        """Return the mean wait minus that of the base, over jobs that finish in both, if any."""
        change_s = one.difference.mean
        return one.wait.mean - self.here.wait.mean if math.isnan(change_s) else change_s

    def titles(self) -> list[str]:
        """Return the titles of `cells`."""
        found = ["policy", "servers", "GPUs"]
        found += ["per month"] * self._has_costs
        found += ["load", "mean wait", "95 % interval", "p50", "p99", "mean JCT", "change"]
        return [*found, *([f"{self.word}s who gain", "lose"] if self.user_column else [])]

    def cells(self) -> list[list[str]]:
        """Return a row per policy and size; `change` is the mean wait minus that of the base."""
        rows = []
        for one in self.options:
            row = [self.name(one.policy), str(one.servers), f"{one.gpus:,}"]
            row += [] if one.cost_per_month is None else [f"{one.cost_per_month:,.0f}"]
            row.append(times(one.load) + " (over)" * one.is_over)
            row += [brief(one.wait.mean) + "*" * self.covers_others(one), _ends(one.wait)]
            row += [brief(one.wait_p50_s), brief(one.wait_p99_s), brief(one.jct_mean_s)]
            row.append("" if self._is_here(one) else _change(one.difference))
            if self.user_column:
                row += [str(len(one.gain)), str(len(one.lose))]
            rows.append(row)
        return rows

    def user_titles(self) -> list[str]:
        """Return the titles of `user_cells`."""
        base, best = self.name(self.base), self.name(self.best.policy)
        return [self.user_column, "jobs", f"mean wait, {base}", best, "change"]

    def marks(self) -> str:
        """Return the meanings of the marks in `cells`."""
        said = (
            "(over): the jobs ask for more than the GPUs can do; ?: the sign of the change is "
            "uncertain"
        )
        if any(self.covers_others(one) for one in self.options):
            said += (
                "; *: the means of the row do not cover the same jobs as those of "
                f"{self.name(self.base)} on {formatting.plural(self.servers, 'server')}, and the "
                "change covers the jobs that finish in both"
            )
        return said

    def likeness_cells(self) -> list[list[str]]:
        """Return the rows of the calibration."""
        return [[self.name(label), *rest] for label, *rest in self.calibration.cells()]

    def user_title(self) -> str:
        """Return the heading of the table of users."""
        shown = min(len(self.best.users), _USERS_SHOWN)
        of_all = f"{shown} of {len(self.best.users)} {self.word}s"
        return (
            f"Mean wait of the {of_all} whose waits change most under {self.name(self.best.policy)}"
        )

    def user_cells(self) -> list[list[str]]:
        """Return a row for each user whom the best scheduler affects most."""
        affected = sorted(self.best.users, key=lambda one: -abs(one.change_s * one.jobs))
        return [
            [
                one.name,
                formatting.count(one.jobs),
                brief(one.base_s),
                brief(one.wait_s),
                signed(one.change_s),
            ]
            for one in affected[:_USERS_SHOWN]
        ]

    @property
    def _has_costs(self) -> bool:
        return self.here.cost_per_month is not None

    @property
    def word(self) -> str:
        """The noun for a value in the user column, such as "user"."""
        return _WORDS.get(self.user_column, "user")

    def _is_here(self, one: Option) -> bool:
        return (one.policy, one.servers) == (self.base, self.servers)


def _ends(one: Estimate) -> str:
    return "" if one.low is None or one.high is None else f"{brief(one.low)} to {brief(one.high)}"


def signed(seconds: float) -> str:
    """Return a change in time with its sign.

    Examples
    --------
    >>> signed(-5400.0), signed(90.0)
    ('-1h30m', '+1m30s')
    """
    return brief(seconds) if seconds <= 0.0 else f"+{brief(seconds)}"


def _change(one: Estimate) -> str:
    """Return a change as text; a `?` marks a change whose sign is uncertain."""
    clear = one.low is not None and one.high is not None and (one.low > 0.0 or one.high < 0.0)
    clear = clear or (one.mean == 0.0 and not one.low and not one.high)
    return signed(one.mean) + " ?" * (not clear)
