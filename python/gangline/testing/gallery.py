"""Defines deliberately incorrect policies; a guide shows what `check_policy` reports for them.

Examples
--------
>>> import gangline as gl
>>> from gangline.testing import gallery
>>> print(gl.testing.counterexample(gallery.Forgetful(), 100).headline)
2 jobs, 1 server, 1 GPU: job b waits for ever
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.policies.protocol import Plan, Policy

if TYPE_CHECKING:
    from gangline.policies.protocol import Changes, View

__all__ = ["BREAKS", "Sound"]


class Sound(Policy):
    """Backfills in arrival order and breaks no law of fifo-skip; base class of the other policies.

    `order` sorts the waiting jobs, `may_start` can prevent a job's start, and `is_done` can end a
    decision early.
    """

    def decide(self, view: View, changes: Changes) -> Plan:  # noqa: ARG002 - for subclasses
        """Start each job that fits, on the first servers of one GPU type with enough free GPUs."""
        plan = Plan()
        free = view.servers.gpus_free.astype(int)
        kinds, jobs = view.servers.gpu_type, view.waiting
        columns = (jobs.job, jobs.gpus, jobs.gpu_types, jobs.arrival_s)
        waiting = list(zip(*(column.tolist() for column in columns), strict=True))
        for job, gpus, allowed, _ in self.order(waiting):
            if self.is_done(view, plan):
                break
            for kind in sorted(set(kinds.tolist())):
                suits = (kinds == kind) & bool(allowed >> kind & 1)
                if free[suits].sum() >= gpus and self.may_start(job, gpus, view):
                    taken: dict[int, int] = {}
                    for server in suits.nonzero()[0].tolist():
                        here = min(int(free[server]), gpus - sum(taken.values()))
                        if here:
                            taken[server] = here
                            free[server] -= here
                    plan.start(job, taken)
                    break
        return plan

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return (job, gpus, allowed types, arrival) of each waiting job, in arrival order."""
        return waiting

    def may_start(self, job: int, gpus: int, view: View) -> bool:  # noqa: ARG002
        """Return whether a job that fits may start."""
        return True

    def is_done(self, view: View, plan: Plan) -> bool:  # noqa: ARG002
        """Return whether this decision starts no further jobs."""
        return False


class Forgetful(Sound):
    """Never starts the second job."""

    def may_start(self, job: int, gpus: int, view: View) -> bool:  # noqa: ARG002
        """Let every job start except the second one."""
        return job != 1


class Moody(Sound):
    """Behaves differently in every second run."""

    def __init__(self) -> None:
        self.runs = 0

    def start(self, view: View) -> None:  # noqa: ARG002
        """Count the runs."""
        self.runs += 1

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the waiting jobs; in every second run, the latest arrival comes first."""
        return waiting[::-1] if self.runs % 2 else waiting


class Sleepless(Sound):
    """Preempts every job once per second, and pays for each restart."""

    wake_on = ("arrival", "completion", "capacity", "timer")

    def decide(self, view: View, changes: Changes) -> Plan:
        """Preempt all jobs in one decision, and start all jobs in the next."""
        if len(view.running("job")):
            plan = Plan()
            for job in view.running("job").tolist():
                plan.preempt(job)
        else:
            plan = super().decide(view, changes)
        plan.wake_at(view.now_s + 0.001)
        return plan


class OneAtATime(Sound):
    """Runs one job at a time."""

    def is_done(self, view: View, plan: Plan) -> bool:
        """Return whether any job is running."""
        return bool(len(view.running("job")) or plan.actions)


class SmallestGangFirst(Sound):
    """Starts the smallest gangs first, so a wide gang waits while smaller ones keep arriving."""

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the waiting jobs; those that request the fewest GPUs come first."""
        return sorted(waiting, key=lambda row: row[1])


class LastComeFirstServed(Sound):
    """Starts the most recently arrived job first."""

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the waiting jobs; the latest arrival comes first."""
        return waiting[::-1]


class LongestFirst(Sound):
    """Starts the longest job first."""

    knowledge = "remaining"
    left: dict[int, float]

    def decide(self, view: View, changes: Changes) -> Plan:
        """Record the remaining run time of each waiting job, and then decide."""
        pairs = zip(view.waiting("job"), view.waiting("remaining_s"), strict=True)
        self.left = {int(job): float(left) for job, left in pairs}
        return super().decide(view, changes)

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the waiting jobs; the longest comes first."""
        return sorted(waiting, key=lambda row: -self.left[row[0]])


class Committee(Sound):
    """Decides only at meetings, which occur every n^2 x 100 s on n servers."""

    wake_on = ("arrival", "timer")
    is_called: bool

    def decide(self, view: View, changes: Changes) -> Plan:
        """Start jobs at a meeting, and schedule the next meeting as long as there are jobs."""
        is_meeting = bool(changes.timers)
        plan = super().decide(view, changes) if is_meeting else Plan()
        if is_meeting or not self.is_called:
            plan.wake_at(view.now_s + 100.0 * len(view.servers("gpus")) ** 2)
        self.is_called = True
        return plan

    def start(self, view: View) -> None:  # noqa: ARG002
        """Begin a run with no meeting scheduled."""
        self.is_called = False


def random_places() -> Any:
    """Return fifo with a placement that picks GPUs at random, using the seed of the run."""
    from gangline.policies.registry import make

    return make("fifo", {"placement": "random"})


BREAKS: dict[str, Any] = {
    "StalledError": Forgetful,
    "repeats": Moody,
    "ends": Sleepless,
    "work-conserving": OneAtATime,
    "idle": OneAtATime,
    "bounded-starvation": SmallestGangFirst,
    "no-overtaking": SmallestGangFirst,
    "arrival-order": LastComeFirstServed,
    "shortest-first": LongestFirst,
    "more-capacity": Committee,
    "as-good-as-fifo-skip": Committee,
    "sharing-incentive": LongestFirst,
    "no-envy": LastComeFirstServed,
    "seed-independence": random_places,
}
"""For each law, a policy that breaks it; a policy that stalls is listed under its error."""
