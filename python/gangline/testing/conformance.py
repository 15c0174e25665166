"""Defines `check_policy`, which runs a policy in many worlds and reports the smallest failure."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import duration, plural
from gangline.errors import GanglineError, MissingExtraError, OptionError
from gangline.testing import picture
from gangline.testing.laws import Evidence, laws_of, longest_wait_s
from gangline.testing.safety import LawBroken, check_result
from gangline.testing.worlds import TIME_SCALES, World, small_worlds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.result import Result
    from gangline.testing.laws import Law
    from gangline.testing.worlds import WorldLike

__all__ = ["Counterexample", "Coverage", "check_policy", "counterexample"]

EVENTS_MAX = 100_000
"""A run of `check_policy` that has not ended after this many events counts as endless. Our own
choice: on `small_worlds`, the built-in policies need less than a hundredth of this number."""

DRAWN_EVENTS_MAX = 5_000
"""The corresponding limit for randomly generated worlds, which have at most 14 jobs."""

SHORT_S = 100.0
"""In drawn worlds with jobs of seconds, all arrivals and durations are shorter than this. In longer
worlds a policy with a timer may need more events than the limit, so a run that reaches the limit
does not count as endless."""


def check_policy(
    policy: PolicyLike,
    worlds: int | Iterable[WorldLike] | None = None,
    *,
    laws: Iterable[str | Law] = (),
    params: Mapping[str, object] | None = None,
    max_share: int | None = None,
    max_events: int | None = None,
    seed: int = 0,
    time_scales: Sequence[float] = TIME_SCALES,
) -> Coverage:
    """Run a policy twice in many small worlds; check each run, and that both runs are equal.

    Parameters
    ----------
    policy : policy
        A name, a configuration or a gangline.Policy object.
    worlds : int or iterable of World or of (cluster, trace, run options), optional
        The worlds, or the number of worlds to generate with `strategies.any_worlds`, which needs
        the extra `testing`. By default, `small_worlds()`.
    laws : iterable of str or Law
        Laws that the policy claims to obey, in addition to those that every run must obey: names
        from `LAWS`, or `LAWS[name].within(bound)`.
    params : mapping, optional
        Parameters of a policy that is given by name.
    max_share : int, optional
        Maximum number of jobs on one GPU; by default, the number declared by the policy.
    max_events : int, optional
        A run that still has jobs after this many events counts as endless, unless the world's
        options set a limit. The default is `EVENTS_MAX` in `small_worlds()`, `DRAWN_EVENTS_MAX` in
        generated worlds, and no limit in worlds that you pass. By default, a run that reaches the
        limit in a generated world of minutes or hours counts as unfinished instead, and no claimed
        law is checked in it.
    seed : int
        Seed of the generated worlds. It gives the same worlds only if the same modules are loaded,
        because hypothesis also uses constants that it finds in modules.
    time_scales : sequence of float
        Factors by which the times in generated worlds are multiplied, as for
        `strategies.any_worlds`. A policy whose time constants are measured in days needs a scale of
        days.

    Returns
    -------
    Coverage
        Counts of events in the worlds, because some laws can be broken only if such events occur;
        for example, a law about waits needs a job that waits.

    Warns
    -----
    UserWarning
        If no world could break a claimed law; there is no warning for worlds that you pass.

    Raises
    ------
    LawBroken
        If a law is broken; the error names the broken laws.
    PlanError
        If a plan breaks a rule of the engine.
    StalledError
        If jobs wait and no future event can start them.

    Notes
    -----
    For generated worlds, the error comes from the smallest failing world that was found. A note in
    the error contains a program that repeats it, and a Gantt chart. `counterexample` returns the
    same information as an object. In a `World`, jobs that can never run are dropped unless the
    world's options say otherwise.

    Examples
    --------
    >>> import gangline as gl
    >>> class Sleepy(gl.Policy):
    ...     '''Starts no job, but asks to be woken a second later, again and again.'''
    ...     wake_on = ("arrival", "timer")
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan()
    ...         plan.wake_at(view.now_s + 1.0)
    ...         return plan
    >>> try:
    ...     gl.testing.check_policy(Sleepy(), max_events=1000)
    ... except gl.testing.LawBroken as error:
    ...     print(error)
    ends: after 1000 events 40 of 40 jobs not done: job-0, job-1, job-2, job-3, job-4, ...
    >>> gl.testing.check_policy("fifo", laws=["idle"])
    9 worlds: a job waits in 9 of them, for at most 2 h 4 min; jobs are preempted in 0
    worlds that could break `idle`: 9
    """
    trial = _Trial(policy, laws_of(laws), params, max_share, max_events)
    if isinstance(worlds, int):
        found = _draw(trial, worlds, seed, time_scales)
        if found is not None:
            raise _noted(found.error, str(found))
        return _warned(trial.covered())
    are_ours = worlds is None
    if worlds is None:
        worlds, trial.max_events = small_worlds(), max_events or EVENTS_MAX
    for number, world in enumerate(worlds):
        try:
            trial.check(world)
        except Exception as error:  # noqa: BLE001 - raised again, also of the user's own code
            if isinstance(world, World):
                raise _noted(error, str(trial.found(world, error))) from None
            raise _noted(error, f"in world {number}, counted from 0") from None
    return _warned(trial.covered()) if are_ours else trial.covered()


@dataclass(frozen=True, repr=False)
class Coverage:
    """Counts of events in the worlds in which `check_policy` found no failure.

    Attributes
    ----------
    worlds : int
        Number of worlds.
    waits, preemptions : int
        Number of worlds in which a job waits, and in which a job is preempted.
    longest_wait_s : float
        The longest time that a job waits.
    unfinished : int
        Number of worlds with jobs of minutes or hours in which the run reached the event limit.
    laws : dict of str to int
        For each claimed law, the number of worlds that could break it: the law applies to the world
        and, if only a wait can break the law, a job waits.

    Examples
    --------
    >>> import gangline as gl
    >>> found = gl.testing.check_policy("fifo", laws=["idle"])
    >>> found.preemptions, found.laws
    (0, {'idle': 9})
    """

    worlds: int
    waits: int
    preemptions: int
    longest_wait_s: float
    unfinished: int
    laws: dict[str, int]

    def __repr__(self) -> str:
        most = f", for at most {duration(self.longest_wait_s)}" if self.waits else ""
        worlds = f"{plural(self.worlds, 'world')}: a job waits in {self.waits:,} of them{most}"
        lines = [f"{worlds}; jobs are preempted in {self.preemptions:,}"]
        if self.unfinished:
            lines.append(f"worlds not finished after the limit of events: {self.unfinished:,}")
        lines += [f"worlds that could break `{law}`: {n:,}" for law, n in self.laws.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Counterexample:
    """A small world in which a policy fails.

    Attributes
    ----------
    world : World
        The world in which the policy fails.
    error : Exception
        The exception that the policy raises in this world.
    program : str
        A program of at most ten lines that repeats the failure.
    headline : str
        The size of the world, and the way in which the policy fails there.
    picture : str
        The run up to the failure, as a Gantt chart in plain text.

    Examples
    --------
    >>> import gangline as gl
    >>> found = gl.testing.counterexample("fifo", 200, laws=["work-conserving"])
    >>> print(found.picture)  # doctest: +SKIP
                    0 s       1         2
    server 0 GPU 0  aaaaaaaaaabbbbbbbbbbcccccccccc
    server 1 GPU 0  ..........bbbbbbbbbb..........
    job b waits     ----------
    job c waits     --------------------
    >>> "waits  " in found.picture, "server 0 GPU 0" in found.picture
    (True, True)
    """

    world: World
    error: Exception
    program: str
    headline: str
    picture: str

    def __str__(self) -> str:
        return f"{self.headline}\n\n{self.picture}\n\n{self.program}"


def counterexample(
    policy: PolicyLike,
    worlds: int = 1000,
    *,
    laws: Iterable[str | Law] = (),
    params: Mapping[str, object] | None = None,
    max_share: int | None = None,
    max_events: int | None = None,
    seed: int = 0,
    time_scales: Sequence[float] = TIME_SCALES,
) -> Counterexample | None:
    """Generate worlds until a policy fails; return the smallest world with the same failure.

    Parameters
    ----------
    policy, laws, params, max_share, max_events, seed, time_scales
        As for `check_policy`.
    worlds : int
        Number of worlds to generate.

    Returns
    -------
    Counterexample or None
        The counterexample; None if the policy does not fail in any of the worlds.

    Examples
    --------
    >>> import gangline as gl
    >>> found = gl.testing.counterexample("fifo", 200, laws=["work-conserving"])
    >>> size, rule = found.headline.split(": ", 1)  # here "3 jobs, 2 servers, 2 GPUs"
    >>> print(rule)
    segments, ... s: a job of 1 GPU waits; free GPUs of a type it may use: 1
    """
    trial = _Trial(policy, laws_of(laws), params, max_share, max_events)
    return _draw(trial, worlds, seed, time_scales)


def _warned(found: Coverage) -> Coverage:
    """Warn about laws that could not be broken in any world."""
    for law, count in found.laws.items():
        if count == 0:
            worlds = plural(found.worlds, "world")
            message = f"the law `{law}` had nothing to check: none of {worlds} could break it"
            warnings.warn(message, stacklevel=3)
    return found


def _noted(error: Exception, note: str) -> Exception:
    error.add_note(note)
    return error


@dataclass
class _Trial:
    """Checks a policy in one world after another."""

    policy: PolicyLike
    laws: Sequence[Law]
    params: Mapping[str, object] | None
    max_share: int | None
    max_events: int | None
    may_stop: bool = False
    """Whether a run that reaches the limit counts as unfinished in a world of minutes or hours."""
    seen: list[_Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        from gangline.policies.choice import resolve_policy

        # an object that is not a policy must fail here, not in a world
        resolve_policy(self.policy, self.params)

    def check(self, world: WorldLike) -> None:
        """Run the policy in a world, and raise the error if it fails."""
        from gangline.runs.execution import Worlds

        cluster, trace, given = _parts(world)
        here = Worlds()
        is_ours = given.get("until_s") is None and given.get("max_events") is None
        drops = {"on_infeasible": "drop"} if isinstance(world, World) else {}
        options: dict[str, Any] = {**drops, **given, "segments": True, "check_invariants": True}
        options |= {"max_events": self.max_events} if is_ours else {}
        run = here.take(cluster, trace, self.policy, params=self.params, **options)
        results: list[Result] = []
        for _ in range(2):
            results.append(here.run(run))
            if is_ours and results[-1].spec["outcome"] == "limit":
                if self.may_stop and _is_long(trace):
                    break
                raise LawBroken([("ends", _unfinished(results[-1]))])
        lab, jobs = here.world(run.spec).cluster, here.trace(run.spec.trace)
        self.seen.append(_Seen.of(results[0]))
        check_result(results[0], lab, jobs, max_share=self.max_share)
        same = results[0].log_hash == results[-1].log_hash
        if not same or not results[0].jobs.equals(results[-1].jobs):
            raise LawBroken([("repeats", "two runs with one seed differ")])
        if not self.laws or results[0].spec["outcome"] == "limit":
            return

        def simulate(**changes: Any) -> Result:
            named = {"cluster": lab, "policy": self.policy, "params": self.params}
            if "policy" in changes:
                named["params"] = None
            given: dict[str, Any] = {**named, **options, **changes}
            return here.run(here.take(given.pop("cluster"), jobs, given.pop("policy"), **given))

        evidence = Evidence(lab, jobs, options, results[0], simulate, self.max_share)
        self.seen[-1].tested.extend(law.name for law in self.laws if law.is_tested(evidence))
        broken = [(law.name, words) for law in self.laws if (words := law.broken(evidence))]
        if broken:
            raise LawBroken(broken)

    def covered(self) -> Coverage:
        """Return the counts of events in all worlds."""
        tested = [name for world in self.seen for name in world.tested]
        laws = {law.name: tested.count(law.name) for law in self.laws}
        return Coverage(
            worlds=len(self.seen),
            waits=sum(world.longest_wait_s > 0.0 for world in self.seen),
            preemptions=sum(world.is_preempted for world in self.seen),
            longest_wait_s=max((world.longest_wait_s for world in self.seen), default=0.0),
            unfinished=sum(world.is_unfinished for world in self.seen),
            laws=laws,
        )

    def found(self, world: World, error: Exception) -> Counterexample:
        """Return a counterexample that describes the failure of the policy in a world."""
        result = picture.last_run(world, self.policy, error, self.params)
        waiting = list(vars(error).get("job_ids", [])) if hasattr(error, "waiting") else []
        return Counterexample(
            world,
            error,
            picture.program(
                world,
                self.policy,
                self.laws,
                params=self.params,
                max_share=self.max_share,
                max_events=self.max_events if getattr(error, "law", "") == "ends" else None,
            ),
            picture.headline(world, error),
            picture.gantt(world, result, for_ever=waiting),
        )

    def furnish(self, world: World) -> None:
        """Add to a generated world what the policy requires: slowdown factors or prices."""
        if "sharing" in self._needs:
            world.cluster_keys.setdefault("sharing", {"xi": 1.5})
        if "price_per_hour" in self._needs:
            keys: dict[str, Any] = world.cluster_keys
            for row in keys["gpu_types"]:
                row.setdefault("price_per_hour", 1.0)

    @cached_property
    def _needs(self) -> set[object]:
        """Run the policy in a world of one GPU and one job; return the field named in its error."""
        alone = World(
            {
                "gpu_types": [{"name": "A", "memory_gb": 16}],
                "servers": [{"count": 1, "gpu": "A", "gpus": 1}],
            },
            [{"job_id": "a", "arrival_s": 0.0, "gpus": 1, "duration_s": 1.0}],
        )
        try:
            alone.simulate(self.policy, params=self.params, max_events=100)
        except GanglineError as error:
            return {getattr(error, "field", None)}
        except Exception:  # noqa: BLE001 - an error of the user's code, about which the drawn worlds reveal more
            return set()
        return set()


@dataclass(frozen=True)
class _Seen:
    """The facts about one world that `Coverage` counts."""

    longest_wait_s: float
    is_preempted: bool
    is_unfinished: bool
    tested: list[str]
    """The claimed laws that the policy could have broken in this world."""

    @classmethod
    def of(cls, result: Result) -> _Seen:
        is_preempted = "preempted" in result.segments["end_reason"].to_pylist()
        is_unfinished = result.spec["outcome"] == "limit"
        return cls(longest_wait_s(result), is_preempted, is_unfinished, [])


def _is_long(trace: TraceLike) -> bool:
    """Return whether the times in a generated world are minutes or hours."""
    jobs: Any = trace
    return any(max(jobs.numbers(name)) > SHORT_S for name in ("arrival_s", "duration_s"))


def _parts(world: WorldLike) -> tuple[ClusterLike, TraceLike, Mapping[str, Any]]:
    if isinstance(world, World):
        return world.cluster, world.trace, world.options
    return world


def _unfinished(result: Result) -> str:
    """Return a description of the jobs that a stopped run left unfinished."""
    jobs, status = result.jobs["job_id"].to_pylist(), result.jobs["status"].to_pylist()
    left = [job for job, how in zip(jobs, status, strict=True) if how == "unfinished"]
    names = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
    many = f"{len(left)} of {plural(len(jobs), 'job')} not done"
    return f"after {result.summary['events']} events {many}: {names}"


def _draw(
    trial: _Trial, count: int, seed: int, time_scales: Sequence[float]
) -> Counterexample | None:
    """Generate worlds until the policy fails in one, and make this world as small as possible."""
    from gangline.testing import strategies  # imported first: its error says what to install
    from gangline.testing.search import smallest

    if count < 1:
        raise OptionError(f"worlds: expected at least 1, got {count}", field="worlds", value=count)
    trial.may_stop = trial.max_events is None
    trial.max_events = trial.max_events or DRAWN_EVENTS_MAX
    drawn = strategies.any_worlds(time_scales=time_scales)
    if any(law.needs_plain for law in trial.laws):  # few drawn worlds are plain
        drawn = drawn | strategies.plain_worlds(time_scales=time_scales)

    def fails(world: World) -> Exception | None:
        trial.furnish(world)
        try:
            trial.check(world)
        except MissingExtraError:
            raise
        except Exception as error:  # noqa: BLE001 - also of the user's own code
            return error
        return None

    found = smallest(fails, count, seed, drawn)
    return None if found is None else trial.found(*found)
