"""Defines the laws that a policy may claim to obey, besides those that every run must obey.

Each law has a name, a description in one sentence, and a function that measures one run. A run
breaks the law if the measured amount exceeds the bound. `LAWS` contains these laws, and `CLAIMS`
says which of them gangline's policies claim.

Examples
--------
>>> import gangline as gl
>>> gl.testing.LAWS["more-capacity"].within(1.5).says
'with one more server the makespan is at most 1.5 times as long as without it'
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import OptionError
from gangline.testing.safety import claims_broken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

__all__ = ["CLAIMS", "LAWS", "Evidence", "Law", "laws_of"]

# tolerance in seconds for the difference between two times that are whole nanoseconds
_SLACK_S = 2e-9
_WAIT_S = 1e-6  # a wait is a difference between longer times; below this, it is a rounding error
_SLACK = 1e-9  # the relative tolerance of sums of times in seconds


class Measured(NamedTuple):
    """The amount that a law limits, as measured in a run."""

    amount: float
    words: str
    """Description of the failure, which is used if the amount exceeds the bound."""


NOTHING = Measured(-math.inf, "")


@dataclass(frozen=True)
class Law:
    """A law that a policy may claim to obey.

    Attributes
    ----------
    name : str
        The name under which `check_policy` knows the law.
    sentence : str
        The requirement in words; `{bound}` stands for the bound.
    measure : callable
        Function from the `Evidence` of a run to an amount and a description.
    bound : float
        The largest amount that is allowed.
    needs_plain : bool
        Whether the law is checked only in plain worlds: one GPU type, every job at rate 1 wherever
        it runs, no overhead, and no outage.
    needs_wait : bool
        Whether the law can be broken only in a run in which a job waits.

    Examples
    --------
    >>> import gangline as gl
    >>> law = gl.testing.LAWS["more-capacity"]
    >>> law.name, law.within(1.5).bound
    ('more-capacity', 1.5)
    """

    name: str
    sentence: str
    measure: Callable[[Evidence], Measured]
    bound: float = 0.0
    needs_plain: bool = False
    needs_wait: bool = True

    @property
    def says(self) -> str:
        """The requirement in words, including the bound."""
        return self.sentence.format(bound=f"{self.bound:g}")

    def within(self, bound: float) -> Law:
        """Return the same law with a different bound.

        Raises
        ------
        OptionError
            If the law has no bound, or the new bound is not a number >= 0.
        """
        if "{bound}" not in self.sentence:
            raise OptionError(f"the law `{self.name}` has no bound", field="bound", value=bound)
        if not 0.0 <= bound < math.inf:
            message = f"{self.name}: bound: expected a number >= 0, got {bound!r}"
            raise OptionError(message, field="bound", value=bound)
        return dataclasses.replace(self, bound=bound)

    def applies(self, evidence: Evidence) -> bool:
        """Return whether the law can be checked in this world."""
        return evidence.is_plain or not self.needs_plain

    def is_tested(self, evidence: Evidence) -> bool:
        """Return whether a run could break the law: it applies, and a job waits if required."""
        return self.applies(evidence) and (evidence.longest_wait_s > 0.0 or not self.needs_wait)

    def broken(self, evidence: Evidence) -> str | None:
        """Return a description of how a run violates the law; None if it does not."""
        if not self.applies(evidence):
            return None
        amount, words = self.measure(evidence)
        return words if amount > self.bound * (1.0 + _SLACK) else None


class Job(NamedTuple):
    """A job that finished."""

    name: str
    gpus: int
    duration_s: float
    arrival_s: float
    start_s: float
    finish_s: float
    run_s: float

    @property
    def wait_s(self) -> float:
        """The time in seconds from a job's arrival to its first start."""
        return self.start_s - self.arrival_s


