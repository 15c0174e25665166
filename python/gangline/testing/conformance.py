"""`check_policy`: runs a policy in many worlds and checks each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.testing.safety import LawBroken, check_result
from gangline.testing.worlds import small_worlds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangline.policies.choice import PolicyLike
    from gangline.runs.result import Result
    from gangline.testing.worlds import WorldLike

__all__ = ["check_policy"]

EVENTS_MAX = 100_000
"""After so many events a run of `check_policy` counts as endless. Ours: our own policies need less
than a hundredth of it on `small_worlds`."""


def check_policy(
    policy: PolicyLike,
    worlds: Iterable[WorldLike] | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    max_share: int | None = None,
    work_conserving: bool = False,
    max_events: int | None = None,
) -> None:
    """Run a policy on small worlds and check each run; run it twice to see that it repeats.

    An answer that breaks a rule of the engine, and a run that stalls, raise what `simulate` raises.

    Parameters
    ----------
    policy : policy
        A name, a configuration or a gangline.Policy object.
    worlds : iterable of (cluster, trace, run options), optional
        Default: `small_worlds()`.
    params : mapping, optional
        Parameters of a policy given by name.
    max_share : int, optional
        Most jobs on one GPU; default what the policy declares.
    work_conserving : bool
        Whether the policy claims that no job waits while enough GPUs of a type that it may use are
        free.
    max_events : int, optional
        A run with jobs left after so many events counts as endless, unless its options set a limit
        of their own; default `EVENTS_MAX` on `small_worlds()`, none on worlds of yours.

    Raises
    ------
    LawBroken
        With the names of the broken laws.
    PlanError
        If a plan breaks a rule of the engine.
    StalledError
        If jobs wait and nothing will start them.

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
    >>> gl.testing.check_policy(Sleepy(), max_events=1000)
    Traceback (most recent call last):
    gangline.testing.LawBroken: ends: after 1000 events 40 of 40 jobs are not done: job-0, ...
    """
    from gangline.runs.execution import Worlds

    if worlds is None:
        worlds, max_events = small_worlds(), max_events or EVENTS_MAX
    for cluster, trace, options in worlds:
        here = Worlds()
        is_ours = options.get("until_s") is None and options.get("max_events") is None
        options = {**options, "segments": True, "check_invariants": True}
        options |= {"max_events": max_events} if is_ours else {}
        run = here.take(cluster, trace, policy, params=params, **options)
        results: list[Result] = []
        for _ in range(2):
            results.append(here.run(run))
            if is_ours and results[-1].spec["outcome"] == "limit":
                raise LawBroken([("ends", _unfinished(results[-1]))])
        check_result(
            results[0],
            run.spec.build_cluster(),
            here.trace(run.spec.trace),
            max_share=max_share,
            work_conserving=work_conserving,
        )
        same = results[0].log_hash == results[1].log_hash
        if not same or not results[0].jobs.equals(results[1].jobs):
            raise LawBroken([("repeats", "two runs with one seed differ")])


def _unfinished(result: Result) -> str:
    """Say which jobs a run that was stopped had not done."""
    jobs, status = result.jobs["job_id"].to_pylist(), result.jobs["status"].to_pylist()
    left = [job for job, how in zip(jobs, status, strict=True) if how == "unfinished"]
    names = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
    many = f"{len(left)} of {len(jobs)} jobs are not done"
    return f"after {result.summary['events']} events {many}: {names}"
