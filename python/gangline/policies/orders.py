"""Defines orders of jobs: `gl.orders.fifo(view)`, `gl.orders.srtf(view)` and others.

An order yields the waiting jobs one after the other, on demand. The core keeps the order from
decision to decision. Therefore, the cost of a decision depends on the number of changes and of jobs
read, not on the length of the queue. Orders with equal parameters share their state.

Examples
--------
>>> import gangline as gl
>>> class ShortestFirst(gl.Policy):
...     knowledge = "remaining"
...
...     def decide(self, view, changes):
...         plan, order = gl.Plan(view), gl.orders.sjf(view)
...         for job in order:
...             if not plan.place(job):
...                 order.skip_like(job)
...         return plan
>>> cluster = gl.Cluster.homogeneous(servers=2, gpus=4)
>>> trace = gl.synth.pai(jobs=200, seed=1, max_gpus=8)
>>> own = gl.simulate(cluster, trace, ShortestFirst())
>>> own.log_hash == gl.simulate(cluster, trace, "sjf").log_hash
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline._core import OrderWalk
    from gangline.policies.protocol import Plan, View

__all__ = ["Order", "edf", "fifo", "las", "sjf", "srsf", "srtf", "ssf"]


class Order:
    """The waiting and running jobs in one order, which is valid only during its decision.

    Iteration yields the waiting jobs. Ties are broken by arrival order.

    Examples
    --------
    >>> import gangline as gl
    >>> class LeastServed(gl.Policy):
    ...     def decide(self, view, changes):
    ...         plan, order = gl.Plan(view), gl.orders.las(view)
    ...         for job in order:
    ...             if not plan.place(job):
    ...                 order.skip_like(job)  # jobs that need as much do not fit either
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> gl.simulate(lab, "synth:pai?jobs=40&seed=3&max_gpus=8", LeastServed()).summary["finished"]
    40
    """

    __slots__ = ("_core", "_key", "_walk")

    def __init__(
        self,
        view: View,
        measure: str,
        *,
        by_gpus: bool = False,
        limits: Sequence[float] = (),
        lead: float = 0.0,
        estimate_error: float = 0.0,
    ) -> None:
        self._core = view._core
        self._key = self._core.order(measure, by_gpus, list(limits), lead, estimate_error)
        self._walk: OrderWalk | None = None

    def __iter__(self) -> Iterator[int]:
        self._walk = self._core.walk(*self._key)
        return self._walk

    def __len__(self) -> int:
        return self._core.waiting_count()

    @property
    def first(self) -> int | None:
        """The first waiting job; None if no job waits."""
        return self._core.first(*self._key)

    def skip_like(self, job: int) -> None:
        """Skip later waiting jobs that differ from the given job only in their duration.

        Such jobs have the same gang, GPU types, model, batch and memory. If a job cannot be placed,
        neither can similar jobs in the same decision, because the number of free GPUs only
        decreases. The one exception is the placement rule `skew`: a gang larger than every rack
        might fit when fewer GPUs are free.
        """
        if self._walk is not None:
            self._walk.skip_like(job)

    def running(self) -> npt.NDArray[np.int64]:
        """Return the running jobs in this order."""
        return self._core.running_in(*self._key)

    def behind(self, job: int) -> npt.NDArray[np.int64]:
        """Return the running jobs that come after the given job, in reverse order."""
        return self._core.behind(*self._key, job)

    def is_before(self, job: int, other: int) -> bool:
        """Return whether one job comes before another; each may be waiting or running."""
        return self._core.is_before(*self._key, job, other)

    def admit(self) -> list[tuple[int, int | None]]:
        """Return the jobs whose GPUs must change so that the first jobs in the order run.

        Jobs are considered in order. A job is admitted if enough GPUs of one of its types are left,
        on any servers. The type on which it runs is tried first, then its other types, fastest
        first.

        Returns
        -------
        list of (job, GPU type or None)
            In order, the running jobs that are not admitted on their current type, and the waiting
            jobs that are admitted, each with its new type.
        """
        return self._core.admit(*self._key)

    def repack(self, plan: Plan, rule: str = "consolidate", **params: object) -> None:
        """Preempt, move and start jobs so that the first jobs in the order run.

        This is the preemptive pass of `srtf`, `srsf` and `las`. Running jobs that `admit` returns
        give up their GPUs, and a placement rule places the admitted jobs. Then, in order, a job
        that was running gets its old GPUs back if all of them are still free, and a waiting job
        gets any GPUs that the rule finds for it.

        Parameters
        ----------
        plan : Plan
            The plan of this decision.
        rule : str
            Placement rule, as for `Plan.place`.
        **params
            Parameters of the rule.
        """
        waiting = self.admit()
        ran = [job for job, _ in waiting if plan.release(job)]
        placed = [
            job
            for job, kind in waiting
            if kind is not None and plan.place(job, rule, types=kind, **params)  # type: ignore[arg-type]
        ]
        unplaced = sum(kind is not None for _, kind in waiting) - len(placed)
        if not unplaced:
            return
        left = [job for job in ran if job not in placed]
        for job in self:
            while left and self.is_before(left[0], job):
                plan.restore(left.pop(0))
            if job not in placed and not plan.place(job, rule, **params):  # type: ignore[arg-type]
                self.skip_like(job)
        for job in left:
            plan.restore(job)

    def wake(self, plan: Plan, tag: int = 0) -> None:
        """Wake the policy when the first running job reaches its next limit.

        Call it when the plan is complete; the policy must wake on "timer". Only `las` needs this:
        in the other orders, no running job changes its position at a predictable instant.
        """
        self._core.wake(plan.actions, *self._key, tag)


def fifo(view: View) -> Order:
    """Return the jobs in order of arrival.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.fifo(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 9.0, 13.0]
    """
    return Order(view, "arrival")


def sjf(view: View, *, estimate_error: float = 0.0) -> Order:
    """Return the jobs in order of total duration alone on the fastest GPU type.

    Parameters
    ----------
    view : View
        The view of this decision; its policy must declare `knowledge = "remaining"`.
    estimate_error : float
        Sigma of the log-normal error in the durations.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     knowledge = "remaining"
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.sjf(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 9.0, 13.0]
    """
    return Order(view, "duration", estimate_error=estimate_error)


def ssf(view: View, *, estimate_error: float = 0.0) -> Order:
    """Return the jobs in order of total service (duration times GPUs); parameters as for `sjf`.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     knowledge = "remaining"
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.ssf(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 16.0, 8.0]
    """
    return Order(view, "duration", by_gpus=True, estimate_error=estimate_error)


def srtf(view: View, *, estimate_error: float = 0.0) -> Order:
    """Return the jobs in order of remaining time; parameters as for `sjf`.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     knowledge = "remaining"
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.srtf(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 9.0, 13.0]
    """
    return Order(view, "remaining", estimate_error=estimate_error)


def srsf(view: View, *, estimate_error: float = 0.0) -> Order:
    """Return the jobs in order of remaining service (time times GPUs); parameters as for `sjf`.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     knowledge = "remaining"
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.srsf(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 16.0, 8.0]
    """
    return Order(view, "remaining", by_gpus=True, estimate_error=estimate_error)


def las(
    view: View, *, limits: Sequence[float] = (), by_gpus: bool = True, lead: float = 0.0
) -> Order:
    """Return the jobs in order of attained service.

    Parameters
    ----------
    view : View
        The view of this decision.
    limits : sequence of float
        GPU-seconds at which a job moves to the next lower queue. Within a queue, jobs are ordered
        by their first start, and jobs that have not started come last. Without limits, jobs are
        ordered by the attained service itself.
    by_gpus : bool
        Whether service is measured in GPU-seconds (True) or in seconds (False).
    lead : float
        Without limits: GPU-seconds per GPU that are subtracted from a running job's service, so
        that equal jobs do not alternate.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.las(view, limits=[3600.0]):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 9.0, 13.0]
    """
    return Order(view, "attained", by_gpus=by_gpus, limits=limits, lead=lead)


def edf(view: View) -> Order:
    """Return the jobs in order of deadline; jobs without a deadline come last.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class InOrder(gl.Policy):
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in gl.orders.edf(view):
    ...             if not plan.place(job):
    ...                 break
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = {"arrival_s": [0, 1, 2], "gpus": [2, 2, 1], "duration_s": [10, 5, 7],
    ...         "deadline_s": [50, 40, 30]}
    >>> gl.simulate(lab, pa.table(jobs), InOrder()).jobs.column("queue_s").to_pylist()
    [0.0, 16.0, 8.0]
    """
    return Order(view, "deadline")
