"""Presents forecasts of start times as values, as a table, in sentences and as HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support.builtin_values import finite
from gangline._support.formatting import duration, listed, plural
from gangline.runs.explain.reasons import TOO_FEW
from gangline.studies.eta.estimates import LEAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangline._support.builtin_values import Json

__all__ = ["Cause", "Eta", "Forecast", "Spread"]

_DIGITS = 9  # 40 (1 - 0.8) / 2 is 4, but slightly less in floats
_LATE_S = 3600.0  # our own choice: schedulers start a job that fits within minutes
NOW = "starts now"
NEVER = "too large"
NO_TYPE = "unknown type"
_MEANINGS = {
    NEVER: "it can never run: the cluster has too few GPUs of a type that it can use, or a limit "
    "or quota allows fewer",
    NO_TYPE: "it can never run: the cluster has no GPU type with exactly this name",
    TOO_FEW.name: "too few GPUs are free, and the policy gives no other reason",
    "not asked": "the policy has not been asked yet",
    "round": "the policy gives out GPUs at round boundaries",
}


class Cause(NamedTuple):
    """The reason why a job does not start now, in the words of `gangline explain`.

    Attributes
    ----------
    name : str
        Name of the policy's reason, such as "behind"; empty if the job starts now.
    job_id : str, optional
        The other job that the reason refers to.
    until_in_s : float
        Time in seconds until the instant that the reason refers to; NaN if there is none.
    words : str, optional
        The reason in a Python policy's own words, or the unknown GPU types.
    """

    name: str
    job_id: str | None = None
    until_in_s: float = math.nan
    words: str | None = None

    def __str__(self) -> str:
        if not self.name:
            return NOW
        until = f"in {duration(self.until_in_s)}" if math.isfinite(self.until_in_s) else ""
        if self.words:
            words = self.words.replace("{job}", f"job {self.job_id}")
            return words.replace("{until}", until)
        job = f" job {self.job_id}" if self.job_id is not None else ""
        return f"{self.name}{job}" + (f", {until}" if until else "")


@dataclass(frozen=True)
class Forecast:
    """The forecast of when a job starts.

    Attributes
    ----------
    job_id : str
    user : str, optional
    gpus : int
    waited_s : float
        Waiting time so far.
    start_in_s : float
        Time in seconds until the start: the median over the runs; infinite if the job never starts.
    from_in_s, to_in_s : float
        The ends of the interval, in seconds from now.
    cause : Cause
        The reason why the job does not start now, in a run where every job takes its median run
        time.
    """

    job_id: str
    user: str | None
    gpus: int
    waited_s: float
    start_in_s: float
    from_in_s: float
    to_in_s: float
    cause: Cause


class Spread(NamedTuple):
    """The data and settings on which the intervals are based.

    Attributes
    ----------
    level : float
        Probability with which an interval should contain the start. It does so only if the run
        times are drawn from the right distribution.
    source : str
        "history", "error" or "none".
    draws : int
        Number of runs.
    jobs : int
        Number of finished jobs in the queue and the history.
    error : float, optional
        The standard deviation of log(run time / limit).
    arrivals : bool
        Whether more jobs arrive later in the runs.
    default_limit_s : float, optional
        Time limit of the jobs without one.
    unlimited : int
        Number of running and waiting jobs without a time limit.
    """

    level: float
    source: str
    draws: int
    jobs: int
    error: float | None
    arrivals: bool = False
    default_limit_s: float | None = None
    unlimited: int = 0


@dataclass(frozen=True)
class Eta:
    """The forecasts for the jobs in a queue, from `gangline.eta`.

    Attributes
    ----------
    policy : str
        Label of the policy.
    at_s : float
        The instant of the forecast, on the clock of the queue.
    epoch : str
        Date at which this clock is 0; empty if unknown.
    spread : Spread
        The data and settings on which the intervals are based.
    forecasts : list of Forecast
        One forecast per job, in the order of arrival.
    running : int
        Number of jobs that are running at that instant.
    unplaced : int
        Number of running jobs that found no GPUs before the waiting jobs; the maximum over the
        runs.
    outlived : int
        Number of jobs that have already run longer than every finished job they are compared with.
    later : int
        Number of jobs that arrive after the instant of the forecast, and are omitted.
    unknown_types : list of str
        GPU types that jobs request but the cluster lacks.
    unknown_names : list of str
        Sentences about names in the `slurm` tables that match no job.
    notes : dict of str to int
        Notes on omitted rows and values of the queue, as for a trace.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> queue = {
    ...     "job_id": ["a", "b"], "arrival_s": [0, 30], "gpus": [4, 2],
    ...     "trace_status": ["running", "pending"], "observed_start_s": [0, None],
    ...     "time_limit_s": [100, 50],
    ... }
    >>> found = gl.eta("1x4xV100", pa.table(queue), at=40)
    >>> found["b"].start_in_s, str(found["b"].cause), len(found)
    (60.0, 'no place', 1)
    """

    policy: str
    at_s: float
    epoch: str
    spread: Spread
    forecasts: list[Forecast]
    running: int
    unplaced: int
    outlived: int
    later: int
    unknown_types: list[str]
    unknown_names: list[str]
    notes: dict[str, int]

    def __len__(self) -> int:
        return len(self.forecasts)

    def __iter__(self) -> Iterator[Forecast]:
        return iter(self.forecasts)

    def __getitem__(self, job_id: str) -> Forecast:
        """Return the forecast of a job; raise a KeyError if the job is not waiting."""
        for one in self.forecasts:
            if one.job_id == job_id:
                return one
        raise KeyError(job_id)

    @staticmethod
    def _is_late(one: Forecast) -> bool:
        """Return whether a job starts now although its scheduler has let it wait for long."""
        return not one.cause.name and one.waited_s > _LATE_S

    def titles(self) -> list[str]:
        """Return the titles of the table."""
        ends = [] if self.spread.draws == 1 else [f"{100.0 * self.spread.level:g} % from", "to"]
        return ["job", "user", "GPUs", "waited", "starts in", *ends, "why not now"]

    def cells(self) -> list[list[str]]:
        """Return the cells of the table, one row per job."""
        lines = []
        for one in self.forecasts:
            ends = [] if self.spread.draws == 1 else [one.from_in_s, one.to_in_s]
            times = [_in(time_s) for time_s in (one.start_in_s, *ends)]
            known = [one.job_id, one.user or "", f"{one.gpus:,}", duration(one.waited_s)]
            lines.append([*known, *times, str(one.cause)])
        return lines

    def title(self) -> str:
        """Return the title of the table."""
        now = sum(not one.cause.name for one in self.forecasts)
        waiting = f"{plural(len(self), 'job')} {'waits' if len(self) == 1 else 'wait'}"
        return (
            f"Under {self.policy}: {waiting}, {self.running:,} run; {now:,} of the waiting jobs "
            f"{'starts' if now == 1 else 'start'} now"
        )

    def sentences(self) -> list[str]:
        """Return sentences about the origin of the times, the assumptions and the reasons."""
        spread = self.spread
        facts = {
            "jobs": plural(spread.jobs, "finished job"),
            "error": "" if spread.error is None else f"{spread.error:g}",
        }
        found = [_SOURCES[spread.source].format(**facts)]
        if spread.unlimited and spread.default_limit_s is not None:
            whose = plural(spread.unlimited, "job")
            found.append(
                f"A limit of {duration(spread.default_limit_s)} is assumed for {whose} without one."
            )
        if spread.source == "history" and spread.jobs < LEAST:
            found.append(f"With fewer than {LEAST} finished jobs, the intervals are too narrow.")
        if spread.draws > 1:
            edge = edge_of(spread.draws, spread.level)
            which = (
                "earliest to the latest"
                if edge == 1
                else f"{_ordinal(edge)} earliest to the {_ordinal(edge)} latest"
            )
            found.append(f"Intervals go from the {which} start of {spread.draws:,} runs.")
        found.append(_ARRIVALS[spread.arrivals])
        if self.unknown_types:
            names = listed([f"`{name}`" for name in self.unknown_types])
            found.append(f"Jobs may use {names} GPUs, which the cluster lacks.")
        found += [f"{said}." for said in self.unknown_names]
        if self.unplaced:
            found.append(
                f"Up to {plural(self.unplaced, 'running job')} found no GPUs on this cluster when "
                "placed in the order of their starts, and waited in these runs. Check that this is "
                "the cluster on which they run."
            )
        if late := [one.waited_s for one in self.forecasts if self._is_late(one)]:
            waited = duration(max(late))
            said = f"1 job starts now in this forecast, but has already waited for {waited}."
            if len(late) > 1:
                said = (
                    f"{len(late):,} jobs start now in this forecast, but have already waited for "
                    f"more than {duration(_LATE_S)}, one of them for {waited}."
                )
            found.append(
                f"{said} A scheduler starts a job that fits within minutes, so its servers or "
                "settings probably differ from those given here. Check for held or dependent "
                "jobs, drained servers, and limits of partitions, accounts and users."
            )
        if self.outlived:
            verb = "has" if self.outlived == 1 else "have"
            found.append(
                f"{plural(self.outlived, 'running job')} {verb} already run longer than any "
                "estimate: each is assumed to be half done."
            )
        if self.later:
            found.append(
                f"{plural(self.later, 'job')} of the queue arrived after this instant and "
                f"{'is' if self.later == 1 else 'are'} left out."
            )
        means = meanings()
        causes = dict.fromkeys(one.cause.name for one in self.forecasts if one.cause.name)
        found += [f"{name}: {means[name]}." for name in causes if name in means]
        return found

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, with None for an infinite time and for unknown values."""
        data: dict[str, Any] = {**vars(self), "text": self.sentences()}
        data["spread"] = self.spread._asdict()
        data["forecasts"] = [
            {**vars(one), "cause": {**one.cause._asdict(), "text": str(one.cause)}}
            for one in self.forecasts
        ]
        return finite(data)  # type: ignore[no-any-return]

    def __str__(self) -> str:
        lines = [self.titles(), *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(
                cell.ljust(width) if i in (0, 1, len(line) - 1) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title(), *text, *self.sentences()])

    def _repr_html_(self) -> str:
        from gangline._support.html import table, text

        notes = "".join(f"<p>{text(sentence)}</p>" for sentence in self.sentences())
        return table(self.titles(), self.cells(), caption=self.title()) + notes