@dataclass(frozen=True)
class Evidence:
    """A run, and a function to repeat it with changes.

    Attributes
    ----------
    cluster, trace, options
        The arguments of `gangline.simulate` that make up the world.
    result : Result
        The result of the run, with its segments.
    simulate : callable
        Function that runs the same policy in the same world; its arguments replace the cluster, the
        policy, or options of `gangline.simulate`.
    max_share : int or None
        Maximum number of jobs on one GPU.
    """

    cluster: Cluster
    trace: Trace
    options: Mapping[str, Json]
    result: Result
    simulate: Callable[..., Result]
    max_share: int | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Return whether the world is plain, that is, whether only time and GPUs matter."""
        keys = self.cluster.to_dict()
        tables = ("network", "failures", "capacity", "throughput", "iter_time", "elastic")
        columns = ("gpu_types", "memory_gb", "iterations", "min_gpus", "max_gpus")
        costs = ("restart_s", "first_start_s", "restart_by_model", "checkpoint_interval_s")
        return (
            len(keys["gpu_types"]) == 1
            and not any(keys.get(name) for name in (*tables, "runtime"))
            and not any(name in self.trace.columns for name in columns)
            and not any(self.options.get(name) for name in costs)
            and set(self.result.jobs["status"].to_pylist()) <= {"finished"}
        )

    @cached_property
    def longest_wait_s(self) -> float:
        """The longest total time that a job waited, for its first start and after preemptions."""
        return longest_wait_s(self.result)

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs in arrival order; ties keep the order of the trace."""
        columns = ("job_id", "gpus", "arrival_s", "first_start_s", "finish_s", "run_s")
        rows = self.result.jobs.select(list(columns)).to_pylist()
        found = [
            Job(
                name=row["job_id"],
                gpus=row["gpus"],
                duration_s=duration,
                arrival_s=row["arrival_s"],
                start_s=row["first_start_s"],
                finish_s=row["finish_s"],
                run_s=row["run_s"],
            )
            for row, duration in zip(rows, self.trace.numbers("duration_s"), strict=True)
        ]
        return sorted(found, key=lambda job: job.arrival_s)

    @cached_property
    def pace(self) -> dict[str, list[tuple[float, float, float]]]:
        """The intervals in which each job ran, and its rate in each: (start, end, rate)."""
        names = ("job_id", "part", "start_s", "end_s", "rate")
        rows = self.result.segments.select(list(names)).to_pylist()
        found: dict[str, list[tuple[float, float, float]]] = {}
        for row in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
            found.setdefault(row[0], []).append(row[2:])
        return {name: sorted(spans) for name, spans in found.items()}


def longest_wait_s(result: Result) -> float:
    """Return the longest time that a finished job waited; 0 if it is only a rounding error."""
    waits = [wait for wait in result.jobs["wait_s"].to_pylist() if wait is not None]
    return max((wait for wait in waits if wait > _WAIT_S), default=0.0)


def _rule(rule: str) -> Callable[[Evidence], Measured]:
    """Return a function that measures whether a run breaks a rule of the audit."""

    def measure(evidence: Evidence) -> Measured:
        found = claims_broken(
            evidence.result, evidence.cluster, evidence.trace, rule, max_share=evidence.max_share
        )
        return NOTHING if found is None else Measured(1.0, found)

    return measure


def _starvation(evidence: Evidence) -> Measured:
    longest = max((job.run_s for job in evidence.jobs), default=0.0)
    worst = NOTHING
    for at, job in enumerate(evidence.jobs):
        earlier = sum(other.finish_s > job.arrival_s for other in evidence.jobs[:at])
        amount = job.wait_s / ((earlier + 1) * longest) if job.wait_s > _SLACK_S else 0.0
        if amount > worst.amount:
            words = (
                f"job {job.name} waits {job.wait_s:g} s for its first start; {earlier} earlier "
                f"jobs were not done when it arrived, and no job holds GPUs for more than "
                f"{longest:g} s"
            )
            worst = Measured(amount, words)
    return worst


def _ordered(key: Callable[[Job], float], words: str) -> Callable[[Evidence], Measured]:
    """Return a function that measures the order of first starts among gangs of equal size."""

    def measure(evidence: Evidence) -> Measured:
        ranked = sorted(enumerate(evidence.jobs), key=lambda pair: (key(pair[1]), pair[0]))
        for place, (_, first) in enumerate(ranked):
            for _, later in ranked[place + 1 :]:
                overtakes = (
                    later.gpus == first.gpus
                    and first.arrival_s <= later.start_s < first.start_s - _SLACK_S
                )
                if overtakes:
                    what = f"{later.name} starts at {later.start_s:g} s while job {first.name}"
                    return Measured(1.0, f"job {what}, which {words}, waits")
        return NOTHING

    return measure


