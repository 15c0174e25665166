"""Defines `check_policy`, which runs a policy in many worlds and shows the smallest failure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import plural
from gangline.errors import GanglineError, MissingExtraError, OptionError
from gangline.testing import picture
from gangline.testing.laws import Evidence, laws_of
from gangline.testing.safety import LawBroken, check_result
from gangline.testing.worlds import World, small_worlds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.result import Result
    from gangline.testing.laws import Law
    from gangline.testing.worlds import WorldLike

__all__ = ["Counterexample", "check_policy", "counterexample"]

EVENTS_MAX = 100_000
"""A run of `check_policy` that has not ended after this many events counts as endless. Our own
choice: on `small_worlds`, the built-in policies need less than a hundredth of this number."""

DRAWN_EVENTS_MAX = 5_000
"""The same limit for randomly generated worlds, which have at most 14 jobs."""


def check_policy(
    policy: PolicyLike,
    worlds: int | Iterable[WorldLike] | None = None,
    *,
    laws: Iterable[str | Law] = (),
    params: Mapping[str, object] | None = None,
    max_share: int | None = None,
    max_events: int | None = None,
    seed: int = 0,
) -> None:
    """Run a policy twice in many small worlds; check each run, and that both runs are equal.

    Parameters
    ----------
    policy : policy
        A name, a configuration or a gangline.Policy object.
    worlds : int or iterable of World or of (cluster, trace, run options), optional
        The worlds, or the number of worlds to generate with `strategies.any_worlds`, which needs
        the extra `testing`. By default, `small_worlds()`.
    laws : iterable of str or Law
        Laws that the policy claims to keep, in addition to those that every run must keep: names
        from `LAWS`, or `LAWS[name].within(bound)`.
    params : mapping, optional
        Parameters of a policy that is given by name.
    max_share : int, optional
        Maximum number of jobs on one GPU; by default, the number declared by the policy.
    max_events : int, optional
        A run that still has jobs after this many events counts as endless, unless the world's
        options set a limit. The default is `EVENTS_MAX` in `small_worlds()`, `DRAWN_EVENTS_MAX` in
        generated worlds, and no limit in worlds that you pass.
    seed : int
        Seed of the generated worlds. It gives the same worlds only if the same modules are loaded,
        because hypothesis also uses constants that it finds in modules.

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
    >>> gl.testing.check_policy("fifo", 20, laws=["no-overtaking", "idle"])
    """
    trial = _Trial(policy, laws_of(laws), params, max_share, max_events)
    if isinstance(worlds, int):
        found = _draw(trial, worlds, seed)
        if found is not None:
            raise _noted(found.error, str(found))
        return
    if worlds is None:
        worlds, trial.max_events = small_worlds(), max_events or EVENTS_MAX
    for number, world in enumerate(worlds):
        try:
            trial.check(world)
        except Exception as error:  # noqa: BLE001 - raised again, also of the user's own code
            if isinstance(world, World):
                raise _noted(error, str(trial.found(world, error))) from None
            raise _noted(error, f"in world {number}, counted from 0") from None


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
        The size of the world, and how the policy fails there.
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
) -> Counterexample | None:
    """Generate worlds until a policy fails; return the smallest world with the same failure.

    Parameters
    ----------
    policy, laws, params, max_share, max_events, seed
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
    segments, 0 s: a job of 1 GPU waits; free GPUs of a type it may use: 1
    """
    return _draw(_Trial(policy, laws_of(laws), params, max_share, max_events), worlds, seed)


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
                raise LawBroken([("ends", _unfinished(results[-1]))])
        lab, jobs = here.world(run.spec).cluster, here.trace(run.spec.trace)
        check_result(results[0], lab, jobs, max_share=self.max_share)
        same = results[0].log_hash == results[1].log_hash
        if not same or not results[0].jobs.equals(results[1].jobs):
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
        broken = [(law.name, words) for law in self.laws if (words := law.broken(evidence))]
        if broken:
            raise LawBroken(broken)

    def found(self, world: World, error: Exception) -> Counterexample:
        """Describe a failure for people."""
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
        """Return the field named in the error that the policy raises with one GPU and one job."""
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


def _draw(trial: _Trial, count: int, seed: int) -> Counterexample | None:
    """Generate worlds until the policy fails in one, and make this world as small as possible."""
    from gangline.testing.search import smallest

    if count < 1:
        raise OptionError(f"worlds: expected at least 1, got {count}", field="worlds", value=count)
    trial.max_events = trial.max_events or DRAWN_EVENTS_MAX

    def fails(world: World) -> Exception | None:
        trial.furnish(world)
        try:
            trial.check(world)
        except MissingExtraError:
            raise
        except Exception as error:  # noqa: BLE001 - also of the user's own code
            return error
        return None

    found = smallest(fails, count, seed)
    return None if found is None else trial.found(*found)