_SOURCES = {
    "history": "Run times are drawn from those of {jobs}.",
    "error": "Run times differ from the limits by a log-normal factor, sigma {error}.",
    "none": "Every job is assumed to run until its limit: no history and no error were given.",
}
_ARRIVALS = {
    False: "Jobs that arrive later are left out; some policies would start them first.",
    True: "Jobs also arrive later: each run draws them from the log in blocks.",
}


def _ordinal(number: int) -> str:
    """Return an ordinal: 2nd, 3rd, 4th, 11th, ..."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if number % 100 in (11, 12, 13) else ends.get(number % 10, "th")
    return f"{number:,}{end}"


def edge_of(draws: int, level: float) -> int:
    """Return the rank, counted from either end, of the draws that bound an interval.

    All orders of the draws and the true value are equally likely. So with k = (draws + 1) (1 -
    level) / 2, the true value lies before the k-th draw, or after the k-th draw from the end, with
    probability 1 - level.

    Examples
    --------
    >>> edge_of(39, 0.8), edge_of(100, 0.8), edge_of(8, 0.8)
    (4, 10, 0)
    """
    return int(round((draws + 1) * (1.0 - level) / 2.0, _DIGITS))


def _in(time_s: float) -> str:
    if math.isinf(time_s):
        return "never"
    return "now" if time_s <= 0.0 else duration(time_s)


def meanings() -> dict[str, str]:
    """Return the meaning of each reason, keyed by name: reasons from policies and the tables."""
    from gangline import _core

    declared = (reason for policy in _core.registry() for reason in policy["reasons"])
    found = {reason["name"]: reason["meaning"] for reason in declared}
    return {**found, **{name: words for name, words in _MEANINGS.items() if name not in found}}