def _overtaking(evidence: Evidence) -> Measured:
    for at, job in enumerate(evidence.jobs):
        for later in evidence.jobs[at + 1 :]:
            if later.start_s < job.start_s - _SLACK_S:
                what = f"job {later.name} starts at {later.start_s:g} s while job {job.name}"
                return Measured(1.0, f"{what}, which arrived before it, waits")
    return NOTHING


def _more_capacity(evidence: Evidence) -> Measured:
    keys = evidence.cluster.to_dict()
    last = keys["servers"][-1]
    keys["servers"] = [*keys["servers"][:-1], {**last, "count": last["count"] + 1}]
    more = evidence.simulate(cluster=type(evidence.cluster).from_dict(keys))
    before, after = (run.summary["makespan_s"] for run in (evidence.result, more))
    words = f"the makespan is {before:g} s, and {after:g} s with one more server of the last kind"
    return Measured(after / before if before else 0.0, words)


def _against_fifo_skip(evidence: Evidence) -> Measured:
    other = evidence.simulate(policy="fifo-skip")
    mine, theirs = (run.summary["jct_mean_s"] for run in (evidence.result, other))
    return Measured(mine / theirs, f"the mean JCT is {mine:g} s, but {theirs:g} s under fifo-skip")


def _sharing_incentive(evidence: Evidence) -> Measured:
    jobs = evidence.jobs
    gangs = {job.gpus for job in jobs}
    if len(gangs) != 1:
        return NOTHING
    at_once = int(evidence.cluster.server_arrays()["gpus"].sum()) // gangs.pop()
    worst = NOTHING
    for job in jobs:
        alone_s = job.duration_s * max(1.0, len(jobs) / at_once)
        took_s = job.finish_s - job.arrival_s
        if took_s / alone_s > worst.amount and took_s > alone_s + _SLACK_S:
            words = (
                f"job {job.name} takes {took_s:g} s, but would take {alone_s:g} s on an equal "
                f"share of the GPUs (1/{len(jobs)} of them)"
            )
            worst = Measured(took_s / alone_s, words)
    return worst


def _envy(evidence: Evidence) -> Measured:
    worst = NOTHING
    for at, job in enumerate(evidence.jobs):
        for other in evidence.jobs[at + 1 :]:
            if other.gpus != job.gpus:
                continue
            done_s = _done_at(evidence.pace.get(other.name, []), job.duration_s)
            if done_s is None or done_s >= job.finish_s - _SLACK_S:
                continue
            amount = (job.finish_s - job.arrival_s) / (done_s - job.arrival_s)
            if amount > worst.amount:
                words = (
                    f"job {job.name} finishes at {job.finish_s:g} s; with the GPU time of job "
                    f"{other.name}, which asks for as many GPUs and came after it, it would have "
                    f"finished at {done_s:g} s"
                )
                worst = Measured(amount, words)
    return worst


def _done_at(spans: list[tuple[float, float, float]], work: float) -> float | None:
    """Return the time by which a job with these rates has done this work; None if it never does."""
    left = work
    for start, end, rate in spans:
        if rate * (end - start) >= left - _SLACK_S:
            return start + left / rate
        left -= rate * (end - start)
    return None


def _seed(evidence: Evidence) -> Measured:
    keys = evidence.cluster.to_dict()
    noise = ("job_noise", "run_noise", "straggler_noise")
    drawn = [keys.get("failures", {}).get("mtbf_hours")]
    drawn += [keys.get("runtime", {}).get(name) for name in noise]
    if any(drawn):
        return NOTHING  # the seed draws outages and run times
    given: Mapping[str, Any] = evidence.options
    seed = int(given.get("seed", 0))
    other = evidence.simulate(seed=seed + 1)
    if other.segments.equals(evidence.result.segments):
        return NOTHING
    return Measured(1.0, f"the runs with the seeds {seed} and {seed + 1} differ")


_ALL = (
    Law(
        "work-conserving",
        "no job waits while enough GPUs of a type that it may use are free, wherever they are",
        _rule("work-conserving"),
    ),
    Law(
        "idle",
        "no GPU that a waiting gang could use is idle while every waiting gang fits",
        _rule("idle"),
    ),
    Law(
        "bounded-starvation",
        "no job waits longer for its first start than {bound} x (1 + k) x L, if k earlier jobs "
        "were not done when it arrived and no job holds GPUs for longer than L",
        _starvation,
        bound=1.0,
        needs_plain=True,
    ),
    Law(
        "no-overtaking",
        "no job starts before a job that arrived earlier",
        _overtaking,
        needs_plain=True,
    ),
    Law(
        "arrival-order",
        "of two waiting jobs that ask for the same number of GPUs, the first to arrive starts "
        "first",
        _ordered(lambda job: job.arrival_s, "asks for the same number of GPUs and arrived earlier"),
        needs_plain=True,
    ),
    Law(
        "shortest-first",
        "of two waiting jobs that ask for the same number of GPUs, the shorter starts first",
        _ordered(lambda job: job.duration_s, "asks for the same number of GPUs and is not longer"),
        needs_plain=True,
    ),
    Law(
        "more-capacity",
        "with one more server the makespan is at most {bound} times as long as without it",
        _more_capacity,
        bound=2.0,
        needs_plain=True,
        needs_wait=False,
    ),
    Law(
        "as-good-as-fifo-skip",
        "the mean JCT is at most {bound} times that of fifo-skip",
        _against_fifo_skip,
        bound=1.5,
        needs_plain=True,
    ),
    Law(
        "sharing-incentive",
        "no job takes more than {bound} times as long as on an equal share of the GPUs; checked "
        "where all jobs ask for the same number of GPUs",
        _sharing_incentive,
        bound=2.0,
        needs_plain=True,
    ),
    Law(
        "no-envy",
        "no job would have finished more than {bound} times as fast with the GPU time of a later "
        "job that asks for the same number of GPUs",
        _envy,
        bound=1.0,
        needs_plain=True,
    ),
    Law("seed-independence", "the seed of the run changes nothing", _seed, needs_wait=False),
)

LAWS: dict[str, Law] = {law.name: law for law in _ALL}
"""The laws that a policy may claim to obey, keyed by name."""

_SKIPPING = ("fifo-skip", "sjf", "ssf", "srtf", "srsf", "las", "gittins", "themis")
_BY_LENGTH = ("sjf", "sjf-strict", "ssf", "srtf", "srsf")
_BY_ARRIVAL = ("fifo", "yarn-cs")

CLAIMS: dict[str, tuple[str, ...]] = {
    "work-conserving": _SKIPPING,
    "idle": (*_BY_ARRIVAL, "easy", "sjf-strict", *_SKIPPING),
    # the head of the queue waits for the jobs that run when it becomes the head, not for later ones
    "bounded-starvation": (*_BY_ARRIVAL, "easy"),
    "no-overtaking": _BY_ARRIVAL,
    "arrival-order": (*_BY_ARRIVAL, "fifo-skip"),
    "shortest-first": _BY_LENGTH,
    # greedy schedules of gangs are at most twice as long as the best schedule (Graham 1969; Naroska
    # and Schwiegelshohn 2002), which does not become longer with more servers
    "more-capacity": ("fifo-skip", "sjf", "ssf", "srtf", "srsf"),
    "as-good-as-fifo-skip": ("fifo-skip", "srtf", "srsf"),
    # only jobs with less remaining work go first, so each delays a job by at most that job's work
    "sharing-incentive": ("srtf", "srsf"),
    # a later job of the same size goes first only if it is shorter
    "no-envy": (*_BY_ARRIVAL, "fifo-skip", *_BY_LENGTH),
    "seed-independence": (*_BY_ARRIVAL, "easy", "sjf-strict", *_SKIPPING),
}
"""The laws that each policy claims with its default parameters."""


def laws_of(claimed: Iterable[str | Law]) -> list[Law]:
    """Return laws that are given by name or as objects.

    Raises
    ------
    OptionError
        If no law has this name; the message suggests the closest name.
    """
    from gangline._support.formatting import did_you_mean

    found = []
    for law in claimed:
        if isinstance(law, str) and law not in LAWS:
            hint = did_you_mean(law, LAWS)
            raise OptionError(f"laws: no law `{law}`{hint}", field="laws", value=law)
        found.append(LAWS[law] if isinstance(law, str) else law)
    return found
